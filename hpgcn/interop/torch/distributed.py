"""Train any PyTorch model on distributed rows, by a module that computes A H exactly.

Each rank holds whole rows of every matrix and all parameters. Each rank computes
row-by-row parts of a model on its own rows. In products with A and in sums over rows
(loss, gradients) the ranks take part together. So the number of ranks and the strategy
change nothing but rounding.
"""
from __future__ import annotations

import os
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch

from hpgcn import kernels
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.interop.tensors import csr_tensor
from hpgcn.interop.torch.views import queued, rows_of, tensor_of
from hpgcn.parallel.row_redistribution import RowRedistribution
from hpgcn.training.propagator import Sent, propagation

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from hpgcn.graphs.graph_source import GraphSource


class Propagation(torch.nn.Module):
    """The product with the normalized adjacency of a graph, as a module.

    All ranks of `comm` create it together.

    Parameters
    ----------
    graph, comm, strategy, **options
        As for `hpgcn.propagation`. Where a strategy divides columns among ranks, rows are
        exchanged for columns around each product, so that a model sees whole rows.
    seed : int
        Seed of `dropout`.

    Attributes
    ----------
    rows : (m,) int64 tensor
        ORIGINAL numbers of this rank's rows: each row is on one rank.
    features : (m, f) tensor, sparse CSR where the graph's are sparse; or None
    labels : (m,) int64 or (m, t) tensor, float64 if they are targets; or None
    masks : dict of (m,) bool tensors under "train", "val" and "test", or None
    header : hpgcn.graphs.graph.Header
        Sizes of the whole graph: num_nodes, num_features, num_classes..

    Examples
    --------
    >>> import torch
    >>> from hpgcn.interop.torch import Propagation
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> product = Propagation(graph, norm="row")
    >>> product(torch.tensor([[1.0], [3.0]]))
    tensor([[2.],
            [2.]])
    """

    rows: torch.Tensor
    features: torch.Tensor | None
    labels: torch.Tensor | None
    masks: dict[str, torch.Tensor] | None

    def __init__(self, graph: GraphSource | str | os.PathLike[str],
                 comm: Comm | None = None, strategy: str = Config.strategy, *, seed: int = 0,
                 **options: Any) -> None:
        super().__init__()
        self.product = propagation(graph, comm, strategy=strategy, **options)
        self.seed = seed
        self._calls = 0
        self._agreed = set()

        # rows that ranks share are divided among them
        self._shares = RowRedistribution(self.product.strategy.layout, self.product.comm)
        own_rows = self._shares.own
        self._vertex = np.ascontiguousarray(self.product.rows[own_rows])
        self.rows = torch.from_numpy(self._vertex.copy())

        self.header = self.product.header
        self.features = as_tensor(self.product.features, own_rows)
        self.labels = as_tensor(self.product.labels, own_rows)
        masks = self.product.masks
        self.masks = masks and {key: as_tensor(mask, own_rows) for key, mask in masks.items()}

    def forward(self, H: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of A H.

        Autograd can differentiate it any number of times.

        Parameters
        ----------
        H : (m, f) tensor
            This rank's rows, of the dtype that it was made for; f is the same on all
            ranks.
        """
        return _Product.apply(H, self, False)

    def transposed(self, H: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of A^T H."""
        return _Product.apply(H, self, True)

    def dropout(self, H: torch.Tensor, p: float = 0.5) -> torch.Tensor:
        """Apply dropout to H, (m, f), with probability p.

        In training, entries are set to 0 with probability p, and the rest is scaled up.
        The draws depend only on the seed, the number of the call, the vertex and the
        column. So they are the same on any number of ranks, unlike those of
        torch.nn.functional.dropout. All ranks call it equally often. p is rounded to a
        multiple of 1/65536.
        """
        if not 0 <= p < 1:
            raise UsageError(f"dropout = {p}: expected a number of at least 0, below 1")
        if not self.training or not p:
            return H
        self._calls += 1
        return _Dropout.apply(H, self._vertex, {"seed": self.seed, "epoch": self._calls, "layer": 0,
                                                "p": p})

    def sum_loss(self, value: torch.Tensor | float) -> torch.Tensor:
        """Return the sum of a tensor over all ranks, on every rank.

        In the backward pass each rank's own value gets the gradient of the sum;
        `all_reduce_gradients` adds the results. To get a mean over the rows of all
        ranks, divide two sums.
        """
        return _Sum.apply(torch.as_tensor(value), self.product.comm)

    def all_reduce_gradients(self, model: torch.nn.Module) -> None:
        """Sum the gradients of a model's parameters over all ranks, in one message.

        The gradients are changed in place.

        Ranks on which a parameter has no gradient contribute 0; without a gradient on
        any rank it stays None. All ranks call this together, after `backward`. The sums
        have the same bits on all ranks.

        Raises
        ------
        ConfigError, collective
            The models of two ranks have other parameters.
        """
        # ranks must have the same parameters; each list of shapes is compared once
        wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
        shapes = tuple((str(parameter.dtype), *parameter.shape) for parameter in wanted)
        comm = self.product.comm
        if shapes not in self._agreed:
            comm.assert_same({"parameters": shapes}, "model")
            self._agreed.add(shapes)

        # take the parameters that have a gradient on any rank
        counts = comm.sum([parameter.grad is not None for parameter in wanted])
        chosen = [parameter for parameter, count in zip(wanted, counts) if count]
        wide = any(parameter.dtype == torch.float64 for parameter in chosen)
        flat = torch.zeros(sum(parameter.numel() for parameter in chosen),
                           dtype=torch.float64 if wide else torch.float32)
        parts = flat.split([parameter.numel() for parameter in chosen])

        # pack, sum and unpack
        for parameter, part in zip(chosen, parts):
            if parameter.grad is not None:
                part.copy_(parameter.grad.to_dense().reshape(-1))
        comm.counters.phase = "weights"
        comm.allreduce(flat.numpy(), "weights")
        comm.counters.phase = "propagation"
        for parameter, part in zip(chosen, parts):
            parameter.grad = part.reshape(parameter.shape).to(parameter)

    def broadcast(self, model: torch.nn.Module) -> None:
        """Copy the parameters and buffers of a model from rank 0.

        All ranks get them, in place.
        """
        state = [*model.parameters(), *model.buffers()]
        of_first = self.product.comm.bcast([rows_of(each.cpu()) for each in state])
        with torch.no_grad():
            for own, given in zip(state, of_first):
                own.copy_(torch.from_numpy(given))

    @property
    def traffic(self) -> Sent:
        """Bytes and messages that this rank has sent in all products so far."""
        return self.product.traffic

    def close(self) -> None:
        """Free the MPI objects; all ranks call this together."""
        self._shares.close()
        self.product.close()

    def __enter__(self) -> Propagation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        if self.product.closes(error):
            self.close()

    def _multiply(self, H: torch.Tensor, transposed: bool) -> torch.Tensor:
        product = self.product

        # refuse other shapes and types
        if H.ndim != 2 or H.shape[0] != len(self.rows):
            raise UsageError(f"H has shape {tuple(H.shape)}, expected ({len(self.rows)}, f): one "
                             "row for each row that this rank owns")
        given = str(H.dtype).removeprefix("torch.")
        if given != product.dtype.name:
            raise UsageError(f"H has dtype {given}, but the product has {product.dtype.name}: "
                             f"Propagation(..., dtype={given!r})")

        # through the host, unless both are on a GPU
        device = product.comm.device
        multiply = product.backward if transposed else product.forward
        here = H.is_cuda and device.name == "cuda"  # else by way of the host
        like = H if here else torch.empty(0)
        with queued(like):
            mine = rows_of(H) if here else device.put(rows_of(H.cpu()))
            T = self._shares.to_rows(multiply(self._shares.to_columns(mine)), H.shape[1])
            return tensor_of(T if here else device.get(T), like).to(H.device)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, H: torch.Tensor, owner: Propagation, transposed: bool) -> torch.Tensor:
        ctx.owner, ctx.transposed = owner, transposed
        return owner._multiply(H, transposed)

    @staticmethod
    def backward(ctx: Any, G: torch.Tensor) -> tuple:
        return _Product.apply(G, ctx.owner, not ctx.transposed), None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, comm: Any) -> torch.Tensor:
        total = comm.sum(value.detach().cpu().double().numpy())
        return torch.as_tensor(total, dtype=value.dtype, device=value.device).reshape(value.shape)

    @staticmethod
    def backward(ctx: Any, G: torch.Tensor) -> tuple:
        return G, None


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, H: torch.Tensor, vertex: np.ndarray,
                options: dict[str, Any]) -> torch.Tensor:
        ctx.vertex, ctx.options = vertex, options
        dropped = kernels.cpu.dropout(rows_of(H.cpu()), vertex, **options)
        return torch.from_numpy(dropped).to(H.device)

    @staticmethod
    def backward(ctx: Any, G: torch.Tensor) -> tuple:
        return _Dropout.apply(G, ctx.vertex, ctx.options), None, None


def as_tensor(array: Any, rows: Any) -> torch.Tensor | None:
    """Return the rows `rows` of an array as a tensor in the same memory; None stays None.

    A SciPy CSR matrix becomes a sparse CSR tensor. An array that is read-only is
    copied.
    """
    if array is None:
        return None
    part = array[rows]
    if sp.issparse(part):
        return csr_tensor(torch, part, torch.from_numpy(part.data))
    return torch.from_numpy(part if part.flags.writeable else part.copy())
