"""Run products with sparse tensors on hpgcn's kernels, in unchanged code such as PyG's."""
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hpgcn.interop.torch.ops import extreme, product
from hpgcn.interop.torch.torch_adjacency import LAYOUTS, adjacency_of
from hpgcn.interop.torch.views import WIDE
from hpgcn.runtime.launcher import launched_rank
from hpgcn.runtime.text_table import table

TAKEN = "taken"
WAY_OUT = ("PyG models use sparse products if you pass adj_t in torch.sparse_csr instead of "
           "edge_index: data = "
           "torch_geometric.transforms.ToSparseTensor(layout=torch.sparse_csr)(data); "
           "model(data.x, data.adj_t)")
GATHERED = ("{} gathers the messages of edges (index_select) instead of multiplying, with adj_t "
            "too; hpgcn.interop.torch.attend computes attention")
GATHERS = (torch.index_select, torch.Tensor.index_select)
PRODUCTS = {  # replaced functions, by their name here
    torch.sparse.mm: "sparse.mm", torch.mm: "mm", torch.Tensor.mm: "mm",
    torch.matmul: "matmul", torch.Tensor.matmul: "matmul", torch.mv: "mv", torch.Tensor.mv: "mv"}
ADDED = {torch.addmm: "addmm", torch.Tensor.addmm: "addmm", torch.sparse.addmm: "sparse.addmm",
         torch.addmv: "addmv", torch.Tensor.addmv: "addmv"}
REDUCES = ("sum", "mean", "max", "min", "amax", "amin")


