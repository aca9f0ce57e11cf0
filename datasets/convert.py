"""Convert any input to a Graph or a file: find the reader, apply the options, report changes."""
from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.datasets import formats, unsupported_formats
from hpgcn.datasets.collections import builtin
from hpgcn.datasets.convert_options import FORMATS, ConvertOptions
from hpgcn.datasets.edge_feature_files import read_edge_features
from hpgcn.datasets.edges.columns import check_flag
from hpgcn.datasets.held_out_links import parse_links, with_links
from hpgcn.datasets.random_contents import RandomContents
from hpgcn.datasets.sorting.edges_to_csr import build, count_isolated, describe_zeros
from hpgcn.datasets.source import BudgetError, Source, need, refuse_missing
from hpgcn.datasets.split import check_count, make_split, parse_split
from hpgcn.datasets.tables.join import close_gaps, join
from hpgcn.datasets.tables.table_files import TableOptions
from hpgcn.datasets.vertex_changes import (
    MADE,
    largest_component,
    make_features,
    normalize_rows,
)
from hpgcn.errors import DataError, DataWarning, InputNotFoundError, UsageError
from hpgcn.graphs.adjacency import (
    LOST,
    UNEQUAL,
    Counts,
    check_duplicates,
    duplicates_notes,
    row_and_column_sums,
)
from hpgcn.graphs.classes import read_text_labels
from hpgcn.graphs.edge_features import features_of_entries
from hpgcn.graphs.edge_weights import join_names, rounded_note
from hpgcn.graphs.graph import assemble
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import (
    AUTO,
    check_order,
    find_order,
    is_worth_ordering,
    ordering_bytes,
)
from hpgcn.graphs.validation import SPLIT
from hpgcn.runtime.disk import page_cache
from hpgcn.runtime.files import check_path
from hpgcn.runtime.machine import default_threads, memory_budget

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.sorting.disk_arrays import Scratch
    from hpgcn.datasets.sorting.external import DiskAdjacency, Entries
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.header import Header

EDGE_BYTES = 128  # peak memory per edge in `read`


def convert(source: Path | str, out: Path | str, fmt: str = "auto", *, compress: str = "none",
            overwrite: bool = False, order: str = AUTO, **options: Any) -> list[str]:
    """Read a graph like `read` and write it to the file `out`.

    Rows are put into an `order` of `hpgcn.graphs.reordering.find_order` if memory
    allows. Apart from the order, the file does not depend on the memory. Edge lists
    that do not fit into memory are sorted on disk, beside the file. If `memory` is
    given, all files leave the page cache.

    Return notes for the user on how the input was read, a list of str. Errors are those
    of `read` and of `store.write_graph`; no file is left after an error.
    """
    from hpgcn import store
    from hpgcn.datasets.sorting.disk_arrays import Scratch

    store.check_suffix(out)
    store.refuse_existing(out, overwrite)
    check_order(order)
    memory = options.get("memory")
    with page_cache.bypassed(memory is not None), Scratch(out) as scratch:
        graph, notes = read(source, fmt, scratch=scratch, **options)
        perm, note = order_within(graph, order, memory)
        store.write_graph(out, graph, overwrite=overwrite, compress=compress,
                          scratch=scratch.folder, order=perm)
    return notes + [note] * bool(note)


def order_within(graph: Graph, name: str, memory: int | None) -> tuple[np.ndarray | None, str]:
    """Return an order of the vertices, new -> old or None, and a note for the user.

    None means that vertices keep their order. So does a graph on disk, and one whose
    reordering would take too much memory. `memory` is in bytes; None means 80% of the
    available memory.
    """
    from hpgcn.datasets.sorting.external import room

    on_disk = not isinstance(graph.indices, np.ndarray)
    size = ordering_bytes(graph)
    free = room(memory_budget() if memory is None else memory)
    if not is_worth_ordering(graph, name) or not (on_disk or size > free):
        return find_order(graph, name)
    return None, ("vertices keep the order of the input: reordering them needs "
                  f"{size / 2**20:,.0f} MiB more memory")


