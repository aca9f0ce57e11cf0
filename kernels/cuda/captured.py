"""Repeat recorded calls of a GPU as CUDA graphs, which a launch starts without Python."""
from __future__ import annotations

import logging
from typing import Any

from hpgcn.kernels.cuda.gpu_device import current
from hpgcn.kernels.host.record import Call

LEAST = 2  # calls of a graph: one alone starts as fast without it
log = logging.getLogger("hpgcn")


class CapturedCalls:
    """A CUDA graph, the calls whose arrays it uses, and the pool of its temporary arrays."""

    def __init__(self, graph: Any, calls: list[Call], pool: Any) -> None:
        self.graph = graph
        self.calls = calls
        self.pool = pool

    def launch(self) -> None:
        """Start the calls of the graph on the current stream."""
        self.graph.launch()


def capture(calls: list[Call]) -> list[Call]:
    """Return calls that launch CUDA graphs, and those that cannot be captured as they are.

    Nothing is computed. A call cannot be captured if it waits for the GPU, or if CuPy
    refuses it as it refuses cuBLAS.
    """
    parts: list[Call] = []
    refused: Exception | None = None
    while calls:
        found, count, error = _capture(calls)
        refused = error or refused
        if found and count >= LEAST:
            parts.append(Call(found.launch, (), None, calls[0].label))
        else:
            parts += calls[:count]
        parts += calls[count:count + 1]
        calls = calls[count + 1:]
    if refused:
        log.debug("calls are repeated outside of CUDA graphs: %s", refused)
    return parts


def _capture(calls: list[Call]) -> tuple[CapturedCalls | None, int, Exception | None]:
    """Return a graph of the first calls, their number, and the failure of the next one.

    A failure may end the capture as a whole. Then the calls before it are captured anew.
    """
    cuda = current().xp.cuda
    error = None
    count = 0
    try:
        pool, stream = cuda.MemoryPool(), cuda.Stream(non_blocking=True)
        with cuda.using_allocator(pool.malloc), stream:
            stream.begin_capture()
            try:
                for call in calls:
                    call.function(*call.arguments)
                    count += 1
            except Exception as failure:  # CuPy has an exception of its own for each library
                error = failure
            graph = stream.end_capture()
        return CapturedCalls(graph, calls[:count], pool), count, error
    except Exception as failure:
        if error and count:
            return *_capture(calls[:count])[:2], error
        return None, count if error else len(calls), error or failure
