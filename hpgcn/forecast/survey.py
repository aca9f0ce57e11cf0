"""What a forecast reads of a graph, values and features aside: its pattern, and which rows matter to a model."""
from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from hpgcn import store
from hpgcn.check import SPLIT, check_csr, index_dtype
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.cost.step import make_step
from hpgcn.errors import DataError
from hpgcn.graph import Graph
from hpgcn.model import MODELS
from hpgcn.partition.model import pattern
from hpgcn.reach import levels
from hpgcn.reorder import bandwidth
from hpgcn.store.csr import read_csr


class Survey:
    """The pattern of a graph, and what a model reads of it.

    Parameters
    ----------
    source : hpgcn.graph.Graph with all rows, or path or hpgcn.store.StoredGraph
    config : hpgcn.Config
        Its model, aggregator, layer_norm, hidden, input_dropout, dropout, dtype and prune.
    widths : tuple of int, optional
        Features, hidden widths, classes; default: those of the graph, with config.layers - 1 hidden ones.

    Attributes
    ----------
    name : str
        Path of the file, or name of the graph.
    header : hpgcn.graph.Header
    offsets : (k + 1,) int64 or None
        Parts of a partitioned graph, and `method`, how they were made.
    graph : hpgcn.graph.Graph
        Pattern as stored; nothing else.
    step : hpgcn.cost.Step
    symmetric : bool
        The matrix that is multiplied is.
    pointers : (n + 1,) int64
        Row pointers of A + I, by which row blocks are balanced.
    whole : Part
        All of what is multiplied.
    train, evaluated : list of L + 1 (n,) bool, or None for all rows
        As hpgcn.reach.levels.
    feature_pointers : (n + 1,) int64 or None
        Of sparse features.

    Raises
    ------
    InputNotFoundError, DataError, StorageError
        As `hpgcn.store.load`; no vertices; widths that neither the file nor the caller tells.
    """

    def __init__(self, source, config=None, widths=None):
        config = config or Config()
        masks = self._read(source)
        header, kind = self.header, MODELS[config.architecture]
        if not header.num_nodes:
            raise DataError(f"{self.name}: no vertices")
        step = make_step(self.name, header, config, widths)
        if not step.sparse_features:
            self.feature_pointers = None
        self.symmetric = not header.directed and kind.norm != "row"
        with_loops = pattern(self.graph)
        self.pointers = with_loops.indptr.astype(np.int64)
        self.whole = Part(with_loops if kind.self_loops else self._stored_pattern())
        self.train = self.evaluated = [None] * (len(step.layers) + 1)
        if config.prune and masks is not None:
            self.train, self.evaluated = (
                levels(self.graph, read, len(step.layers), SerialComm(), given=step.constant)
                for read in ([masks["train"]], list(masks.values())))
        self.parts, self.step = {}, replace(step, rows=self.totals(self.train))

    def _read(self, source):
        """Take what is wanted of a graph, and return its masks; None where there are none."""
        if isinstance(source, Graph):
            self.name, self.header, self.offsets, self.method = source.header.name, source.header, source.offsets, None
            self.graph, X = source, source.features
            self.feature_pointers = X.indptr if sp.issparse(X) else None
            return source.masks
        with nullcontext(source) if isinstance(source, store.StoredGraph) else store.load(source) as stored:
            self.name, self.header, self.offsets = stored.path, stored.header, stored.offsets
            self.method = stored.vertex_partition.method if self.offsets is not None else None
            header, n, reader = self.header, self.header.num_nodes, stored.reader
            indptr, indices, _ = read_csr(reader, "adjacency", 0, n, n, n, True)
            self.feature_pointers = _feature_pointers(reader, header) if header.sparse_features else None
            masks = {key: reader.read(f"masks/{key}") > 0 for key in SPLIT} if header.has_split else None
        nothing = np.zeros(n)
        self.graph = Graph(header, 0, indptr, indices, None, None, None, None, nothing, nothing, nothing,
                           vertex=np.arange(n))
        return masks

    def _stored_pattern(self):
        indptr, indices = self.graph.indptr, self.graph.indices
        indptr = indptr.astype(index_dtype(indptr[-1]), copy=False)  # keeps SciPy from widening the column numbers
        n = self.header.num_nodes
        return sp.csr_array((np.ones(indices.size, bool), indices, indptr), shape=(n, n))

    @cached_property
    def bandwidth(self):
        """Of what is multiplied."""
        return bandwidth(self.whole.pattern)

    def totals(self, found):
        """Rows of each level of `train` or `evaluated`; tuple of L + 1 int."""
        return tuple(self.header.num_nodes if level is None else int(np.count_nonzero(level)) for level in found)

    def maps(self, found):
        """What each layer multiplies by, of `train` or `evaluated`: list of L Part; None where no product is taken."""
        return [None if self.step.constant and layer == 0 else self._part(*found[layer:layer + 2])
                for layer in range(len(self.step.layers))]

    def _part(self, rows_in, rows_out):
        if rows_in is None and rows_out is None:
            return self.whole
        key = id(rows_in), id(rows_out)
        if key not in self.parts:
            self.parts[key] = Part(self.whole.pattern, rows_out, rows_in)
        return self.parts[key]


class Part:
    """Some rows and columns of a pattern (n, n), the others left empty.

    Attributes
    ----------
    pattern : csr_array (n, n)
    rows_out, rows_in : (n,) bool, or None for all
    square : bool
        Both are the same rows.
    """

    def __init__(self, whole, rows_out=None, rows_in=None):
        self.rows_out, self.rows_in, self.pattern = rows_out, rows_in, whole
        n = whole.shape[0]
        every = np.ones(n, bool)
        out, into = (every if rows is None else rows for rows in (rows_out, rows_in))
        self.square = np.array_equal(out, into)
        if not (out.all() and into.all()):
            kept = np.repeat(out, np.diff(whole.indptr)) & into[whole.indices]
            before = np.concatenate([[0], np.cumsum(kept)]).astype(whole.indptr.dtype)
            self.pattern = sp.csr_array((whole.data[kept], whole.indices[kept], before[whole.indptr]), shape=(n, n))

    @cached_property
    def transposed(self):
        """The transpose, rows_out x rows_in swapped; a csr_array with sorted columns."""
        found = self.pattern.T.tocsr()
        found.sort_indices()
        return found


def _feature_pointers(reader, header):
    pointers, nothing = reader.read("features/pointers_to_1"), np.empty(0, np.int32)
    check_csr(pointers, nothing, reader.entries["features/indices_1"].rows, header.num_features,
              f"{reader.path}: features")
    return pointers
