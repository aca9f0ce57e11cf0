"""Buffers between the device that updates rows and the one that aggregates.

Both may be one device, or they are a GPU and the host.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.kernels.host.record import recording
from hpgcn.runtime.device import address

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.kernels import Array
    from hpgcn.runtime.device import Host


class Shared:
    """Buffers of `size` packed numbers on one device; nothing is copied.

    The device updates and aggregates. Rows are packed and unpacked in `near`, sent and
    received in `far`, (size,) arrays. With `eager` all batches are packed before the
    first is sent, because they are copied while others are sent.
    """

    eager = False

    def __init__(self, device: Host, size: int, dtype: DTypeLike) -> None:
        self.near = self.far = device.empty(size, dtype)

    def begin(self) -> None:
        """Wait, before a product, until the last received rows were copied."""

    def lower(self, near: np.ndarray, far: np.ndarray) -> Callable:
        """Copy a part of `near` to its place in `far`.

        Return a function that waits for the copy.
        """
        return self.begin

    def lift(self, near: np.ndarray, far: np.ndarray) -> None:
        """Copy a part of `far` to its place in `near`, before later work on that device."""

    def fetch(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of `array` on the aggregating device, once it is complete.

        If the array is there already, return the array itself.
        """
        return array

    def put_back(self, array: Any, out: Array) -> None:
        """Copy an array of the aggregating device to `out` on the updating device."""


class StagedBuffers(Shared):
    """Buffers on the GPU that updates, and in pinned host memory.

    Each direction has a stream of copies.
    """

    eager = True

    def __init__(self, device: Host, size: Any, dtype: DTypeLike) -> None:
        nbytes = size * np.dtype(dtype).itemsize
        self.device = device
        self.near = device.empty(size, dtype)
        self.far = device.pinned(max(nbytes, 1))[:nbytes].view(dtype)
        self.down, self.up, self.lifted = device.stream(), device.stream(), None

    def begin(self) -> None:
        if self.lifted is not None:
            self.lifted.synchronize()

    def lower(self, near: Any, far: Any) -> Any:
        if (active := recording()) is not None:
            active.refusal = "rows are copied between two devices"
        self.down.wait_event(self.device.event())
        self.device.copy(address(far), address(near), near.nbytes, self.down)
        return self.device.event(self.down).synchronize

    def lift(self, near: Any, far: Any) -> None:
        self.up.wait_event(self.device.event())  # that place is read no more
        self.device.copy(address(near), address(far), near.nbytes, self.up)
        self.lifted = self.device.event(self.up)
        self.device.wait(self.lifted)

    def fetch(self, array: Any) -> Any:
        return None if array is None else self.device.get(array)

    def put_back(self, array: Any, out: Array) -> None:
        out.set(array)
