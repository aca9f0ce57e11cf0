"""Forecast seconds of collectives equal a simulation of messages.

Replicas help as cagnet-2020 claims.
"""
import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.parallel.counts import Collective
from hpgcn.parallel.layout import BlockLayout
from hpgcn.parallel.pattern import Pattern
from hpgcn.planning.seconds.message_seconds import collective_seconds, measured_rate, of_calls
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.strategies import STRATEGIES, Product, RankGrid
from hpgcn.strategies.one_d import StagedTraffic

LATENCY, BYTE = 3.0, 0.5


def tree(ranks, size, parts):
    """Return the finish time of each rank in a broadcast by a binomial tree.

    With `parts` it is a scatter.
    """
    done = np.zeros(ranks)
    width = 1 << (ranks - 1).bit_length()

    def send(root, width):
        while width > 1:
            width //= 2
            if root + width < ranks:
                share = min(width, ranks - root - width) / ranks if parts else 1
                done[root] += LATENCY + BYTE * size * share  # messages are sent one by one
                done[root + width] = done[root]
                send(root + width, width)

    send(0, width)
    return done


def ring(done, size):
    """Return the finish time of each rank in a ring allgather that starts at times `done`."""
    ranks = done.size
    for _ in range(ranks - 1):
        done = np.maximum(done, np.roll(done, 1)) + LATENCY + BYTE * size / ranks
    return done


def exchanged(ranks, steps):
    """Return the finish time of each rank after pairwise exchanges.

    `steps` has (distance, bytes) of each.
    """
    done = np.zeros(ranks)
    for distance, size in steps:
        done = np.maximum(done, done[np.arange(ranks) ^ distance]) + LATENCY + BYTE * size
    return done


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize("size", [0.25, 1000.0])
def test_a_broadcast_takes_as_long_as_its_messages(ranks, size):
    short = tree(ranks, size, parts=False).max()
    long = ring(tree(ranks, size, parts=True), size).max()
    assert collective_seconds("broadcast", ranks, size, LATENCY, BYTE) == pytest.approx(
        min(short, long))
    assert (ranks > 5 and size > 1) <= (long < short)


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize("size", [0.25, 1000.0])
def test_sums_take_as_long_as_their_messages(ranks, size):
    depth = ranks.bit_length() - 1
    short = exchanged(ranks, [(1 << step, size) for step in range(depth)]).max()
    halves = [(1 << step, size / 2**(1 + step)) for step in range(depth)]
    long = exchanged(ranks, halves + halves[::-1]).max()
    for kind in ("allreduce", "reduce"):  # a tree takes as long as doubling
        assert collective_seconds(kind, ranks, size, LATENCY, BYTE) == pytest.approx(
            min(short, long))
    assert tree(ranks, size, parts=False).max() == short


def test_what_is_not_sent_takes_no_time():
    assert collective_seconds("broadcast", 4, [0, 8], LATENCY, BYTE).tolist() == [0, 2 * 7]
    assert collective_seconds("broadcast", 1, [8], LATENCY, BYTE).tolist() == [0]


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_measured_rate_gives_the_measured_seconds(ranks):
    seconds = collective_seconds("broadcast", ranks, 1e6, 1e-5, 1 / 3e9)
    assert measured_rate("broadcast", ranks, 1e6, 1e-5, seconds) == pytest.approx(3e9)


def seconds_of(traffic, machine):
    """Return the seconds that each rank needs for the messages of a product."""
    calls = [(call, 1) for call in traffic.calls(Product(layer=0, width=64), 4)]
    return of_calls(calls, traffic.num_ranks, None, machine.network, machine.network,
                    floor=True)[0]


@pytest.mark.parametrize("ranks", [16, 36, 64, 100])
@pytest.mark.parametrize("symmetric", [True, False])
def test_replicas_save_broadcasts(ranks, symmetric):
    # cagnet-2020, Figure 2: P = 16 to 100, c = 1, 2, 4; each broadcast and its bytes fall with c
    slow = Machine(latency_s=1e-5, network_bytes_per_s=1e8)
    n = 100 * ranks
    layout = BlockLayout(np.arange(0, n + 1, 100), 1, 0)
    found = []
    for c in (1, 2, 4):
        traffic = StagedTraffic((layout, layout), symmetric, (ranks // c, c))
        seconds = seconds_of(traffic, slow)
        if ranks % c**2 == 0:
            np.testing.assert_allclose(seconds, seconds[0])  # P / c^2 broadcasts each
        found.append(seconds.max())
    assert found[0] > 1.3 * found[1] > 1.3**2 * found[2]


@pytest.mark.parametrize("name, shape", [
    ("1d", (4,)), ("1.5d", (4, 2)), ("2d", (2, 3)), ("3d", (2, 3, 4))])
@pytest.mark.parametrize("symmetric", [True, False])
def test_ranks_wait_for_the_collectives_whose_bytes_are_counted(name, shape, symmetric):
    blocks, columns = STRATEGIES[name].block_grid(shape)
    layout = BlockLayout(np.arange(0, 5 * blocks + 1, 5), columns, 0)
    A = sp.random_array((5 * blocks,) * 2, density=0.3, rng=1, format="csr") != 0
    pattern = Pattern(sp.csr_array(A + A.T if symmetric else A), symmetric, weighted=False)
    traffic = STRATEGIES[name].Plan.of(pattern, RankGrid(shape, layout, {})).traffic
    for backward in (False, True):
        calls = list(traffic.calls(Product(layer=0, width=7, backward=backward), 4))
        own = [call for call in calls if isinstance(call, Collective)]
        assert len(own) == {"2d": 2, "3d": 2}.get(name, 1)
        for call in own:
            axis = call.bytes.shape.index(call.ranks)  # along which ranks send to each other
            assert call.ranks > call.sizes.shape[1 + axis] == 1
            np.testing.assert_array_equal(call.bytes.sum(axis, keepdims=True),
                                          (call.ranks - 1) * call.sizes.sum(0))
