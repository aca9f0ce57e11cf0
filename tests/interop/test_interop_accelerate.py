"""Unmodified PyG models within `accelerate()`: replaced operations, and equal results."""
import contextlib
import gc
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from test_interop_torch import DOUBLE, csr, heads, normal  # noqa: E402

from hpgcn.interop.torch import (  # noqa: E402
    accelerate,
    attend,
    ops,
    spmm,
    torch_adjacency,
)

pytestmark = [pytest.mark.filterwarnings("ignore:Sparse"),
              pytest.mark.filterwarnings("ignore:Converting sparse tensor")]
N = 60


def outcomes(mode):
    """Return the number of calls by (function, outcome) that `accelerate()` counted."""
    found = {}
    for (name, _, _, outcome), count in mode.calls.items():
        found[name, outcome] = found.get((name, outcome), 0) + count
    return found


def step(function, *leaves):
    """Run `function` and its backward; return the result and the gradients of `leaves`."""
    for leaf in leaves:
        leaf.grad = None
    result = function()
    result.square().sum().backward()
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def assert_as_torch(function, *leaves, rtol=1e-5):
    """Compare a function within `accelerate()` with plain torch; return the counted outcomes."""
    expected = step(function, *leaves)
    with accelerate() as mode:
        found = step(function, *leaves)
    for ours, theirs in zip(found, expected, strict=True):
        if theirs.layout is torch.sparse_csr:
            ours, theirs = ours.values(), theirs.values()
        size = theirs.abs().max().item() if theirs.numel() else 0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=rtol * size)
    return outcomes(mode)


def adj_t(**options):
    """Return a random directed `adj_t` matrix of PyG with isolated vertices."""
    pyg = pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch_geometric")
    from torch_geometric.transforms import ToSparseTensor

    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, N - 5, (2, 6 * N), generator=generator)
    data = pyg.data.Data(edge_index=torch.unique(edges, dim=1), num_nodes=N)
    return ToSparseTensor(layout=torch.sparse_csr, **options)(data).adj_t.to(DOUBLE)


MODELS = {
    "gcn": (lambda nn: nn.GCN(13, 10, 3, 5), {("sparse.mm", "taken"): 3}),
    "gcn cached": (lambda nn: nn.GCN(13, 10, 2, 5, cached=True), {("sparse.mm", "taken"): 2}),
    "sage mean": (lambda nn: nn.GraphSAGE(13, 10, 2, 5), {("sparse.mm mean", "taken"): 2}),
    "sage max": (lambda nn: nn.GraphSAGE(13, 10, 2, 5, aggr="max"),
                 {("sparse.mm max", "taken"): 2}),
    "sage min": (lambda nn: nn.GraphSAGE(13, 10, 2, 5, aggr="min"),
                 {("sparse.mm min", "taken"): 2}),
    "gin": (lambda nn: nn.GIN(13, 10, 2, 5), {("sparse.mm", "taken"): 2}),
    "graph conv": (lambda nn: nn.GraphConv(13, 5), {("sparse.mm", "taken"): 1}),
    "sgc": (lambda nn: nn.SGConv(13, 5, K=3), {("sparse.mm", "taken"): 3}),
    "appnp": (lambda nn: nn.APPNP(4, 0.1), {("sparse.mm", "taken"): 4})}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(name):
    A = adj_t()
    assert A.layout is torch.sparse_csr
    make, taken = MODELS[name]
    torch.manual_seed(0)
    model = make(pytest.importorskip("torch_geometric.nn")).double()
    x = normal(N, 13)
    assert assert_as_torch(lambda: model(x, A), x, *model.parameters()) == taken
    with torch.no_grad():
        expected = model(x, A)
        with accelerate():
            torch.testing.assert_close(model(x, A), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["coo", "csc"])
def test_other_layouts_of_pyg(layout):
    nn = pytest.importorskip("torch_geometric.nn")
    A = getattr(adj_t(), f"to_sparse_{layout}")()
    x = normal(N, 13)
    conv = nn.GraphConv(13, 5).double()  # PyG converts COO to CSR
    assert assert_as_torch(lambda: conv(x, A), x) == {("sparse.mm", "taken"): 1}
    conv = nn.SAGEConv(13, 5).double()  # and divides sums by degrees if A is in CSC
    name = "sparse.mm mean" if layout == "coo" else "sparse.mm"
    assert assert_as_torch(lambda: conv(x, A), x) == {(name, "taken"): 1}


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("shape", [(7, 5), (300, 200), (4, 0), (0, 4), (1, 1)])
@pytest.mark.parametrize("ones", [False, True])
def test_reductions_with_gradients_of_both_operands(name, shape, ones):
    A = csr(shape, DOUBLE)
    if ones:
        A.values().fill_(1)
    x = normal(shape[1], 5)
    label = ("sparse.mm" if name == "sum" else f"sparse.mm {name}", "taken")
    assert assert_as_torch(lambda: torch.sparse.mm(A, x, name), x, rtol=1e-12) == {label: 1}
    assert assert_as_torch(lambda: torch.sparse.mm(A, x, reduce=name), x, rtol=1e-12) == {label: 1}
    if 0 not in shape:  # torch gives no gradient of an empty matrix
        A.requires_grad_()
        assert assert_as_torch(lambda: torch.sparse.mm(A, x, name), x, A, rtol=1e-12) == {label: 1}


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_of_equals_the_first_gets_the_gradient(reduce):
    ones = torch.ones(5, dtype=DOUBLE)
    A = torch.sparse_csr_tensor([0, 3, 5], [0, 1, 2, 2, 0], ones, size=(2, 3))
    x = torch.ones(3, 2, dtype=DOUBLE, requires_grad=True)
    assert assert_as_torch(lambda: torch.sparse.mm(A, x, reduce), x, rtol=0)
    assert x.grad.tolist() == [[2, 2], [0, 0], [2, 2]]


