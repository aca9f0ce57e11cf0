"""Settings of a training run: one dataclass defines the flags and the TOML file."""
from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import tomllib
from dataclasses import dataclass
from typing import Any

from hpgcn.errors import InputNotFoundError, UsageError, assigned, suggestion
from hpgcn.runtime.files import reading
from hpgcn.runtime.gpu_limits import FREE
from hpgcn.runtime.machine import size
from hpgcn.setting_field import (
    BATCHES,
    FILES,
    MODEL,
    OPTIMIZER,
    PARALLEL,
    RUN,
    checked,
    setting,
    values_of,
)
from hpgcn.setting_words import (
    LOSSES,
    NO_SHORTCUTS,
    OF_STRATEGY,
    WORDS,
    checked_batch,
    checked_delay,
    checked_metric,
    checked_schedule,
    parse_decoder,
    translated,
)

MAX_FILE = 1 << 20  # bytes of a TOML file
RENAMED = {"stages": "pipeline_batches"}  # keys of files of earlier versions


@dataclass(frozen=True)
class Config:
    """Settings of one training run.

    Each field is a flag of `hpgcn train` (`input_dropout` is `--input-dropout`) and a TOML key.

    Raises
    ------
    UsageError
        A value is of the wrong type or out of range.

    Examples
    --------
    >>> hpgcn.Config(hidden=8).replace(epochs=50).hidden
    8
    """

    graph: str = setting(
        "", "graph file (.h5); on the command line the first argument", FILES, resumable=True)
    out: str = setting(
        "", "directory of the run (default: run-NAME-N on the command line; in Python no files are "
        "written)", FILES, metavar="RUN", common=True, resumable=True)
    strategy: str = setting(
        "auto", "way to compute A H on several ranks. auto: the one that hpgcn plan recommends. "
        "auto-per-layer: the best one for each layer. Words: 2d:RxC and 3d:RxCxL, grid of ranks; "
        "1.5d:C, copies of each block of rows; cover:X, share of nonzeros that a rank may have "
        "above the mean; mop:N, row batches in the pipeline", PARALLEL,
        metavar="NAME", common=True, cost=True, resumable=True)
    delay: str = setting(
        "0", "0: exact. R: approximate; partial sums are exchanged every R steps and used R steps "
        "later. none: never exchanged. paper:R: as DistGNN", PARALLEL, only="strategy",
        metavar="R", cost=True)
    node_aware: str = setting(
        "auto", "send a row to each node once (p2p, cover, vertex-cut). auto: if ranks share "
        "nodes, and with --machine if it is faster", PARALLEL, choices=("auto", "always", "never"),
        cost=True, resumable=True)
    machine: str = setting(
        "", "output of hpgcn bench machine --json, or a machine's name. Strategy auto and "
        "node-aware exchange are chosen by its seconds (default: a server with InfiniBand)",
        PARALLEL, resumable=True)
    effort: str = setting(
        "auto", "work for parts that a run makes. auto: what its epochs pay for", PARALLEL,
        choices=("auto", "fast", "default", "best"), plan=True, resumable=True)
    model: str = setting(
        "gcn", "type of the model", MODEL, metavar="NAME", common=True, cost=True)
    layers: int = setting(
        2, "number of layers", MODEL, low=1, high=1000, common=True)
    hidden: int = setting(
        16, "width of the hidden layers", MODEL, low=1, high=1 << 24, common=True)
    embedding: int = setting(
        0, "width of a learned row for each vertex, the input of the first layer: alone, or to the "
        "right of features. 0: none", MODEL, low=0, high=1 << 20, cost=True)
    dropout: float = setting(
        0.5, "dropout before each layer", MODEL, low=0, high=1, open_high=True, common=True)
    input_dropout: float = setting(
        -1.0, "dropout before the first layer. -1: same as --dropout", MODEL, low=-1, high=1,
        open_high=True, cost=True)
    norm_adj: str = setting(
        "own", "divisor of each a_ij, with row sums r and column sums c. own: as the model "
        "defines. gcn accepts sym: sqrt(r_i c_j); in: sqrt(r_i r_j), as PyG; row: r_i; none: 1",
        MODEL, choices=("own", "sym", "in", "row", "none"), cost=True)
    activation: str = setting(
        "own", "activation of each hidden layer. own: as the model defines", MODEL,
        choices=("own", "relu", "elu", "gelu"), cost=True)
    norm: str = setting(
        "none", "normalization of each hidden layer before its activation (with --ffn: before the "
        "layer). layer: each row. batch: each column, over all rows", MODEL,
        choices=("none", "layer", "batch"), cost=True)
    residual: bool = setting(
        False, "add the input of each layer with A to its output. If the widths differ, the input "
        "is first multiplied by a weight matrix", MODEL, cost=True)
    ffn: bool = setting(
        False, "add a feed-forward block: a second linear layer after each layer with A. Needs "
        "--input-layer and --output-layer", MODEL, cost=True)
    input_layer: bool = setting(
        False, "begin with a linear layer of width --hidden. Then --input-dropout -1 means 0",
        MODEL, cost=True)
    output_layer: bool = setting(
        False, "end with a linear layer. All other layers have width --hidden", MODEL, cost=True)
    jump: str = setting(
        "none", "input of the output layer (jumping knowledge). none: the last layer with A. cat: "
        "all of them, concatenated. max: their largest value in each column", MODEL,
        choices=("none", "cat", "max"), cost=True)
    task: str = setting(
        "vertices", "what is predicted. vertices: their labels or targets. links: which pairs of "
        "vertices have an edge", MODEL, choices=("vertices", "links"), cost=True)
    output_width: int = setting(
        16, "With --task links: width of the rows of vertices that the decoder reads", MODEL, low=1,
        high=1 << 24, cost=True)
    decoder: str = setting(
        "dot", "With --task links: score of a pair, of the product of its rows. dot: its sum. "
        "distmult: its sum with learned weights. hadamard:L: L linear layers (default: 3)", MODEL,
        metavar="NAME", cost=True)
    negatives: str = setting(
        "uniform:1", "With --task links: pairs that are drawn in each epoch and learned as no "
        "links. uniform:K: K random targets for the source of each link. shared:M: M random "
        "targets, the same for all links", MODEL, metavar="NAME:N", cost=True)
    strict_negatives: bool = setting(
        False, "With --negatives uniform:K: draw a target again if it is a training link of its "
        "source", MODEL, cost=True)
    message_edges: str = setting(
        "train", "With --task links: edges that pass messages. train: the edges of the graph. "
        "train+val: links of validation are added, normalized anew, to evaluate on test and to "
        "predict", MODEL, choices=("train", "train+val"), cost=True)
    evaluation_negatives: str = setting(
        "auto", "With --task links: negatives of validation and test. auto: those of the file, "
        "else pairs:1. pairs:Q: Q random pairs for each link, together for all links. targets:Q: Q "
        "random targets for the source of each link. all: each vertex as a target (only for mrr "
        "and hits@K)", MODEL, metavar="NAME:Q")
    aggregator: str = setting(
        "mean", "mean: separate weights for a vertex and the mean of its neighbors. gcn: one mean "
        "of the vertex and its neighbors", MODEL, only="model", cost=True)
    heads: int = setting(
        1, "Number of attention heads; their outputs are concatenated to the width of the layer",
        MODEL, only="model", low=1, high=1 << 19, cost=True)
    output_heads: int = setting(
        0, "Number of heads of the last layer; their outputs are averaged. 0: same as --heads",
        MODEL, only="model", low=0, high=1 << 19, cost=True)
    attention_dropout: float = setting(
        0.0, "Dropout of the attention weights", MODEL, only="model", low=0, high=1,
        open_high=True)
    hops: int = setting(
        0, "Number of products with A in a layer. 0: 2 for sgc, 10 for appnp", MODEL,
        only="model", low=0, high=1000, cost=True)
    restart: float = setting(
        0.1, "Share of the input in the result of each product with A (teleport probability)",
        MODEL, only="model", low=0, high=1, open_high=True)
    batch: str = setting(
        "full", "vertices of a training step. full: all. vertices:B: B random vertices and the "
        "edges between them. parts:Q, parts:Q:K or parts:Q:FILE: Q random parts of the graph file, "
        "of K new parts, or of FILE. neighbors:K,...,K:B: B training vertices and K random "
        "neighbors per row, the first K for the last product with A. With --task links, links:B: "
        "B links, their negatives and all neighbors of these; links:K,...,K:B: K neighbors per "
        "row", BATCHES, metavar="BATCH",
        cost=True)
    training_graph: str = setting(
        "all", "vertices that training multiplies by. train, train+val: only the vertices of "
        "these masks and the edges between them, normalized anew (inductive training). "
        "Evaluation reads the whole graph", BATCHES, choices=("all", "train", "train+val"),
        cost=True)
    epochs: int = setting(
        200, "maximum number of epochs", RUN, low=1, common=True, plan=True, resumable=True)
    patience: int = setting(
        0, "stop after this number of epochs without a better validation result. 0: never", RUN,
        low=0, common=True, resumable=True)
    optimizer: str = setting(
        "adam", "optimizer. adamw: Adam with decoupled weight decay", OPTIMIZER,
        choices=("adam", "adamw", "sgd"))
    lr: float = setting(
        0.01, "learning rate", OPTIMIZER, low=0, common=True)
    schedule: str = setting(
        "constant", "learning rate after the warm-up. constant: --lr. cosine: falls from --lr to 0 "
        "at the last epoch, so it changes if a resumed run gets more epochs. step:N:X: times X "
        "every N epochs (step: step:100:0.1)", OPTIMIZER, metavar="NAME")
    warmup: int = setting(
        0, "number of epochs in which the learning rate rises to --lr", OPTIMIZER, low=0)
    clip_norm: float = setting(
        0.0, "clip the global L2 norm of the gradient to this value. 0: off", OPTIMIZER, low=0)
    weight_decay: float = setting(
        5e-4, "L2 factor: weight_decay * W is added to the gradient. adamw: W is multiplied by 1 - "
        "lr * weight_decay instead", OPTIMIZER, low=0)
    decay_layers: str = setting(
        "first", "layers with weight decay", OPTIMIZER, choices=("first", "all"))
    label_smoothing: float = setting(
        0.0, "label smoothing factor e: targets become (1-e) y + e/C (multi-label: (1-e) y + e/2). "
        "Applies to the training loss only", OPTIMIZER, low=0, high=1, open_high=True)
    loss: str = setting(
        "auto", "loss of targets (values to predict). auto: mse for targets, and cross-entropy for "
        "labels. huber: squares up to 1, then absolute", OPTIMIZER,
        choices=("auto", *LOSSES))
    standardize: bool = setting(
        True, "learn targets minus their mean, divided by their deviation, both of the training "
        "vertices. Predictions are in the units of the targets", OPTIMIZER)
    class_weight: str = setting(
        "", "weights of the classes in the training loss. balanced: n / (C n_c), with n_c of the n "
        "training vertices in class c of C. FILE: a line for each class, WEIGHT or NAME,WEIGHT "
        "(default: all 1)", OPTIMIZER, metavar="balanced|FILE")
    shortcuts: bool = setting(
        True, "skip work that does not change results: form A X once if X is dense and constant "
        "(--input-dropout 0), apply dropout within A (H W) (S-SpMM), and skip rows that neither "
        "the loss nor the metrics read", PARALLEL, cost=True)
    precompute: bool = setting(
        True, "compute A X once if X is dense and constant (--input-dropout 0). Does not change "
        "results", PARALLEL, cost=True, hidden=True)
    masked_products: str = setting(
        "auto", "apply dropout within A (H W) (S-SpMM). auto: where the kernel skips enough to "
        "gain. Does not change results", PARALLEL, choices=("auto", "always", "never"), cost=True,
        resumable=True, hidden=True)
    prune: bool = setting(
        True, "skip rows that neither the loss nor the metrics read. Does not change results",
        PARALLEL, cost=True, hidden=True)
    replay: str = setting(
        "auto", "record the calls of a step once and repeat them without Python. auto: full "
        "batches in memory. Does not change results", PARALLEL, choices=("auto", "never"),
        resumable=True, hidden=True)
    metric: str = setting(
        "auto", "metric for val_acc, test_acc and the best epoch. auto: accuracy, or micro-f1 for "
        "multi-label graphs, or rmse for targets. roc-auc: only for two classes or multi-label "
        "graphs. rmse, mae and r2: only for targets; the lowest rmse or mae is the best. auc "
        "(auto), ap, mrr and hits@K: only for links", RUN, metavar="NAME")
    eval_every: int = setting(
        1, "evaluate every N epochs. 0: only after the last epoch", RUN, low=0)
    dtype: str = setting(
        "float32", "number type of features, weights and messages. bf16: rows in bfloat16, all "
        "else in float32", PARALLEL, choices=("float32", "float64", "bf16"), cost=True)
    seed: int = setting(
        0, "seed of all random draws", RUN, low=0, high=2**63 - 1, common=True)
    split_index: int = setting(
        0, "number of the split to train on, from 0", RUN, low=0, cost=True)
    device: str = setting(
        "auto", "device to compute on. cuda: one GPU per rank; ranks of a node use its GPUs in "
        "turn. auto: cuda if every rank finds a GPU, else cpu", PARALLEL,
        choices=("auto", "cpu", "cuda"), plan=True, resumable=True)
    aggregate_on: str = setting(
        "device", "Device for products with A. cpu with --update-on cuda: the graph stays in host "
        "memory", PARALLEL, only="strategy", choices=("device", "cpu", "cuda"), resumable=True)
    update_on: str = setting(
        "device", "Device for products with W and everything else", PARALLEL, only="strategy",
        choices=("device", "cpu", "cuda"), resumable=True)
    threads: int = setting(
        0, "threads per rank. 0: number of cores / ranks on the node", PARALLEL, low=0, high=4096,
        resumable=True)
    memory: str = setting(
        "", "memory limit of a rank, such as 2G. If A H does not fit, it is not kept, and the "
        "backward pass computes a wider product instead. With --scratch: limit of the process "
        "(default: no limit)", PARALLEL, metavar="BYTES", resumable=True)
    gpu_memory: str = setting(
        "", "with --device cuda. Bytes of a GPU for all arrays, such as 8G, or free for all that "
        "are free: if they do not fit, local ranks take turns on it, with arrays at home in host "
        "memory or --scratch. Does not change results (default: no limit)",
        PARALLEL, metavar="BYTES", resumable=True)
    scratch: str = setting(
        "", "with --memory. Folder on a fast disk for arrays that do not fit: local ranks take "
        "turns in memory. Does not change results (default: none)", PARALLEL, metavar="DIR",
        resumable=True)
    checkpoint_every: int = setting(
        0, "write a checkpoint every N training steps and after the last one. In full-batch "
        "training a step is an epoch. 0: only after signal SIGUSR1", FILES, low=0, resumable=True)
    trace: bool = setting(
        False, "record a timeline of all ranks in RUN/trace.json", FILES, resumable=True)
    comm_timeout: float = setting(
        600.0, "seconds that a rank waits for a message before the run stops with an error",
        PARALLEL, low=0.001, high=10**9, resumable=True)

    def __post_init__(self):
        for entry in dataclasses.fields(self):
            object.__setattr__(self, entry.name, checked(entry, getattr(self, entry.name)))
        for name in ("memory", "gpu_memory"):
            try:
                if getattr(self, name) and (name, getattr(self, name)) != ("gpu_memory", FREE):
                    size(getattr(self, name))
            except UsageError as error:
                raise UsageError(f"{assigned(name)}: {error}") from None
        if -1 < self.input_dropout < 0:
            raise UsageError(f"{assigned('input_dropout', self.input_dropout)}: expected 0 to 1, "
                             "or -1 (same as dropout)")
        for name in ("dropout", "input_dropout"):
            if round(getattr(self, name) * 65536) >= 65536:
                raise UsageError(f"{assigned(name, getattr(self, name))} drops everything: "
                                 "expected less than 1 - 2^-17")
        object.__setattr__(self, "batch", checked_batch(self.batch))
        checked_metric(self.metric)
        parse_decoder(self.decoder)
        object.__setattr__(self, "delay", checked_delay(self.delay))
        object.__setattr__(self, "schedule", checked_schedule(self.schedule))
        if not self.shortcuts:
            for name, value in NO_SHORTCUTS.items():
                object.__setattr__(self, name, value)
        if self.aggregate_on == "cuda" and self.updates_on == "cpu":
            raise UsageError(f"{assigned('aggregate_on', 'cuda')}: needs "
                             f"{assigned('update_on', 'cuda')}")

    def __repr__(self) -> str:
        given = [(entry.name, getattr(self, entry.name)) for entry in dataclasses.fields(self)
                 if getattr(self, entry.name) != entry.default]
        return f"Config({', '.join(f'{name}={value!r}' for name, value in given)})"

    @property
    def number_dtype(self) -> str:
        """Dtype of weights and sums: float32 if rows are stored in bf16."""
        return "float32" if self.dtype == "bf16" else self.dtype

    @property
    def updates_on(self) -> str:
        """Device that updates rows: auto, cpu or cuda."""
        if self.update_on == "device":
            return "cuda" if self.aggregate_on == "cuda" and self.device == "auto" else self.device
        return self.update_on

    @property
    def aggregates_on_host(self) -> bool:
        """Whether the host aggregates rows, whichever device updates them."""
        where = self.device if self.aggregate_on == "device" else self.aggregate_on
        return where == "cpu"

    @property
    def first_dropout(self) -> float:
        """Probability of dropout before the first layer."""
        if self.input_dropout < 0:
            return 0.0 if self.input_layer else self.dropout
        return self.input_dropout

    def replace(self, **changes: Any) -> Config:
        """Return a copy with some fields changed; UsageError for an unknown name."""
        check_keys(changes, "setting")
        return dataclasses.replace(self, **changes)

    def to_toml(self) -> str:
        """Return the text of config.toml, with every field."""
        return "".join(
            f"{entry.name} = {_toml(getattr(self, entry.name))}  # {entry.metadata['help']}\n"
            for entry in dataclasses.fields(self))

    @staticmethod
    def from_toml(path: str | os.PathLike[str]) -> Config:
        """Return the Config of a TOML file; errors as `read_settings`."""
        return Config(**read_settings(path))


