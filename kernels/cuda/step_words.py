"""Words of draws that change with each step, in GPU memory.

Repeated calls have fixed arguments. So kernels of a recorded step read these words from
memory, which a repetition updates first.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.host.record import recording

ROOM = 1024  # words of a recording, at most
AT_ONCE = 16  # words that a launch of set_words writes


class StepWords:
    """The words of a Recording, (ROOM,) uint32 in GPU memory."""

    def __init__(self) -> None:
        self.memory = current().xp.empty(ROOM, np.uint32)
        self.makers: list[tuple[Callable, tuple]] = []
        self.used = 0

    def add(self, function: Callable, step: int, arguments: tuple) -> Array:
        """Return the place of the words that function(step, *arguments) returns."""
        words = function(step, *arguments)
        self.makers.append((function, arguments))
        place = self.memory[self.used:self.used + len(words)]
        self.used += len(words)
        write(place, words)
        return place

    def update(self, step: int) -> None:
        """Queue a change of all words to those of a step."""
        words = [word for make, arguments in self.makers for word in make(step, *arguments)]
        write(self.memory, words)


def write(target: Array, words: list[int]) -> None:
    """Queue a change of the first words of `target`; they are arguments of kernels."""
    for first in range(0, len(words), AT_ONCE):
        some = [np.uint32(word) for word in words[first:first + AT_ONCE]]
        current().launch("elementwise", "set_words", len(some), target[first:], len(some),
                         *some, *[np.uint32(0)] * (AT_ONCE - len(some)))


def words_of_step(function: Callable, step: int, *arguments: Any) -> Array | None:
    """Return where kernels read the words function(step, *arguments) in GPU memory.

    Return None unless a step is recorded: then kernels take them as arguments.
    """
    active = recording()
    if active is None:
        return None
    active.reads_step(step)
    with active.paused():
        if active.words is None:
            active.words = StepWords()
            active.updates.append(active.words.update)
        return active.words.add(function, step, arguments)
