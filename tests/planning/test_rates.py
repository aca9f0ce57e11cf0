"""Forecast seconds from measured kernels: table look-ups, reuse of rows, steps by hand."""
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all
from graphs import make

from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.answers.options import read_machine
from hpgcn.planning.counts.locality import ENTRY, Locality
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.kernel_rates import (
    DENSE_SIZES,
    NEEDED,
    PRODUCT_BYTES,
    PRODUCT_WIDTHS,
    ROW_BYTES,
    ROW_WIDTHS,
    Rates,
)
from hpgcn.planning.seconds.step_seconds import step_seconds

LIMITS = {"memory_bytes_per_s": 1e29, "gemm_float32_flops_per_s": 1e9,
          "gemm_float64_flops_per_s": 2.5e8}
# kernels of a step of gcn, sage and gat: of all others nothing is known
STEPS = ("activate", "activate dropout", "add", "apply_mask", "column_sum", "dropout", "inner",
         "softmax_cross_entropy", *NEEDED["rows"])


def held(rows=0.0, nonzero=0.0, row=0.0, dense=0.0, call=0.0, ranks=1, **kernels):
    """Return an output of `hpgcn bench machine` in which kernels take the same time at any size."""
    found = {name: np.full((len(ROW_BYTES), len(ROW_WIDTHS)), kernels.get(name, rows)).tolist()
             for name in STEPS}
    dense = np.full((len(DENSE_SIZES),) * 2, dense).tolist()
    entries = {name: np.full((2, len(ROW_WIDTHS)), 0.0).tolist() for name in NEEDED["entries"]}
    return {"ranks": ranks, "call_s": call, "rows": found, "entries": entries,
            "dense": {"rows": dense, "sums": dense},
            "products": np.full((len(PRODUCT_BYTES), len(PRODUCT_WIDTHS)), nonzero).tolist(),
            "product_rows": np.full((len(ROW_BYTES), len(PRODUCT_WIDTHS)), row).tolist()}


def machine_of(tmp_path, *rates, network=None):
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"limits": LIMITS, "rates": rates,
                                **({"network": network} if network else {})}))
    return read_machine(file)[0]


def counted(graph, ranks=1, strategy="p2p", **settings):
    config = Config(layers=2, hidden=4, prune=False, **settings)
    inputs = PlanInput(graph, config)
    found = [each for each in candidates(inputs, (ranks,), ("block",) if ranks > 1 else ())
             if each.strategy == strategy]
    return count_candidate(inputs, found[0]), config


def test_a_step_by_hand(tmp_path):
    """The seconds of a training step with two layers equal the sum of its products by hand."""
    graph = make(n=60)
    n, nnz = 60, graph.indices.size + 60 - int((graph.degrees()["loop"] > 0).sum())
    f, c = graph.header.num_features, graph.header.num_classes
    footprint, _ = counted(graph, input_dropout=0.5)

    def seconds(**rates):
        return step_seconds(machine_of(tmp_path, held(**rates)), footprint)[0]

    # f > 4: by W first, then A, forward and backward; so the second layer if 4 >= c
    products = 4
    assert seconds(nonzero=1.0) == pytest.approx(products * nnz)
    assert seconds(row=1.0) == pytest.approx(products * n)
    sizes = [(f, 4), (4, c)]
    small = [max(a, 8) * max(b, 8) for a, b in sizes]
    # x W and x^T g of each layer, g W^T of the second: those of less than 8 take as long
    assert seconds(dense=1.0) == pytest.approx(n * (2 * small[0] + 3 * small[1]))
    assert seconds(column_sum=1.0) == pytest.approx(2 * n)
    assert seconds(softmax_cross_entropy=1.0) == pytest.approx(n)
    assert seconds(**{"activate dropout": 1.0}) == pytest.approx(n)
    everything = seconds(nonzero=1.0, row=1.0, dense=1.0, column_sum=1.0)
    assert everything == pytest.approx(
        products * (nnz + n) + n * (2 * small[0] + 3 * small[1]) + 2 * n)
    assert seconds(call=1.0) == pytest.approx(round(seconds(call=1.0)))
    assert seconds(call=1.0) > products + 5


def test_double_numbers_take_longer(tmp_path):
    """With float64, memory traffic doubles and dense products take their measured time."""
    graph = make(n=60)
    single, _ = counted(graph)
    double, _ = counted(graph, dtype="float64")
    wide = held(dense=1.0)
    for table in (wide["rows"]["column_sum"],):
        for sizes in table:
            sizes[:] = [8e-9, 64e-9]  # seconds by width
    machine = machine_of(tmp_path, wide)
    no_dense = held()
    no_dense["rows"] = wide["rows"]
    sums = [step_seconds(machine_of(tmp_path, no_dense), each)[0] for each in (single, double)]
    c = graph.header.num_classes
    assert sums[0] == pytest.approx(60 * 1e-9 * (8 + max(8, c)))
    assert sums[1] == pytest.approx(60 * 1e-9 * (8 + max(8, 2 * c)))
    dense = [step_seconds(machine, each)[0] for each in (single, double)]
    assert dense[1] - sums[1] == pytest.approx(4 * (dense[0] - sums[0]))


