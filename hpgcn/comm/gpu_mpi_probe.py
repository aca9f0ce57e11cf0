"""Probe whether MPI sends GPU memory, in a process that may crash.

Run it as `python -m hpgcn.comm.gpu_mpi_probe GPU`.
"""
from __future__ import annotations

import sys

SIZES = 64, 8 << 20  # bytes: MPI sends the first at once, and announces the second


def main(number: int) -> int:
    """Send GPU memory to this process; return the exit code."""
    import cupy

    cupy.cuda.Device(number).use()
    cupy.cuda.runtime.free(0)  # creates the context, which Open MPI looks for when it starts
    from mpi4py import MPI

    for size in SIZES:
        sent = cupy.arange(size, dtype=cupy.uint8)
        received = cupy.zeros_like(sent)
        cupy.cuda.get_current_stream().synchronize()
        MPI.Request.Waitall([MPI.COMM_SELF.Irecv(received, 0, 1), MPI.COMM_SELF.Isend(sent, 0, 1)])
        if not bool((sent == received).all()):
            sys.stderr.write(f"a message of {size} bytes did not arrive\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
