"""PyTorch operators of hpgcn: values, derivatives, compilation, caching and refusals."""
import gc
import re
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from checkout import ROOT
from commands import python

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

from hpgcn.errors import DataError, MissingError, UsageError  # noqa: E402
from hpgcn.interop.torch import (  # noqa: E402  # noqa: E402
    Adjacency,
    attend,
    ops,
    spmm,
    torch_adjacency,
    torch_attention,
)
from hpgcn.kernels.host.threads import threshold  # noqa: E402
from hpgcn.runtime.advice import install_command  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
SHAPE = 7, 5
DOUBLE = torch.float64


def pattern(shape=SHAPE, density=0.4, seed=0):
    """Return a random CSR matrix (row pointers, columns, values) with some empty rows."""
    dense = sp.random_array(shape, density=density, rng=seed).toarray()
    dense[:1] = dense[-1:] = 0
    matrix = sp.csr_array(dense)
    return (torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices),
            torch.from_numpy(matrix.data))


def csr(shape=SHAPE, dtype=torch.float32, index=torch.int64, **options):
    indptr, indices, values = pattern(shape, **options)
    return torch.sparse_csr_tensor(indptr.to(index), indices.to(index), values.to(dtype), shape)


def normal(*shape, dtype=DOUBLE, grad=True, seed=0):
    made = torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_(grad)


def heads(rows, columns):
    """Return features and scores of four attention heads of width 3."""
    return normal(columns, 12), normal(rows, 4, seed=1), normal(columns, 4, seed=2)


def learning(shape=SHAPE):
    indptr, indices, values = pattern(shape)
    return Adjacency(indptr, indices, values.requires_grad_(), shape)


def first(arrays, transposes=True):
    """Return the arguments of `hpgcn::extreme` that describe the sparse matrix `arrays`."""
    indptr, indices, values, _, indptr_t, indices_t, _, order = arrays.arrays(transposes)
    return indptr, indices, values, indptr_t, indices_t, order


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [SHAPE, (5, 7), (0, 3), (3, 0), (300, 200)])
def test_products_and_gradients_are_those_of_the_dense_matrix(shape, dtype, index):
    A = csr(shape, dtype, index)
    dense = A.to_dense().double()
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
    for transposed, matrix in ((False, dense), (True, dense.T)):
        x = normal(matrix.shape[1], 6, dtype=dtype)
        y = spmm(A, x, transposed=transposed)
        G = normal(*y.shape, dtype=dtype, grad=False, seed=1)
        y.backward(G)
        assert y.dtype is dtype and x.grad.dtype is dtype and y.is_contiguous()
        for found, expected in ((y, matrix @ x.detach().double()), (x.grad, matrix.T @ G.double())):
            size = expected.abs().max().item() if expected.numel() else 0
            assert found.shape == expected.shape
            torch.testing.assert_close(found.detach().double(), expected, rtol=0,
                                       atol=tolerance * (1 + size))


def test_a_vector_strided_rows_and_csc():
    A = csr(dtype=DOUBLE)
    dense = A.to_dense()
    x = normal(5, 8, grad=False)
    torch.testing.assert_close(spmm(A, x[:, 3]), dense @ x[:, 3])
    torch.testing.assert_close(spmm(A, x[:, ::2]), dense @ x[:, ::2])
    torch.testing.assert_close(spmm(A, normal(8, 5, grad=False).T), dense @ normal(8, 5).detach().T)
    torch.testing.assert_close(spmm(A.to_sparse_csc(), x), dense @ x)
    y = normal(7, 3, grad=False)
    torch.testing.assert_close(spmm(A.t(), y), dense.T @ y)
    torch.testing.assert_close(spmm(A, y, transposed=True), dense.T @ y)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_first_and_second_derivatives_of_products(mean, transposed):
    A = learning()
    A = A.averaging(DOUBLE) if mean else A
    x = normal(SHAPE[0 if transposed else 1], 3)

    def function(values, x):
        return spmm(A.with_values(values), x, transposed=transposed)

    assert torch.autograd.gradcheck(function, (A.values, x))
    assert torch.autograd.gradgradcheck(function, (A.values, x))
    constant = A.with_values(A.values.detach())
    assert torch.autograd.gradgradcheck(lambda x: spmm(constant, x, transposed=transposed), (x,))


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_derivatives_of_attention(p):
    A = learning()
    given = heads(7, 5)
    assert torch.autograd.gradcheck(lambda *given: attend(A, *given, p=p, seed=3), given)
    result = attend(A, *given, p=p)
    gradient, = torch.autograd.grad((result**2).sum(), given[0], create_graph=True)
    with pytest.raises(UsageError, match="attend has no second derivative"):
        gradient.sum().backward()
    with torch.no_grad():
        assert torch.equal(attend(A, *given, p=p), result)


