"""Collect the learned rows of all ranks on rank 0, and send rows of rank 0 to their owners."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DataError, UsageError, setting, warn
from hpgcn.graphs.named_vertices import look_up
from hpgcn.model.embedding import NAME, own_columns
from hpgcn.training.files.run_directory import read_run

if TYPE_CHECKING:
    from hpgcn.training.setup.shard import GraphShard


def gather_rows(shard: GraphShard, rows: np.ndarray) -> np.ndarray | None:
    """Return the rows of all vertices, (n, d) in ORIGINAL order, on rank 0; None elsewhere.

    `rows`, (m, d_j), are those of this rank. All ranks call this together.
    """
    pieces = _pieces(shard)
    numbers = shard.comm.gather_rows(np.ascontiguousarray(rows).ravel())
    if shard.comm.rank:
        return None
    found = np.empty((int(shard.layout.offsets[-1]), shard.spec.embedding), rows.dtype)
    for place, vertex, columns in pieces:
        found[vertex, columns] = numbers[place].reshape(vertex.size, columns.size)
    return found


def scatter_rows(shard: GraphShard, rows: np.ndarray | None) -> np.ndarray:
    """Return this rank's rows, (m, d_j), of the `rows` (n, d) that rank 0 has.

    Rows are in ORIGINAL order. All ranks call this together.
    """
    pieces = _pieces(shard)
    numbers = None
    if shard.comm.rank == 0:
        numbers = np.concatenate([rows[vertex, columns].ravel() for _, vertex, columns in pieces])
    own = own_columns(shard.spec, shard.columns.of(shard.spec.widths[0]))
    found = np.empty((shard.vertex.size, own.stop - own.start), shard.spec.dtype)
    shard.comm.scatter_rows(numbers, found.reshape(-1))
    return found


def _pieces(shard: GraphShard) -> list[tuple]:
    """Return place, vertices and columns of each rank's numbers, in rank order, on rank 0."""
    own = own_columns(shard.spec, shard.columns.of(shard.spec.widths[0]))
    sizes = shard.comm.allgather((shard.vertex.size, own.start, own.stop))
    every = shard.comm.gather_rows(shard.vertex)
    return [] if shard.comm.rank else list(_cut(sizes, every))


def _cut(sizes: list[tuple], every: np.ndarray) -> Iterator[tuple]:
    row = number = 0
    for m, first, last in sizes:
        vertex = every[row:row + m, None]
        count = m * (last - first)
        yield slice(number, number + count), vertex, np.arange(first, last)
        row, number = row + m, number + count


def check_learned(arrays: dict[str, np.ndarray], width: int, where: Any,
                  count: int | None = None) -> np.ndarray | None:
    """Return the learned rows among weights by name; None without.

    Raise a DataError unless they have `width` columns, and `count` rows if it is given.
    """
    rows = arrays.get(NAME)
    shape = np.shape(rows) if rows is not None else None
    if width and (shape is None or len(shape) != 2 or shape[1] != width
                  or count not in (None, shape[0])):
        expected = f"({count if count is not None else 'vertices'}, {width})"
        raise DataError(f"{where}: {NAME} has shape {shape}, expected {expected}")
    if rows is not None and not width:
        raise DataError(f"{where}: array {NAME} is unknown without {setting(NAME)}")
    return rows


def check_ids(attributes: dict[str, Any], rows: np.ndarray, where: Any) -> np.ndarray:
    """Return the `vertex_ids` of learned rows; DataError unless each row has one."""
    ids = attributes.get("vertex_ids")
    if np.shape(ids) != rows.shape[:1]:
        raise DataError(f"{where}: vertex_ids has shape {np.shape(ids)}, expected {rows.shape[:1]}")
    return ids


def read_learned(run: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and the learned rows of a run, (n,) and (n, d).

    Raise a UsageError if it has none; errors as `read_run`.
    """
    weights, settings, attributes = read_run(run)
    rows = check_learned(weights, settings["embedding"], run)
    if rows is None:
        raise UsageError(f"{run}: has no learned rows; train with {setting(NAME, 64)}")
    return check_ids(attributes, rows, run), rows


def rows_of_graph(rows: np.ndarray, known: np.ndarray, shard: GraphShard, graph: str,
                  run: Any) -> np.ndarray:
    """Return the rows of a run for the vertices of a graph, (n, d) in ORIGINAL order.

    `known` are the ids of the vertices of `rows`, as the input of the run called them.
    Raise a DataError if a vertex of the graph is not among them. Rank 0 calls this.
    """
    wanted = shard.vertex_ids
    place, found = look_up(wanted, known)
    missing = ~found
    if missing.any():
        raise DataError(
            f"{graph}: {np.count_nonzero(missing):,} of {wanted.size:,} vertices have no learned "
            f"row in {run}, first {wanted[missing][0].item()!r}; predict for the vertices of the "
            f"training, train a new run on {graph}, or train on features without {setting(NAME)}")
    if shard.original_ids is None and wanted.size != known.size:
        warn(f"{graph}: {wanted.size:,} of {known.size:,} vertices of {run}, and no ids: learned "
             "rows are taken by the numbers of vertices; give ids if they were renumbered")
    return rows[place]
