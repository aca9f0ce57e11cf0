"""Places in a file or in memory."""
from hpgcn.runtime.places import Places


def test_holes_are_joined():
    places = Places()
    assert [places.take(size) for size in (4, 8, 4, 4)] == [0, 4, 12, 16]
    places.give(0, 4)
    places.give(12, 4)
    assert places.take(2) == 0
    places.give(4, 8)
    assert places.holes == {2: 14}
    places.give(16, 4)
    assert (places.end, places.holes) == (2, {})


def test_a_limit():
    """A place that does not fit is -1, until holes beside each other have room for it."""
    places = Places(limit=10)
    assert [places.take(size) for size in (4, 4, 4, 2)] == [0, 4, -1, 8]
    places.give(0, 4)
    assert places.take(5) == -1
    places.give(4, 4)
    assert places.take(5) == 0