def test_attention_is_softmax_over_the_entries_of_a_row():
    A = csr(dtype=DOUBLE)
    x, left, right = heads(7, 5)
    score = torch.nn.functional.leaky_relu(left[:, None] + right[None], 0.3)
    there = A.to_dense() != 0
    alpha = torch.softmax(score.masked_fill(~there[..., None], -torch.inf), 1).nan_to_num()
    expected = torch.einsum("ijk,jkf->ikf", alpha, x.reshape(5, 4, 3)).reshape(7, 12)
    torch.testing.assert_close(attend(A, x, left, right, slope=0.3), expected)
    dropped = attend(A, x, left, right, p=0.5, seed=1)
    assert not torch.equal(dropped, attend(A, x, left, right, p=0.5, seed=2))
    assert torch.equal(dropped, attend(A, x, left, right, p=0.5, seed=1))


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_derivatives_of_extremes(reduce):
    A = learning()
    x = normal(5, 3)
    assert torch.autograd.gradcheck(
        lambda values, x: ops.extreme(A.with_values(values), x, reduce), (A.values, x))
    gradient, = torch.autograd.grad((ops.extreme(A, x, reduce)**2).sum(), x,
                                    create_graph=True)
    with pytest.raises(UsageError, match="max and min have no second derivative"):
        gradient.sum().backward()


def calls():
    """Return example calls of all operators by name: (function, arguments...)."""
    A = learning()
    x, y, given = normal(5, 4), normal(7, 4), heads(7, 5)
    indptr, indices, _, _, indptr_t, indices_t, _, order = A.arrays(True)
    return {
        "spmm": (ops._spmm, *A.arrays(True), x, False),
        "mean": (ops._spmm, *A.averaging(DOUBLE).arrays(True), y, True),
        "ones": (ops._spmm, *A.with_values(None).arrays(False), x.detach(), False),
        "dot": (ops._edge_dot, indptr, indices, None, indptr_t, indices_t, order, y, x),
        "max": (ops._extreme, *first(A), x, "max"),
        "min of ones": (ops._extreme, *first(A.with_values(None)), x, "min"),
        "attend": (torch_attention._attend, indptr, indices, indptr_t, indices_t, *given, 0.2, 0.0,
                   0, True),
        "attend, forward": (torch_attention._attend, indptr, indices, None, None,
                            *(each.detach() for each in given), 0.2, 0.5, 1, False)}


@pytest.mark.long
@pytest.mark.parametrize("name", ["spmm", *(
    pytest.param(name, marks=pytest.mark.long)
    for name in ("dot", "max", "attend", "mean", "ones", "min of ones", "attend, forward"))])
def test_operators_keep_the_rules_of_torch(name):
    operator, *arguments = calls()[name]
    assert set(torch.library.opcheck(operator, tuple(arguments)).values()) == {"SUCCESS"}


@pytest.mark.long
@pytest.mark.parametrize("backend", ["eager", "aot_eager",
                                     pytest.param("inductor", marks=pytest.mark.release)])