def _with_former_names(init):
    """Let the constructor of Config take settings of earlier versions, and suggest names."""
    @functools.wraps(init)
    def renamed(self, *values, **settings):
        check_keys(settings, "setting")
        init(self, *values, **translated(settings, SETTINGS))
    return renamed


Config.__init__ = _with_former_names(Config.__init__)  # type: ignore[method-assign]
SETTINGS = {entry.name: entry for entry in dataclasses.fields(Config)}
COST_FIELDS = tuple(name for name, entry in SETTINGS.items() if entry.metadata["cost"])
PLAN_FIELDS = tuple(name for name, entry in SETTINGS.items() if entry.metadata["plan"])
SHOWN = [entry for entry in SETTINGS.values() if not entry.metadata["hidden"]]
Config.__doc__ = "\n".join([
    inspect.cleandoc(Config.__doc__ or ""), "\nAttributes\n----------",
    *(f"{entry.name} : {values_of(entry)}\n    {entry.metadata['help']}"
      for entry in SHOWN)])


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings in a TOML file; errors as `files.reading` and `parse_toml`."""
    with reading(path) as file:
        return parse_toml(file.read(MAX_FILE + 1), path)


def parse_toml(text, where):
    """Return the settings in the bytes of a TOML file; only their names are checked.

    Drops a byte-order mark. A UsageError names the file, and the field nearest to an unknown key.
    """
    values = toml_values(text, where)
    check_keys(values, f"{where}: key")
    return values


def toml_values(text, where):
    """Parse the bytes of a TOML file into a dict; keys are not checked."""
    if len(text) > MAX_FILE:
        raise UsageError(f"{where}: more than {MAX_FILE} bytes, expected settings in TOML")
    try:
        values = tomllib.loads(text.decode("utf-8-sig"))
    except RecursionError as error:
        raise UsageError(f"{where}: brackets are nested too deeply") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte {error.start} is not UTF-8 text") from error
    except ValueError as error:  # not TOML, or a number of thousands of digits
        raise UsageError(f"{where}: {error}") from error
    inside = list(values.items())
    for key, value in inside:  # the list grows in this loop
        if isinstance(value, dict | list):
            held = value.values() if isinstance(value, dict) else value
            inside += [(key, each) for each in held]
        elif isinstance(value, int) and abs(value) >= 1 << 63:  # hexadecimal: of any length
            raise UsageError(f"{where}: {key!r:.80} holds an integer of more than 64 bits")
    return {RENAMED.get(name, name): value for name, value in values.items()}


def settings_of_run(out, given):
    """Return the settings of the run that a command resumes from `out`; {} without a run.

    Omits `threads`, `gpu_memory`, `memory` of a run with `scratch`, and the settings of another
    strategy.
    Errors as `read_settings`.
    """
    try:
        found = read_settings(os.path.join(out, "config.toml"))
    except InputNotFoundError:
        return {}
    dropped = {"threads", "gpu_memory", *["memory", "scratch"] * bool(found.get("scratch"))}
    if given.get("strategy", found.get("strategy")) != found.get("strategy"):
        dropped |= {*OF_STRATEGY}
    return {name: value for name, value in found.items() if name not in dropped}


def check_keys(values, where):
    """Refuse a key that is not a field of Config, and suggest the nearest name."""
    for key in values:
        if key not in SETTINGS and key not in WORDS:
            hint = (suggestion(key.replace("-", "_"), SETTINGS)
                    or f"; known: {', '.join(SETTINGS)}")
            raise UsageError(f"{where} {key!r:.80} is unknown{hint}")


def _toml(value):
    if isinstance(value, str):
        escaped = (f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 or c in '"\\' else c
                   for c in value)
        return f'"{"".join(escaped)}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


