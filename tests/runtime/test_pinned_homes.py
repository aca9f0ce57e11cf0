"""Homes in pinned memory take no more than they need together."""
from types import SimpleNamespace

import numpy as np

from hpgcn.runtime.disk.page_cache import PAGE, whole_pages
from hpgcn.runtime.gpu.homes import PinnedHomes
from hpgcn.runtime.places import Places


class Stream:
    def __init__(self):
        self.events = []

    def wait_event(self, event):
        self.events.append(event)


def pinned_homes():
    return PinnedHomes(SimpleNamespace(pinned=lambda size: np.empty(size, np.uint8), stream=Stream,
                                       event=lambda stream: tuple(stream.events)))


def test_memory_is_that_of_the_most_homes_at_a_time():
    """Homes of other sizes take the places of those that ended, without gaps, and keep contents."""
    rng = np.random.default_rng(1)
    homes, live, most = pinned_homes(), [], 0
    for number in range(400):
        while live and (rng.random() < 0.4 or len(live) > 20):
            home, value = live.pop(rng.integers(len(live)))
            np.testing.assert_array_equal(home.load((0, home.nbytes)), value)
            home.free()
        home = homes.take(int(rng.integers(1, 9 * PAGE)))
        home.store((0, home.nbytes), np.full(home.nbytes, number % 256, np.uint8))
        live.append((home, number % 256))
        most = max(most, sum(whole_pages(each.nbytes) for each, _ in live))
    assert homes.nbytes == most
    assert max(len(home.pieces) for home, _ in live) > 1


def test_a_home_waits_for_the_copies_of_those_before_it():
    homes = pinned_homes()
    first, second, third = (homes.take(PAGE) for _ in range(3))
    for home, event in (first, "a"), (second, "b"), (third, None):
        assert home.moved is None
        home.copied(event)
        home.free()
    assert homes.take(PAGE).moved == "a"
    assert homes.take(2 * PAGE).moved == "b"
    assert homes.take(PAGE).moved is None
    homes = pinned_homes()
    for event, home in enumerate([homes.take(PAGE) for _ in range(3)]):
        home.copied(event)
        home.free()
    assert sorted(homes.take(3 * PAGE).moved) == [0, 1, 2]


def test_places_are_the_largest_holes_if_none_is_large_enough():
    places = Places()
    taken = [places.take(size) for size in (3, 1, 2, 1)]
    for place, size in ((taken[0], 3), (taken[2], 2)):
        places.give(place, size)
    assert places.take_parts(2) == [(taken[2], 2)]
    places.give(taken[2], 2)
    assert places.take_parts(6) == [(taken[0], 3), (taken[2], 2), (7, 1)]