def read(source: Any, fmt: str = "auto", *, memory: int | None = None,
         scratch: Scratch | None = None, **flags: Any) -> tuple[Graph, list]:
    """Read a graph from a file, or a built-in graph; return the Graph and notes.

    `flags` are fields of ConvertOptions, the flags of `hpgcn convert`. Files of
    `features`, (n, f), and `labels` or `targets`, (n,) or (n, t), replace the input's, and
    so does `split`, FILE or FILE:COLUMN. Attributes of nodes in the source are called
    ":NAME,...". `memory`, the bytes that the input may take, is 80% of those available.

    In a Scratch (`scratch`) an edge list that does not fit into memory is sorted on
    disk. The graph's arrays may then be DiskArrays, which live as long. DataError,
    InputNotFoundError, UsageError, MissingError, StorageError: each one line with file,
    field, and index or line number.
    """
    # refuse options that contradict each other before any file is read
    options = ConvertOptions(**flags)
    source = check_path(source)
    features, labels = (path if path is None else check_path(path)
                        for path in (options.features, options.labels))
    drawn = RandomContents.parse(features, labels, options.row_normalize)
    lazy = scratch is not None  # then random features are drawn while the file is written
    wanted = None if options.split is None else parse_split(options.split)
    of_file = wanted is not None and wanted[0] == "table"
    check_count(options.num_splits, wanted)
    options.check()
    check_duplicates(options.duplicates)
    if options.columns is not None:
        check_flag(options.columns)
    links = None if options.links is None else parse_links(options.links)
    if options.largest_component or options.edge_features is not None or links is not None:
        scratch = None  # the graph must be in memory

    # read the edges, then join the tables
    made = features if features in MADE else None
    files = {"labels": None if drawn.labels else labels,
             "features": None if made or drawn.features else features,
             "targets": None if options.target_arrays else options.targets,
             "split": wanted[1] if of_file else None}
    with page_cache.bypassed(memory is not None):
        memory = memory_budget() if memory is None else memory
        tables = TableOptions(**vars(options) | files, memory=memory)
        _refuse_missing(source, fmt, *tables.files(),
                        *(links.values() if isinstance(links, dict) else ()))
        raw, name, file, fmt, digest, entries = _read(source, fmt, memory, scratch, options)
        where = str(file)
        notes = raw.notes
        tables = _with_targets(tables, raw, options, where)
        drawn.clear(raw)
        of_edges = None
        if options.edge_features is not None:
            of_edges = read_edge_features(file, fmt, raw, tables)
            digest = file.sha256()
        with warnings_as(notes, where):
            if labels is None and raw.labels is not None and raw.class_names is None:
                raw.labels, raw.class_names = read_text_labels(raw.labels, where,
                                                               options.classes)
            join(raw, entries, tables, where)
        if options.classes and raw.labels is None and not drawn.labels:
            raise UsageError(f"--classes: {where} has no labels; add them with --labels FILE")
    notes += raw.gap_notes + raw.unread_attributes()
    if labels is None:
        close_gaps(raw, where)

    coords = raw.columns, raw.rows
    adjacency = _build_adjacency(raw, entries, where, options, scratch, memory)
    if of_edges is not None:
        coords = coords if options.reverse else coords[::-1]
        adjacency = adjacency.with_features(coords, of_edges, where)
    del coords
    links = raw.links
    if links is not None and options.links is None:
        for flag in options.flags("reverse", "largest_component"):
            raise UsageError(f"{flag}: not for a graph with links, which {where} has")
    if options.links is not None:
        adjacency, links = with_links(adjacency, raw, options, where, file, memory)
        if isinstance(file, Source):
            digest = file.sha256()

    # finish features and masks, which may need the adjacency
    if made:
        raw.features = make_features(made, *adjacency.sums(), memory, where)
        raw.feature_names = None
        notes.append(f"features: {made}, {raw.features.shape[1]} columns computed from the "
                     "adjacency")
    drawn.draw(raw, memory, where)
    if raw.row_normalize if options.row_normalize is None else options.row_normalize:
        raw.features = normalize_rows(raw.features, where)
    count = options.num_splits
    need(len(SPLIT) * count * raw.num_nodes, memory, f"{where}: {count} splits")
    masks, split = make_split(raw, ("file",) if of_file else wanted, count, where)

    # build the graph
    with warnings_as(notes, where):
        graph = adjacency.assemble(
            None if drawn.features else raw.features, None if drawn.labels else raw.labels, masks,
            name=where, original_ids=raw.original_ids, split=split, source_sha256=digest,
            class_names=raw.class_names, feature_names=raw.feature_names,
            classes=options.classes, targets=raw.targets, target_names=raw.target_names,
            links=links, allow_leakage=options.allow_leakage)
    graph = drawn.add_to(graph, raw, lazy=lazy)
    header = dataclasses.replace(
        graph.header, name=name, base=raw.base if raw.original_ids is None else 0,
        parallel_edges=adjacency.counts.ones and not graph.header.all_ones)
    graph = dataclasses.replace(graph, header=header)
    notes += [raw.if_directed] * bool(raw.if_directed and graph.header.directed)
    notes += duplicates_notes(adjacency.counts, options.duplicates, "--duplicates {}".format)
    if options.strict and raw.undirected:
        _refuse_half_listed(graph.header, adjacency.counts, where)
    reads = raw.reads[::-1] if options.reverse else raw.reads
    report = _report(graph.header, raw, adjacency.counts, adjacency.isolated, reads)
    return graph, report + notes


