"""Arrays of local ranks that take turns on a GPU: their homes are in host memory."""
from contextvars import ContextVar

# the Arena (arena.py) of this thread's rank, or None: arrays stay on the GPU
current_arena: ContextVar = ContextVar("current_arena", default=None)
