"""Arrays that a pass reads and writes between its waits, in products and in sums over ranks."""
import numpy as np
import pytest

from hpgcn.planning.counts.shapes import Shapes
from hpgcn.planning.counts.touches import LEAST, Touches, pass_turns
from hpgcn.strategies import Product

PRODUCT = Product(0, 8)


@pytest.fixture
def arrays():
    """Return three arrays of LEAST bytes without contents, by name."""
    device = Shapes()
    return {name: device.empty(LEAST, np.uint8) for name in "HZG"}


def turns_of(touches, arrays, waits, **how):
    """Return the waits, and (read, stored) of each array by segment, in units of LEAST."""
    turns, = pass_turns([touches], {id(each): name for name, each in arrays.items()},
                        lambda product: waits, **how)
    return [wait.ends for wait in turns.waits], [
        {each.key: (each.read // LEAST, each.stored // LEAST) for each in segment}
        for segment in turns.segments]


def test_a_sum_over_ranks_ends_a_segment(arrays):
    """An array that is read before and after it is written before, and read after it."""
    H, Z, _ = arrays.values()
    touches = Touches()
    touches.call((H,), Z)
    touches.call((Z,))
    touches.sum()
    touches.call((Z,), Z)
    touches.finish(Z)
    assert turns_of(touches, arrays, 1) == (
        [("sum",)], [{"H": (1, 0), "Z": (0, 1)}, {"Z": (1, 1)}])


@pytest.mark.parametrize("waits", [1, 2])
def test_rows_that_are_all_sent_are_not_read_after_the_first_wait(waits, arrays):
    H, Z, G = arrays.values()
    touches = Touches()
    touches.call((), H)
    touches.product(PRODUCT, (H,), Z)
    touches.call((Z,), G)
    touches.finish(G)
    ends, segments = turns_of(touches, arrays, waits, sends_own_rows=True)
    assert ends == [(8, False)] * waits
    assert segments == [{"H": (0, 0)}, *[{}] * (waits - 1), {"Z": (0, 0), "G": (0, 1)}]


def test_contents_of_a_part_end_with_those_of_the_whole(arrays):
    """A slice of an array that was overwritten from its begin is not read from before."""
    H, Z, _ = arrays.values()
    touches = Touches()
    touches.call((Z,))
    touches.sum()
    touches.call((H,), Z[:LEAST // 2])
    touches.call((Z[LEAST // 4:LEAST // 2],))
    touches.finish()
    _, segments = turns_of(touches, arrays, 1)
    assert segments[1]["Z"][0] == 0