class MemoryAdjacency(NamedTuple):
    """The adjacency of a graph in memory, with the attributes of a DiskAdjacency."""

    counts: Counts
    isolated: int
    assemble: partial
    sums: Callable

    def kept(self, entries: np.ndarray) -> MemoryAdjacency:
        """Return the adjacency with those entries for which a bool, (nnz,), is true."""
        indptr, indices, data = self.assemble.args
        words = dict(self.assemble.keywords)
        if words.get("edge_features") is not None:
            words["edge_features"] = words["edge_features"][entries]
        indptr = run_offsets(entries)[indptr]
        csr = indptr, indices[entries], None if data is None else data[entries]
        return self._replace(isolated=count_isolated(*csr[:2]),
                             assemble=partial(assemble, *csr, **words),
                             sums=partial(row_and_column_sums, *csr))

    def with_features(self, coords: Sequence[np.ndarray], features: np.ndarray,
                      where: str) -> MemoryAdjacency:
        """Return the adjacency with features of edges, whose rows and columns are `coords`."""
        indptr, indices, _ = self.assemble.args
        features = features_of_entries(coords, features, indptr, indices, where)
        return self._replace(assemble=partial(self.assemble, edge_features=features))


def _build_adjacency(raw: Raw, entries: Entries | None, where: str, options: ConvertOptions,
                     scratch: Scratch | None, memory: int) -> DiskAdjacency | MemoryAdjacency:
    """Build the adjacency, in memory or from `entries` on disk; extend `raw.notes`."""
    if entries is not None:
        if entries.rounded:
            raw.notes.append(rounded_note(entries.rounded))
        if entries.zeros:
            raw.notes.append(describe_zeros(entries.zeros))
        return entries.merge(scratch, memory)

    csr, counts = build(raw, where, raw.notes, options)
    if options.largest_component:
        csr = largest_component(csr, raw)
    return MemoryAdjacency(counts, count_isolated(*csr[:2]),
                            partial(assemble, *csr, symmetric=counts.symmetric),
                            partial(row_and_column_sums, *csr))


