"""Check the contents of arguments of kernels: indices, row pointers and masks.

Facts about read-only arrays are found once. A check has the name of an array and all
arguments by name.
"""
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.masks import check_width

LARGE = 1 << 18  # integers that all threads check
_facts_of = {}  # (id of array, function): weak reference, result


def check_range(name: str, given: dict[str, Any], limit: int) -> None:
    _refuse_outside(name, given[name], limit)


def check_chosen(name: str, given: dict[str, Any], limit: int) -> None:
    _refuse_outside(f"{name} at rows", given[name][given["rows"]], limit)


def check_once(name: str, given: dict[str, Any], xp: ModuleType) -> None:
    if int(xp.bincount(given[name], minlength=1).max()) > 1:
        raise ValueError(f"{name} lists a row twice, expected each row at most once")


def check_bits(name: str, given: dict[str, Any], width: int) -> None:
    check_width(name, given[name], width)


def _refuse_outside(name: str, array: Array, limit: int) -> None:
    largest = _fact(_largest, array)
    if largest >= min(limit, 1 << 8 * array.itemsize - 1):  # a negative number counts as huge
        where = int(((array < 0) | (array >= limit)).argmax())
        raise ValueError(f"{name}[{where}] is {int(array.ravel()[where])}, expected 0..{limit - 1}")


def check_pointers(name: str, given: dict[str, Any], entries: int, covers: str) -> None:
    array = given[name]
    largest, rising = _fact(_largest, array), _fact(_rises, array)
    whole = not covers or (int(array[0]), int(array[-1])) == (0, entries)
    if not rising or largest > entries or not whole:
        bounds = "0 to" if covers else "0 or more to at most"
        raise ValueError(f"{name} does not rise from {bounds} {entries}, the length of indices")


def _fact(find: Callable, array: Array) -> int:
    """Return find(array); cache the result if the array is read-only."""
    if not frozen(array):
        return find(array)
    key = id(array), find
    held, fact = _facts_of.get(key, (None, None))
    if held is None or held() is not array:  # the id may be that of a freed array
        fact = find(array)
        _facts_of[key] = weakref.ref(array, lambda _: _facts_of.pop(key, None)), fact
    return fact


def _largest(array: Array) -> int:
    """Return the largest integer of an array; negative ones count as huge."""
    if array.size == 0:
        return -1
    numbers = array.view(f"u{array.itemsize}")
    if isinstance(array, np.ndarray) and array.size >= LARGE:
        from hpgcn.kernels.scan import largest  # late, as it starts the compiler

        return largest(numbers)
    return int(numbers.max())


def _rises(array: Array) -> bool:
    """Return whether no integer is smaller than the one before it."""
    return bool((array[1:] >= array[:-1]).all())


def frozen(array: Array) -> bool:
    """Return whether an array, and all that it is a view of, is read-only."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base
    return array is None or isinstance(array, bytes)