def test_every_word_for_a_product():
    A = csr((7, 5), DOUBLE)
    x = normal(5, 4)
    for function, label in ((lambda: torch.mm(A, x), "mm"), (lambda: A.mm(x), "mm"),
                            (lambda: torch.matmul(A, x), "matmul"), (lambda: A @ x, "matmul"),
                            (lambda: A.matmul(x), "matmul"), (lambda: torch.spmm(A, x), "mm"),
                            (lambda: A @ x[:, 0], "matmul"), (lambda: torch.mv(A, x[:, 0]), "mv"),
                            (lambda: A @ x[:, ::2], "matmul"),
                            (lambda: torch.sparse.mm(A, x.T.contiguous().T), "sparse.mm")):
        assert assert_as_torch(function, x, rtol=1e-12) == {(label, "taken"): 1}


def test_half_precision_and_narrow_indices():
    for dtype in (torch.bfloat16, torch.float16):
        A = csr(dtype=dtype)
        x = normal(5, 4, dtype=dtype)
        taken = assert_as_torch(lambda A=A, x=x: torch.sparse.mm(A, x, "sum"), x, rtol=2e-2)
        assert taken == {("sparse.mm", "taken"): 1}
    A = csr(index=torch.int32)
    x = normal(5, 4, dtype=torch.float32)
    assert assert_as_torch(lambda: A @ x, x) == {("matmul", "taken"): 1}


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_autocast_and_16_bits_beside_float32(autocast, reduce):
    """PyTorch computes neither: its sparse products need float32 or float64."""
    A = csr(dtype=torch.float32).requires_grad_()
    x = normal(5, 4, dtype=torch.float32 if autocast else torch.bfloat16)
    expected = step(lambda: torch.sparse.mm(A, x.float(), reduce), x, A)
    with accelerate() as mode, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y, dx, dA = step(lambda: torch.sparse.mm(A, x, reduce), x, A)
    assert (y.dtype, dx.dtype, dA.dtype) == (torch.bfloat16, x.dtype, torch.float32)
    for ours, theirs in zip((y, dx, dA.values()), (*expected[:2], expected[2].values())):
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=3e-2, atol=5e-2)
    assert {outcome for *_, outcome in mode.calls} == {"taken"}


@pytest.mark.parametrize("layer", ["GATConv", "TransformerConv", "SAGEConv"])
def test_layers_that_gather_messages_are_told_so(layer):
    """The report advises adj_t only for layers that then multiply by it."""
    conv = getattr(pytest.importorskip("torch_geometric.nn"), layer)(13, 5)
    x, A = torch.rand(N, 13), adj_t().float()
    edges = A.to_sparse_coo().coalesce().indices().flip(0)
    for operand in (edges, A):
        with warnings.catch_warnings(), accelerate() as mode:
            warnings.simplefilter("ignore")
            conv(x, operand)
        if layer == "SAGEConv":
            assert ("pass adj_t" in mode.report()) == (operand is edges)
        else:
            assert f"{layer} gathers the messages of edges" in mode.report()
            assert "pass adj_t" not in mode.report() and set(mode.gathers) == {layer}


def test_what_is_left_to_torch_and_why():
    A = csr(dtype=DOUBLE)
    x = normal(5, 4)
    for function, name, why in (
            (lambda: torch.addmm(normal(7, 4, grad=False), A, x), "addmm", "a sum with a product"),
            (lambda: A.to_sparse_coo() @ x, "matmul", "A is sparse_coo, not sparse_csr"),
            (lambda: torch.mm(A, mat2=x), "mm", "arguments mat2"),
            (lambda: normal(3, 7, grad=False) @ A @ x, "matmul",
             "the sparse matrix is on the right"),
            (lambda: (A @ A.t()).to_dense() @ A.to_dense() @ x, "matmul", "both are sparse")):
        assert assert_as_torch(function, x, rtol=1e-12) == {(name, why): 1}


