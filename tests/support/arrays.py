"""Assertions about arrays, which name the first place where one fails."""
import numpy as np


def assert_all(holds):
    """Assert that all of an array of conditions hold."""
    wrong = ~np.asarray(holds, bool)
    assert not wrong.any(), f"{_count(wrong)} do not hold"


def assert_none(values):
    """Assert that all numbers are 0, or all conditions false."""
    assert not np.any(values), f"{_count(values)} are not 0"


def assert_some(values):
    """Assert that a number is not 0, or a condition true."""
    assert np.any(values), f"all {np.size(values)} are 0"


def assert_differ(found, other):
    """Assert that two arrays differ in shape or in a number."""
    assert np.shape(found) != np.shape(other) or np.any(np.not_equal(found, other)), \
        f"all {np.size(found)} numbers are equal"


def are_equal(found, expected):
    """Return whether two arrays have the same shape and numbers."""
    return np.shape(found) == np.shape(expected) and not np.any(np.not_equal(found, expected))


def _count(values):
    """Return how many numbers are not 0, and the place of the first."""
    places = np.argwhere(values)
    return f"{len(places)} of {np.size(values)}, the first at {tuple(places[0].tolist())},"