class accelerate(TorchFunctionMode):  # noqa: N801 - used as `with accelerate():`
    """Run products A x with a sparse CSR tensor A on hpgcn's kernels.

    A context manager for this thread.

    These products are `torch.sparse.mm` (also with `reduce`), `mm`, `mv`, `matmul` and
    `@`, forward and backward. Results differ only by rounding; torch computes all other
    products. Each A is checked and transposed once and cached as long as it lives (see
    `adjacency_of`, also for changes in place). Models of PyG use these products if
    `adj_t` is a `torch.sparse_csr` tensor. x may have 16 bits if A has float32; under
    `torch.autocast` it is cast as for dense products. `report()` lists the products that
    ran on hpgcn's kernels, and the reasons for the others. A UserWarning is issued if
    there were none of the first kind.

    Attributes
    ----------
    calls : Counter
        Numbers of products by (function, shape of A, shape of x, outcome). The outcome
        is "taken", or the reason why not.
    gathers : Counter
        Numbers of calls of layers that gather rows and do not multiply, by name.

    Examples
    --------
    >>> import torch
    >>> from hpgcn.interop.torch import accelerate
    >>> A = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).to_sparse_csr()
    >>> with accelerate() as products:
    ...     y = A @ torch.tensor([[1.0], [2.0]])
    >>> y
    tensor([[3.],
            [2.]])
    >>> list(products.calls.items())
    [(('matmul', (2, 2), (2, 1), 'taken'), 1)]
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, tuple[int, ...], tuple[int, ...], str]] = Counter()
        self.gathers: Counter[str] = Counter()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        took = any(outcome == TAKEN for *_, outcome in self.calls)
        if kind is None and not took and not launched_rank():
            why = ", ".join(dict.fromkeys(outcome for *_, outcome in self.calls))
            warnings.warn(f"accelerate() replaced no product ({why or 'no sparse products'}): "
                          f"{self._advice()}", stacklevel=2)

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        name = PRODUCTS.get(function) or ADDED.get(function)
        if name is None:
            if function in GATHERS and not torch.compiler.is_compiling():
                self.gathers.update(filter(None, [_gathering_layer()]))
            return function(*args, **kwargs)
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
        if len(tensors) < 2 or all(each.layout is torch.strided for each in tensors):
            return function(*args, **kwargs)
        why, reduce = _refusal(function, args, kwargs)
        A, x = tensors[-2:] if function in ADDED else tensors[:2]
        label = f"{name} {reduce}" if reduce not in ("", "sum") else name
        self.calls[label, tuple(A.shape), tuple(x.shape), why or TAKEN] += 1
        return function(*args, **kwargs) if why else _multiply(A, x, reduce)

    def report(self) -> str:
        """Return a table as text: a line for each function and shapes, with the outcome."""
        if not self.calls:
            return f"no sparse products: {self._advice()}"
        rows = [(str(count), name, "x".join(map(str, A)), "x".join(map(str, x)), outcome)
                for (name, A, x, outcome), count in self.calls.items()]
        heading = ("calls", "function", "A", "x", "outcome")
        text = table([heading, *rows], left=(1, 2, 3, 4))
        return f"{text}\n{self._advice()}" if self.gathers else text

    def _advice(self) -> str:
        return GATHERED.format(" and ".join(self.gathers)) if self.gathers else WAY_OUT


def _gathering_layer() -> str:
    """Return the name of the PyG layer that calls, if it never multiplies; else ""."""
    frame = sys._getframe(2)
    while frame is not None:
        layer = frame.f_locals.get("self")
        if hasattr(layer, "message_and_aggregate"):
            return "" if getattr(layer, "fuse", True) else type(layer).__name__
        frame = frame.f_back
    return ""


@torch.compiler.disable  # sparse tensors cannot be traced
def _multiply(A: torch.Tensor, x: torch.Tensor, reduce: str) -> torch.Tensor:
    adjacency, flipped = adjacency_of(A)
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype is not torch.float64:
        x = x.to(torch.get_autocast_dtype(device))
    if reduce in ("", "sum"):
        return product(adjacency, x, flipped)
    if reduce == "mean":
        return product(adjacency.averaging(x.dtype), x)
    return extreme(adjacency, x, reduce.removeprefix("a"))


def _refusal(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[str, str]:
    """Return the reason why torch computes a product, "" for hpgcn, and its `reduce`."""
    if function in ADDED:
        return "a sum with a product", ""

    names = set(kwargs)
    reduce = ""
    if function is torch.sparse.mm:
        reduce = args[2] if len(args) == 3 else kwargs.get("reduce", "")
        names -= {"reduce"}

    if names or not 2 <= len(args) <= 3:
        return f"arguments {', '.join(sorted(names)) or 'missing'}", reduce

    A, x = args[:2]
    if not (isinstance(A, torch.Tensor) and isinstance(x, torch.Tensor)):
        return "not two tensors", reduce
    kinds = {type(A), type(x)} - {torch.Tensor, torch.nn.Parameter}
    if kinds:
        return f"a subclass of tensors, {kinds.pop().__name__}", reduce
    return _refused_tensors(A, x, reduce), reduce


def _refused_tensors(A: torch.Tensor, x: torch.Tensor, reduce: str) -> str:
    # the left operand must be sparse
    if A.layout is torch.strided:
        return "the sparse matrix is on the right"
    if A.layout not in LAYOUTS or A.dim() != 2:
        return f"A is {str(A.layout).removeprefix('torch.')}, not sparse_csr"

    if x.layout is not torch.strided:
        return "both are sparse"

    # checks that involve both operands
    wide = WIDE.get(A.dtype)
    if wide is None or wide is not WIDE.get(x.dtype):
        return f"A is {A.dtype}, x {x.dtype}".replace("torch.", "")
    if A.device != x.device or A.device.type not in ("cpu", "cuda"):
        return f"A is on {A.device}, x on {x.device}"
    if x.dim() not in (1, 2) or A.shape[1] != x.shape[0]:
        return "shapes do not fit"

    flipped = A.layout is torch.sparse_csc
    if flipped and A.requires_grad:
        return "the gradient of a sparse_csc"
    if reduce not in ("", "sum") and (flipped or x.dim() == 1 or reduce not in REDUCES):
        return f"reduce {reduce}" + (" of a sparse_csc" if flipped else "")
    return ""