def test_whole_graphs_compile(backend):
    A = learning((6, 6))
    B = Adjacency(*pattern((6, 6)), (6, 6))
    sparse = csr((6, 6), DOUBLE)
    C = Adjacency(sparse.crow_indices(), sparse.col_indices(), sparse.values())

    def model(x, left, right):
        x = torch.relu(spmm(A, spmm(B, spmm(C, x))))
        return attend(B, x, left, right).sum()

    given = heads(6, 6)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    results = []
    for function in (model, compiled):
        loss = function(*given)
        results.append([loss, *torch.autograd.grad(loss, [*given, A.values])])
    torch.testing.assert_close(*results)


def test_views_are_not_copies():
    A = csr()
    held, _ = torch_adjacency.adjacency_of(A)
    assert held.values.data_ptr() == A.values().data_ptr()
    assert held.pattern.indptr.data_ptr() == A.crow_indices().data_ptr()
    assert held.pattern.indices.dtype is torch.int32  # narrowed once
    narrow = csr(index=torch.int32)
    held, _ = torch_adjacency.adjacency_of(narrow)
    assert held.pattern.indices.data_ptr() == narrow.col_indices().data_ptr()


def test_a_matrix_is_known_while_it_lives_and_forgotten_then():
    A = csr(dtype=DOUBLE)
    x = normal(5, 2)
    spmm(A, x).sum().backward()
    held, _ = torch_adjacency.adjacency_of(A)
    transpose = held.pattern.transpose()
    spmm(A, x).sum().backward()
    assert torch_adjacency.adjacency_of(A)[0] is held and held.pattern.transpose() is transpose

    before = len(torch_adjacency._known)
    array = weakref.ref(held)
    del held, A
    gc.collect()
    assert array() is None and len(torch_adjacency._known) == before - 1


def test_changes_in_place_are_seen():
    A = csr(dtype=DOUBLE)
    x = normal(5, 2)
    for change in (lambda: A.values().mul_(3), lambda: A.values().fill_(1),
                   A.values()[::2].neg_, A.requires_grad_,
                   lambda: A.requires_grad_(False)):
        change()
        dense = A.detach().to_dense()
        x.grad = None
        y = spmm(A, x)
        y.sum().backward()
        torch.testing.assert_close(y, dense @ x)
        torch.testing.assert_close(x.grad, dense.sum(0)[:, None].expand(5, 2))
    A.col_indices()[0] = 1 - A.col_indices()[0]
    torch.testing.assert_close(spmm(A, x), A.to_dense() @ x)


def test_gradients_of_a_sparse_tensor_and_of_what_it_is_made_of():
    indptr, indices, values = (tensor.long() if k < 2 else tensor
                               for k, tensor in enumerate(pattern()))
    x, G = normal(5, 3), normal(7, 3, grad=False)
    found = []
    for multiply in (torch.sparse.mm, spmm):
        leaf = torch.sparse_csr_tensor(indptr, indices, values, SHAPE).requires_grad_()
        multiply(leaf, x).backward(G)
        number = values.clone().requires_grad_()
        made = torch.sparse_csr_tensor(indptr, indices, 2 * number, SHAPE)
        multiply(made, x).backward(G)
        assert leaf.grad.layout is torch.sparse_csr
        found.append((leaf.grad.values(), number.grad))
    torch.testing.assert_close(*found)


def test_the_same_bits_with_one_thread_and_with_several():
    A = csr((3000, 2000), DOUBLE, density=0.01)
    x, *scores = heads(3000, 2000)
    learns = A.clone().requires_grad_()

    def run():
        held, _ = torch_adjacency.adjacency_of(A)
        results = spmm(A, x), spmm(learns, x), ops.extreme(held, x, "max"), attend(
            A, x, *scores, p=0.25, seed=5)
        wanted = x, scores[0], learns
        gradients = torch.autograd.grad([each.square().sum() for each in results], wanted)
        return [*results, *gradients[:2], gradients[2].values()]

    with threshold(0):
        several = run()
    with threshold(1 << 62):
        alone = run()
    for repeated in (alone, run()):
        assert all(torch.equal(*pair) for pair in zip(several, repeated))


