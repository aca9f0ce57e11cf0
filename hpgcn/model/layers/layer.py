"""Base class of the layers of all models."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpgcn import kernels
from hpgcn.kernels.host.record import ALL, derived, repeat
from hpgcn.parallel.csr import Csr

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model.model_features import Features
    from hpgcn.model.parameters import Parameters
    from hpgcn.model.spec import ModelSpec
    from hpgcn.parallel.receptive_field import Hop
    from hpgcn.parallel.shared_rows import SharedRows
    from hpgcn.parallel.workspace import Workspace


class Layer:
    """A layer that multiplies by A, for the rows and columns of this rank.

    Dropout, ReLU and the last bias belong to the model, not to the layer. A kind of
    layers is one class. Its class attributes and class methods declare its requirements:

    products : int
        Number of products with A in a layer: 1, or 2 for A^2. Classes whose number
        depends on the settings return it from `products_of(spec)`.
    norm : of hpgcn.graphs.normalization.NORMS, and self_loops : bool
        The matrix that the layer multiplies by: see NormalizedAdjacency there.
    any_norm : bool
        The layer can also multiply by a matrix of another norm.
    uses_attention : bool
        The layer computes the values of its matrix: it calls the `attention` of a
        strategy, and `forward` takes `epoch`, the number of a training step.
        `heads(spec, number)` returns the number of heads.
    uses_edge_features : bool
        The layer calls the `messages` of a strategy, which read features of edges; its
        spec has an `edge_width`.
    takes_AX : bool
        The first layer of a model can read an A X that is computed once before
        training, passed to `forward` as `AX`.
    reads_self : bool
        The layer also reads H itself in the rows that it computes. Both are kept if
        A X is computed once.
    activation : str
        The activation that the model applies after the layer, by default.
    supports_pruning : bool
        The layer can read the rows of one level of a receptive field and compute
        those of another.
    default_hops : int
        Default number of hops; 0: the layer has no such setting.
    after_mlp : bool
        The layers in the settings are linear ones; this layer comes after them.
    masks_result : bool
        Its `forward` takes `mask`, bits of the result to keep, where it multiplies by A
        last. Other numbers of Z may then be anything finite.
    bare : bool
        The layer computes A H W, in either order, and nothing else.
    supports_bf16 : bool
        The layer reads rows stored in 16 bits. Only kernels compute with them, in
        float32.
    one_matrix_deep : bool
        `times_W_transposed` is called only with matrices that multiply H or A H. It may then
        leave out columns of constant features.
    last_bias : str
        Name of the bias that the model adds after the layer; "" for none.
    shapes(spec, number)
        Shapes of the parameters by name; matrices first.

    A layer reads the rows of one level of a ReceptiveField and computes those of another: m
    and m' of this rank. `forward(H, out, keep)` returns Z (m', f') of H (m, f), dense
    or sparse, in `out` and without its last bias. It also returns backward(G, below,
    gradient), which writes the layer's parts of `gradient` (this rank's partial sums).
    From the gradient G of Z, backward returns that of the input before dropout and
    ReLU, or None unless `needs_gradient`. `below` are the bits that dropout and ReLU
    kept of the layer's input; None if they are applied elsewhere. What the backward
    reads is kept if `keep`; otherwise it may not be called.

    Arrays come from `buffer(name, rows, width)`, once for all steps. G may lie in
    "ping", and so may the gradient of H: a layer writes there last. `input_gradient`
    returns the array of H instead, if only this layer reads H. "scratch" and
    "scratch2" are free; what the backward reads gets a name of the layer's own
    (`kept`). The same code is run on shapes only, to compute its memory and work.

    Parameters
    ----------
    number : int
        Number of the layer, from 0.
    spec : hpgcn.model.ModelSpec
    parameters : hpgcn.model.Parameters
    hop : hpgcn.parallel.receptive_field.Hop
        Rows and maps of the layer.
    columns : hpgcn.parallel.shared_rows.SharedRows
    workspace : hpgcn.parallel.workspace.Workspace
    scale : float
        Factor by which dropout has multiplied the input.
    vertex : pair of (m,) and (m',) int64
        ORIGINAL numbers of the rows that the layer reads and computes, on the device;
        for layers that attend.
    """

    products = 1
    norm = "sym"
    self_loops = True
    any_norm = takes_AX = reads_self = after_mlp = uses_attention = supports_bf16 = False
    uses_edge_features = False
    row_numbers: Sequence[Array] = ()  # those of an Attention
    masks_result = bare = False
    supports_pruning = one_matrix_deep = True
    activation = "relu"
    default_hops = 0
    last_bias = "b"

    @classmethod
    def shapes(cls, spec: ModelSpec, number: int) -> dict[str, tuple]:
        """Return the shapes of a layer's parameters by name; see `Layer`."""
        fan_in, fan_out = spec.layers[number]
        return {"W": (fan_in, fan_out), "b": (fan_out,)}

    @classmethod
    def products_of(cls, spec: ModelSpec) -> int:
        """Return the number of products with A of one layer."""
        return cls.products

    @classmethod
    def inner_width(cls, spec: ModelSpec, number: int) -> int:
        """Return the width of H W, where W is the matrix next to the product with A."""
        return spec.widths[number + 1]

    def __init__(self, number: int, spec: ModelSpec, parameters: Parameters, hop: Hop,
                 columns: SharedRows, workspace: Workspace, scale: float, *,
                 vertex: Sequence = ()) -> None:
        self.number = number
        self.needs_gradient = number > 0 or spec.embedding > 0  # that of its input
        self.fan_in, self.fan_out = spec.layers[number]
        self.scale = scale

        # the source of work arrays
        self.parameter_arrays = parameters.arrays
        self.columns = columns
        self.buffer = workspace.buffer

        # the matrix, and rows before and after it
        self.A = hop.maps[0] if hop.maps else None
        self.hop = hop
        self.rows_in = hop.rows[0]
        self.rows_out = hop.rows[-1]

        # widths here, and the cheaper order of the two products
        self.inner = self.inner_width(spec, number)
        self.width_in, self.width_inner, self.width_out = map(
            columns.width, (self.fan_in, self.inner, self.fan_out))
        sparse = spec.sparse_features and number == 0
        self.precomputed = spec.precomputed and number == 0
        self.spmm_first = (self.precomputed
                           or spmm_first(self.fan_in, self.inner, sparse, hop.narrows))
        self.constant = self._constant_columns(spec)
        self.stores_AX = self.spmm_first and not (spec.drop_AX and number)

        self.overwrites_input = False  # set by the model
        self.clock = columns.comm.clock
        self.bias = self.last_bias and self.name_of(self.last_bias)
        self._self_part = None
        self.formed = None  # result of the next `times_W`, if a stage has formed it already

    def _constant_columns(self, spec: ModelSpec) -> int:
        """Return how many first columns the gradient of the input leaves out.

        They are features of the graph, which need none, if W comes first.
        """
        added = spec.residual and self.fan_in == self.fan_out  # to a gradient of all columns
        if (self.number or not spec.embedding or self.spmm_first or added
                or not self.one_matrix_deep):
            return 0
        own = self.columns.of(self.fan_in)
        return max(min(own.stop, spec.num_features) - own.start, 0)

    def prepare(self, features: Features, width: int) -> None:
        """Exchange the constant input Features, in slices of `width` columns.

        All ranks call this together, once.
        """

    def name_of(self, name: str) -> str:
        """Return the name of this layer's parameter in the model.

        For example, "W_a" of layer 0 is "W0_a".
        """
        return indexed(name, self.number)

    def parameter(self, name: str) -> Array:
        """Return the array of this layer's parameter `name`."""
        return self.parameter_arrays[self.name_of(name)]

    def kept(self, name: str, rows: int, width: int, keep: bool) -> Array:
        """Return an array for values that the backward reads.

        With `keep` the layer has the array to itself, else it is a work array.
        """
        return self.buffer(f"{name}{self.number}" if keep else "scratch", rows, width)

    def input_gradient(self, H: Array) -> Array:
        """Return the array for the gradient of the input H.

        It is H itself if nothing reads H after this layer's backward, else a work
        array. A layer writes the gradient last.
        """
        if self.overwrites_input:
            return H
        return self.buffer("ping", self.rows_in, self.width_in - self.constant)

    def self_rows(self, H: Array, name: str) -> Array:
        """Return the input rows that this layer computes.

        The result is H itself if all rows are computed, else a work array.
        """
        rows = self.hop.self_rows
        if rows is None:
            return H
        with self.clock("dense"):
            if isinstance(H, Csr):
                if self._self_part is None:
                    self._self_part = H.take_rows(rows)
                return self._self_part.with_data(H.data[self._self_part.edges])
            return kernels.backend(H).gather(H, rows, self.buffer(name, self.rows_out, H.shape[1]))

    def add_self(self, G: Array, to: Array) -> Array:
        """Add gradients of the computed rows to those of the input rows.

        This changes `to` in place. It is the transpose of `self_rows`.
        """
        rows = self.hop.self_rows
        with self.clock("dense"):
            if rows is None:
                return kernels.backend(G).add(G, to)
            return kernels.backend(G).scatter_add(G, rows, to)

    def times_W(self, H: Array, name: str, out: Array) -> Array:
        """Return H W, where W is this layer's matrix `name`."""
        if self.formed is not None:
            out, self.formed = self.formed, None
            return out
        with self.clock("dense", part="gemm"):
            return self.columns.linear(H, self.parameter(name), out)

    def gathered(self, G: Array, width: int) -> Array:
        """Return all columns of a gradient whose columns are distributed.

        The next call overwrites the result.
        """
        with self.clock("dense"):
            return self.columns.gathered(G, width)

    def weight_gradient(self, gradient: Parameters, name: str, H: Array,
                        G: Array) -> None:
        """Write H^T G to the gradient of the matrix `name`."""
        with self.clock("dense", part="gemm"):
            dW = gradient.arrays[self.name_of(name)]
            dW = dW[self.columns.of(dW.shape[0])]
            if isinstance(H, Csr):
                repeat(operator.setitem, dW, ALL, H.transposed_times(G))
            else:
                kernels.backend(G).matmul(H.T, G, dW)

    def times_W_transposed(self, G: Array, name: str, out: Array | str, scale: float = 1.0,
                           mask: Array | None = None) -> Array:
        """Return scale * G W^T for this layer's matrix `name`.

        `out` is an array or the name of a work array. With a `mask`, elements of the
        result without a bit in it are 0.
        """
        with self.clock("dense", part="gemm"):
            W = self.parameter(name)
            W = W[self.columns.of(W.shape[0])][self.constant:]
            if scale != 1:
                W = derived(operator.mul, W, W.dtype.type(scale))  # scale the smallest operand
            if isinstance(out, str):
                out = self.buffer(out, G.shape[0], W.shape[0])
            return kernels.backend(G).matmul(G, W.T, out, mask=mask)

    def masked(self, G: Array, mask: Array | None) -> Array:
        """Set the elements of G without a bit in `mask` to 0, in place.

        Without a mask nothing is changed.
        """
        if mask is None:
            return G
        with self.clock("dense", part="activation"):
            return kernels.backend(G).apply_mask(G, mask)


def indexed(name: str, number: int) -> str:
    """Return the name of a layer's parameter in the model: "W_a" of layer 0 is "W0_a"."""
    kind, *rest = name.split("_", 1)
    return "_".join([f"{kind}{number}", *rest])


def layer_of(name: str) -> int:
    """Return the layer number in the name of a model's parameter: 0 for "W0_a"."""
    return int("".join(filter(str.isdigit, name.partition("_")[0])))


def spmm_first(fan_in: int, fan_out: int, sparse: bool = False, narrows: bool = False) -> bool:
    """Return whether a layer multiplies by A before W.

    It does if the rows to exchange are narrower in that order. Sparse input is
    multiplied by W first, so that it stays sparse. At equal widths W is first too,
    unless the result has fewer rows than the input (`narrows`). Then W multiplies only
    those rows (mg-gcn-2021, section 4.4).
    """
    return fan_in < fan_out + narrows and not sparse