def test_errors_are_those_of_torch():
    A = csr()
    for x, reduce in ((torch.ones(4, 2), "sum"), (torch.ones(5, 2, dtype=DOUBLE), "sum"),
                      (torch.ones(5, 2), "product")):
        with pytest.raises(RuntimeError) as expected:
            torch.sparse.mm(A, x, reduce)
        with accelerate() as mode, pytest.raises(RuntimeError) as found:
            torch.sparse.mm(A, x, reduce)
        assert str(found.value) == str(expected.value) and "taken" not in mode.report()


@pytest.mark.parametrize("function, why", [
    (lambda A, x: x + 1, "no sparse products"),  # like models that take edge_index
    (lambda A, x: A.to_sparse_coo() @ x, "A is sparse_coo, not sparse_csr"), (None, None),
    (lambda A, x: A @ x, None)])
def test_a_mode_that_took_nothing_warns_of_the_way_out(recwarn, function, why):
    A, x = csr(dtype=DOUBLE), normal(5, 4)
    with contextlib.suppress(TypeError), accelerate():
        function(A, x)
    said = [str(each.message) for each in recwarn if "accelerate()" in str(each.message)]
    assert len(said) == (why is not None)
    for text in said:
        assert f"replaced no product ({why}): " in text and "ToSparseTensor(layout=" in text


def test_the_report_and_the_end_of_the_mode(monkeypatch):
    seen = []
    monkeypatch.setattr(ops, "pattern_of", lambda tensor: seen.append(1) or tensor.numpy())
    A = csr(dtype=DOUBLE)
    x = normal(5, 4)
    with accelerate() as mode:
        assert mode.report().startswith("no sparse products: PyG models use sparse")
        y = A @ (A.t() @ (A @ x))
        torch.addmm(y, A, x)
        _ = x @ x.T
    assert mode.report().splitlines() == [
        "calls  function  A    x    outcome",
        "    2  matmul    7x5  5x4  taken",
        "    1  matmul    5x7  7x4  taken",
        "    1  addmm     7x5  5x4  a sum with a product"]
    before = len(seen)
    y.sum().backward()
    assert len(seen) > before  # the backward runs on our kernels, wherever it is called
    before = len(seen)
    (A @ x).sum().backward()
    assert len(seen) == before


def test_one_transpose_of_a_matrix_that_lives(monkeypatch):
    made = []
    transpose = torch_adjacency.TensorPattern.transpose
    monkeypatch.setattr(torch_adjacency.TensorPattern, "transpose",
                        lambda self: made.append(self.transposed is None) or transpose(self))
    A = csr(dtype=DOUBLE)
    x = normal(5, 4)
    with accelerate():
        for _ in range(3):
            for reduce in ("sum", "mean", "max"):
                torch.sparse.mm(A, x, reduce).sum().backward()
        with torch.no_grad():
            torch.sparse.mm(csr(dtype=DOUBLE), x)
    assert sum(made) == 1
    pattern = weakref.ref(torch_adjacency.adjacency_of(A)[0].pattern)
    del A
    gc.collect()
    assert pattern() is None


def test_what_inference_leaves_serves_training():
    for reduce in ("sum", "mean", "max"):
        A = csr(dtype=DOUBLE)
        x = normal(5, 4)
        with torch.inference_mode(), accelerate():
            expected = torch.sparse.mm(A, x, reduce)
            torch.sparse.mm(A.detach().to_sparse_csc(), x)
        assert assert_as_torch(lambda A=A, x=x, reduce=reduce: torch.sparse.mm(A, x, reduce), x,
                               rtol=1e-12)
        torch.testing.assert_close(torch.sparse.mm(A, x, reduce), expected)


def test_compiled_models_break_their_graph_at_sparse_tensors():
    A = csr((5, 5), DOUBLE)
    x = normal(5, 4)
    compiled = torch.compile(lambda A, x: torch.relu(A @ x), backend="eager")
    assert assert_as_torch(lambda: compiled(A, x), x, rtol=1e-12) == {("matmul", "taken"): 1}
    x, *given = heads(5, 5)
    for function in (spmm, lambda A, x: attend(A, x, *given)):
        compiled = torch.compile(lambda A, x, function=function: torch.relu(function(A, x)),
                                 backend="eager")
        torch.testing.assert_close(compiled(A, x), torch.relu(function(A, x)))


def test_training_gives_the_same_bits_twice():
    nn = pytest.importorskip("torch_geometric.nn")
    A = adj_t()
    x = normal(N, 13, grad=False)

    def trained():
        torch.manual_seed(0)
        model = nn.GraphSAGE(13, 10, 2, 5, dropout=0.5).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            with accelerate():
                model(x, A).square().sum().backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in model.parameters()]

    assert all(torch.equal(*pair) for pair in zip(trained(), trained()))