def test_ranks_side_by_side_have_their_own_rates(tmp_path):
    graph = make(n=60)
    network = {"latency_s": 0.5, "bytes_per_s": 4.0, "hidden_share": 0.25}
    machine = machine_of(tmp_path, held(nonzero=3.0, ranks=2), held(nonzero=1.0), network=network)
    one, _ = counted(graph)
    two, _ = counted(graph, ranks=2)
    alone, _ = step_seconds(machine, one)
    compute, communication = step_seconds(machine, two)
    operands = [two.train_plans[product.layer].operands[product.backward].entries_read
                for product in two.steps.products(two.spec, two.levels)]
    assert sum(operands).sum() == alone
    # the sum of gradients is one message: two in the count of an allreduce
    seconds = 0.5 + 0.75 * sum(call.bytes[0, 0] for call, _ in two.prediction.collectives) / 4
    for (sent, messages, *_), times in two.prediction.exchanges:
        seconds += times * (0.5 * messages + 0.75 * sent / 4).max()
    assert (compute, communication) == pytest.approx((3 * sum(operands).max(), seconds))
    assert machine.rates_of(64).ranks == 2


def test_tables_are_read_off_straight_lines():
    rates = Rates.of(held(), "")
    falling = np.arange(1.0, 1 + len(ROW_BYTES))[:, None] * [8.0, 64.0]
    rates = replace(rates, rows={"add": falling.tolist()})
    assert rates.row_seconds("add", 36, ROW_BYTES[0]) == pytest.approx(36)
    assert rates.row_seconds("add", 128, ROW_BYTES[-1] * 9) == pytest.approx(128 * len(ROW_BYTES))
    middle = np.sqrt(ROW_BYTES[0] * ROW_BYTES[1])
    assert rates.row_seconds("add", 64, middle) == pytest.approx(1.5 * 64)
    assert rates.row_seconds("unknown", 8, 1) is None

    products = np.arange(1.0, 1 + len(PRODUCT_BYTES))[:, None] * np.array(PRODUCT_WIDTHS)
    rates = replace(rates, products=products.tolist())
    distances = np.array([0.5, 0.5]), np.array([PRODUCT_BYTES[0], PRODUCT_BYTES[2]])
    assert rates.product_seconds(10, 5, 32, distances) == pytest.approx(10 * 32 * 2)

    entries = {"attend": [[8.0, 64.0], [1.0, 1.0]]}
    rates = replace(rates, entries=entries)
    assert rates.entry_seconds("attend", 10, 5, 32) == pytest.approx(10 * 32 + 5)
    # what a row of x takes beyond the cache comes on top
    assert rates.entry_seconds("attend", 10, 5, 32, distances) == pytest.approx(
        10 * (32 + 32 * (0 + 2) / 2) + 5)


def reuse(matrix, row_bytes):
    """Return, for each repeated read of a row, the bytes of rows and entries read in between."""
    last, found, order = {}, [], []
    for v in matrix.indices:
        if v in last:
            between = order[last[v]:]
            found.append(len(set(between)) * row_bytes + len(between) * ENTRY)
        last[v] = len(order)
        order.append(v)
    return np.array(found)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["band", "random", "skewed"])
def test_locality_against_a_stack(kind):
    """The estimated bytes between two reads of a row are nearly exact.

    They are within a factor of two of an exact count.
    """
    n, row_bytes = 1500, 256
    rng = np.random.default_rng(3)
    if kind == "band":
        matrix = sp.diags_array([1.0] * 9, offsets=range(-4, 5), shape=(n, n)).tocsr()
    else:
        columns = rng.integers(0, n, 9 * n) if kind == "random" else (
            n * rng.random(9 * n) ** 3).astype(int)
        matrix = sp.csr_array((np.ones(9 * n), (np.repeat(np.arange(n), 9), columns)), (n, n))
        matrix.sum_duplicates()
    shares, sizes = Locality(matrix).distances(row_bytes)
    assert shares.sum() == pytest.approx(1)
    assert_all(shares >= 0)
    assert sizes[-1] == n * row_bytes
    measured = reuse(matrix, row_bytes)
    # first reads always miss the cache
    known = len(measured) / matrix.nnz
    for share in (0.3, 0.6):
        told = sizes[np.searchsorted(np.cumsum(shares), share * known)]
        right = np.quantile(measured, share)
        assert right / 2 <= told <= 2.2 * right + row_bytes, (share, right, told)


def test_order_of_rows_counts():
    n = 1 << 14
    path = sp.diags_array([1.0, 1.0, 1.0], offsets=(-1, 0, 1), shape=(n, n)).tocsr()
    shuffle = np.random.default_rng(0).permutation(n)
    far = path[shuffle][:, shuffle]
    for matrix, expected in ((path, 2 / 3), (far, 0)):  # one of three reads of a row is its first
        shares, sizes = Locality(matrix).distances(64)
        assert shares[sizes < 1024].sum() == pytest.approx(expected, abs=1e-3)


def changed(**values):
    return {**held(), **values}


@pytest.mark.parametrize("rates, said", [
    (3, "rates is int, expected a list"), ([3], "rates[0] is int, expected an object"),
    ([{}], "rates[0].ranks is missing"), ([changed(ranks=0)], "rates[0].ranks is 0"),
    ([changed(call_s=-1.0)], "rates[0].call_s is -1.0"),
    ([changed(call_s=float("nan"))], "rates[0].call_s is nan"),
    ([changed(products=[])], f"rates[0].products: expected a list of {len(PRODUCT_BYTES)}"),
    ([held(), changed(rows={})], "rates[1].rows.pack is missing"),
    ([changed(entries={})], "rates[0].entries.attend is missing"),
    ([changed(dense={"rows": []})], "rates[0].dense.sums is missing")])
def test_refused_rates(tmp_path, rates, said):
    file = tmp_path / "machine.json"
    file.write_text(json.dumps({"limits": LIMITS, "rates": rates}))
    with pytest.raises(DataError) as error:
        read_machine(file)
    assert str(file) in str(error.value) and said in str(error.value)