@pytest.mark.parametrize(("change", "message"), [
    ({"indptr": [0, 2, 1, 2]}, "indptr must increase from 0 to 2"),
    ({"indptr": [0, 1, 2, 3]}, "indptr must increase from 0 to 2"),
    ({"indptr": [1, 1, 2, 2]}, "indptr must increase from 0 to 2"),
    ({"indices": [0, 3]}, r"indices has columns 0\.\.3, expected 0\.\.2"),
    ({"indices": [-1, 0]}, r"indices has columns -1\.\.0"),
    ({"indices": [0.0, 1.0]}, "indices has shape .* torch.float32"),
    ({"values": [1.0]}, r"values has shape \(1,\) .* expected \(2,\) floating"),
    ({"values": [1, 2]}, "values has shape .* torch.int64"),
    ({"indptr": torch.zeros(0, dtype=torch.int64), "shape": (-1, 3)}, "indptr has 0 numbers"),
    ({"shape": (2, 3)}, "indptr has 4 numbers, expected one more than the rows of shape")])
def test_arrays_that_fit_no_matrix_are_refused(change, message):
    arrays = {"indptr": [0, 1, 2, 2], "indices": [0, 2], "values": [1.0, 2.0]} | change
    shape = arrays.pop("shape", (3, 3))
    tensors = {name: torch.as_tensor(numbers) for name, numbers in arrays.items()}
    with pytest.raises((DataError, UsageError), match=message):
        Adjacency(**tensors, shape=shape)


@pytest.mark.parametrize(("A", "x", "message"), [
    (csr, torch.ones(4, 2), r"x has shape \(4, 2\), expected \(5, f\)"),
    (csr, torch.ones(5, 2, 2), r"x has shape \(5, 2, 2\)"),
    (csr, torch.ones(5, 2, dtype=DOUBLE), "x has dtype torch.float64, expected that of A"),
    (csr, torch.ones(5, 2, dtype=torch.int64), "x is torch.strided of torch.int64"),
    (csr, torch.eye(5).to_sparse(), "x is torch.sparse_coo"),
    (csr, torch.ones(5, 2, device="meta"), "on meta"),
    (lambda: torch.eye(5), torch.ones(5, 2), "A is torch.strided, expected a matrix in torch.sp"),
    (lambda: csr().to_sparse_coo(), torch.ones(5, 2), "A is torch.sparse_coo")])
def test_operands_that_do_not_fit_are_refused(A, x, message):
    with pytest.raises(UsageError, match=message):
        spmm(A(), x)


def test_refusals_of_attention():
    A = csr()
    x, left, right = torch.ones(5, 4), torch.ones(7, 2), torch.ones(5, 2)
    for given, message in (((x, right, right), r"x has shape \(5, 2\), expected \(7, f\)"),
                           ((x, left, right[:, :1]), r"col_score has shape \(5, 1\)"),
                           ((x[:, :3], left, right), "expected columns for each of 2 heads")):
        with pytest.raises(UsageError, match=message):
            attend(A, *given)
    with pytest.raises(UsageError, match="p = 1"):
        attend(A, x, left, right, p=1.0)
    with pytest.raises(UsageError, match=r"A is torch\.sparse_csc, exp"):
        attend(A.t(), left.repeat(1, 2), right, left)


def test_without_torch_the_extra_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    script = ("import sys; sys.path.insert(0, sys.argv[1])\n"
              "import hpgcn.interop.torch as t\n"
              "from hpgcn.errors import MissingError\n"
              "try: t.spmm\n"
              "except MissingError as error: print(error)\n")
    done = python("-c", script, tmp_path)
    assert not done.returncode, done.stderr
    assert done.stdout == ("hpgcn.interop.torch.spmm needs torch (extra torch): "
                           f"{install_command('torch')} (none here)\n")
    assert issubclass(MissingError, ImportError)


@pytest.mark.long
def test_examples_of_the_page_run():
    page = (ROOT / "docs" / "torch.md").read_text()
    names = {"np": np}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        if "torch_geometric" in block:
            pytest.importorskip("torch_geometric")
        exec(block, names)