@contextmanager
def warnings_as(notes: list[str], where: str) -> Iterator[None]:
    """Context manager: append DataWarnings to `notes` instead of showing them.

    The file name `where` is left out of the notes.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        yield
    for warning in caught:
        message = str(warning.message).removeprefix(f"{where}: ")
        if issubclass(warning.category, DataWarning):
            if not any(message.partition(": np.")[0] in note for note in notes):
                notes.append(message)  # reading text labels has no such note
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename,
                                   warning.lineno)


def _with_targets(tables: TableOptions, raw: Raw, options: ConvertOptions,
                  where: str) -> TableOptions:
    """Return the options of tables with the file of targets; leave labels out of `raw`.

    Names that are no arrays of the source are columns of the file of features.
    """
    if options.targets is None:
        return tables
    if raw.labels is not None:
        raw.notes.append("labels of the source are left out, because targets are given")
        raw.labels = raw.class_names = None
    if raw.targets is not None:
        raw.notes.append(f"targets: {join_names(options.target_arrays)}")
    if raw.targets is not None or tables.targets is not None:
        return tables
    if tables.features is None:
        raise UsageError(f"--targets {options.targets}: no such file, and no arrays of {where}; "
                         "expected FILE, FILE:COLUMN,... or names of columns in the table of "
                         "--features")
    return dataclasses.replace(tables, targets=f"{tables.features}:{options.targets}")


def _refuse_missing(source: Path | str, fmt: str, *beside: Path | str) -> None:
    """Raise one InputNotFoundError that names all missing input files, if there are several."""
    known = fmt == "auto" and str(source) in builtin.BUILTIN
    refuse_missing([path for path in (None if known else source, *beside) if path is not None])


def _read(source: Path | str, fmt: str, memory: int, scratch: Scratch | None,
          options: ConvertOptions) -> tuple:
    """Read a file or built-in graph.

    Return Raw, graph name, Source, format, SHA-256, and Entries if the edges are on
    disk.
    """
    if fmt not in FORMATS:
        raise UsageError(f"format {fmt!r}: expected {', '.join(FORMATS)}")

    # recognize a built-in graph, which is no file
    if fmt == "auto" and str(source) in builtin.BUILTIN:
        formats.refuse_options(options, source)
        raw = builtin.BUILTIN[str(source)]()
        return raw, str(source), source, "built-in", builtin.sha256(raw), None

    # find the file and its format
    if os.path.isdir(source):
        source = formats.first_file(source, fmt)
    try:
        file = Source(source)
    except InputNotFoundError as error:
        words = " or ".join(builtin.BUILTIN)
        raise InputNotFoundError(f"{error}; expected a file, or {words}") from error

    if fmt == "auto":
        fmt = formats.detect(file)
    elif fmt not in formats.SETS:
        unsupported_formats.refuse(file, by_name=False, fmt=fmt)

    # refuse flags that this format has not
    formats.refuse_options(options, fmt)
    asking = [options] if fmt in formats.ASKING else []

    # read into memory if the edges fit
    name = formats.graph_name(file, fmt)
    streamed = scratch is not None and fmt in formats.STREAMED
    if not streamed or EDGE_BYTES * formats.expected_edges(file) <= memory:
        try:
            raw = formats.reader(fmt)(file, memory, *asking)
            return raw, name, file, fmt, file.sha256(), None
        except BudgetError:
            if not streamed:
                raise

    # otherwise sort them on disk
    from hpgcn.datasets.sorting import external

    digest = hashlib.sha256()
    with formats.stream(fmt)(file, digest, default_threads(), options) as stream:
        entries = external.collect(stream, scratch, memory, options)
    file.refuse_changed()
    none = np.empty(0, np.int64)
    raw = stream.raw(entries.numbering, none, none, None)
    return raw, name, file, fmt, digest.hexdigest(), entries


def _refuse_half_listed(header: Header, counts: Any, where: object) -> None:
    once = counts.asymmetric
    both = (header.num_edges - counts.loops) // 2 - once
    if once and both:
        raise DataError(f"{where}: is declared undirected, but its entries are not symmetric: "
                        f"{both} edges are listed in both directions and {once} in one (--strict)")


def _report(header: Header, raw: Raw, counts: Any, isolated: int,
            reads: tuple[str, str]) -> list[str]:
    ids = raw.original_ids
    row, column = reads
    kind = "directed" if header.directed else "undirected"
    kind += "" if header.all_ones else ", weighted"
    merged = "summed" if header.parallel_edges else "merged"
    notes = [
        f"{header.num_nodes} vertices, {header.num_edges} edges, {kind}",
        f"{counts.duplicates} duplicates {merged}, {counts.loops} self loops, "
        f"{isolated} isolated vertices",
        f"row {row} aggregates {column}"]

    # note changes of the edges
    if counts.asymmetric > 0:
        notes.append(f"{counts.asymmetric} edges added to make the adjacency symmetric")
    if counts.zeros:
        notes.append(f"{counts.zeros} edges dropped because their weights sum to 0")
    if counts.lost:
        notes.append(f"{counts.lost} {LOST}")
    if counts.unequal:
        notes.append(f"{counts.unequal} {UNEQUAL}")

    # note the ids of vertices
    if raw.bipartite:
        notes.append("ids of the first column are numbered first, then those of the second")
    elif ids is not None and ids.dtype.kind == "U":
        notes.append("ids are names, numbered in order of appearance")
    elif ids is not None:
        notes.append(f"ids {ids[0]}..{ids[-1]} relabeled 0..{header.num_nodes - 1} in increasing "
                     "order")

    return notes


if __name__ == "__main__":  # python -m hpgcn.datasets.convert runs `hpgcn convert`
    import runpy
    import sys

    sys.argv[1:1] = ["convert"]
    runpy.run_module("hpgcn", run_name="__main__", alter_sys=True)
