"""`python -m hpgcn.kernels --compile`: compile the kernels of common runs in advance."""
import argparse
import os
import sys


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m hpgcn.kernels", description="Kernels of hpgcn: compile them ahead of a run.")
    parser.add_argument("--compile", action="store_true", required=True,
                        help="compile what common runs need, into Numba's cache on this machine")
    parser.add_argument("--jobs", type=int, metavar="N", default=0,
                        help="processes at a time (default: one for each core)")
    args = parser.parse_args(argv)
    if args.jobs < 0:
        parser.error(f"--jobs {args.jobs}: expected at least 1")
    # each process has one thread, because processes fill the cores
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    from hpgcn.kernels import ahead

    ahead.main(args.jobs, sys.stderr)


if __name__ == "__main__":
    main()
