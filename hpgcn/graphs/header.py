"""Metadata of a graph: its name, sizes and properties."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpgcn.errors import ConfigError, setting
from hpgcn.runtime.text_table import html_list


@dataclass(frozen=True)
class Header:
    """Metadata of a graph: name, sizes and properties, known without its arrays."""

    name: str  # name of the source, without any path
    num_nodes: int  # n
    num_edges: int  # stored nonzeros of the whole adjacency
    num_features: int = 0  # f; 0 without features
    num_classes: int = 0  # c; 0 without labels
    directed: bool = False  # False if the adjacency equals its transpose, values included
    all_ones: bool = False  # every stored weight is 1; `Graph.data` is then None
    multilabel: bool = False  # labels are a float32 (n, t) matrix rather than a class id
    sparse_features: bool = False  # features are CSR
    num_splits: int = 0  # s; each split has masks of train, val and test; 0 without masks
    split: str = ""  # how splits were made: "file", "planetoid", "all", "random:60/20/20:0"..
    source_sha256: str = ""  # hash of the input, hexadecimal; empty if made in memory
    base: int = 0  # the input's id of vertex 0, if `Graph.original_ids` is None
    parallel_edges: bool = False  # weights are how often the input lists an edge
    random_features: str = ""  # "random:COLUMNS:SEED" if features were drawn
    random_labels: str = ""  # "random:CLASSES:SEED" if labels were drawn
    num_edge_features: int = 0  # features of each stored entry
    num_targets: int = 0  # t; values to predict of each vertex, instead of labels

    def __str__(self) -> str:
        classes = "labels per vertex" if self.multilabel else "classes"
        words = [
            repr(self.name), f"{self.num_nodes:,} vertices", f"{self.num_edges:,} stored entries",
            "directed" if self.directed else "undirected",
            f"{self.num_features:,} features" if self.num_features else "",
            f"{self.num_edge_features:,} edge features" if self.num_edge_features else "",
            f"{self.num_classes:,} {classes}" if self.num_classes else "",
            f"{self.num_targets:,} target{'s' * (self.num_targets > 1)}" * bool(self.num_targets),
            f"{self.num_splits:,} splits" if self.num_splits > 1 else "split" * self.num_splits]
        return ", ".join(filter(None, words))

    @property
    def num_outputs(self) -> int:
        """Columns of a model's last layer: targets, or else classes."""
        return self.num_targets or self.num_classes

    @property
    def row_entries(self) -> float:
        """Mean number of entries in a row of A, with added self loops if A has none."""
        return 1 + self.num_edges / max(1, self.num_nodes)

    @property
    def weights(self) -> str:
        """Text that describes the edge weights."""
        if self.parallel_edges:
            return "numbers of parallel edges"
        return "all 1" if self.all_ones else "float32"

    def check_split(self, index: int, where: str | None = None) -> None:
        """Raise ConfigError if the graph has no split with the number `index`."""
        # planning uses split 0 even without splits
        if not 0 <= index < max(1, self.num_splits):
            held = f"{self.num_splits} splits, 0 to {self.num_splits - 1}"
            if self.num_splits < 2:
                held = "one split, 0" if self.num_splits else "no split"
            raise ConfigError(f"{where or self.name}: {setting('split_index', index)}, but the "
                              f"graph has {held}")

    def html(self, held: str = "", counts: Mapping[str, Any] | None = None) -> str:
        """Return the metadata as an HTML table, for notebooks.

        `held` is a text about the rows in memory. `counts` are the sizes of the masks,
        summed over splits.
        """
        # texts of several words
        n = self.num_nodes
        of_split = {key: f"{count / max(1, self.num_splits):,.0f}"
                    for key, count in (counts or {}).items()}
        features = f"{self.num_features:,}{', sparse' * self.sparse_features}"
        features += ", random" * bool(self.random_features)
        classes = f"{self.num_classes:,}" if self.num_classes else "none"
        classes += ", random" * bool(self.random_labels)

        return html_list(f"graph {self.name}", [
            ("vertices", f"{n:,}"),
            ("rows held", held),
            ("stored entries", f"{self.num_edges:,}"),
            ("entries a vertex", f"{self.num_edges / n:.1f}" if n else ""),
            ("edges", "directed" if self.directed else "undirected"),
            ("weights", self.weights),
            ("features an edge", f"{self.num_edge_features:,}" if self.num_edge_features else ""),
            ("features", features if self.num_features else "none"),
            ("targets a vertex", f"{self.num_targets:,}" if self.num_targets else ""),
            ("labels a vertex" if self.multilabel else "classes",
             "" if self.num_targets else classes),
            ("splits", f"{self.num_splits:,}" if self.num_splits > 1 else ""),
            *((f"vertices to {word}", of_split.get(key, "")) for key, word in (
                ("train", "train"), ("val", "validate"), ("test", "test")))])
