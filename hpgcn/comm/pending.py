"""Handles of collectives that were started and are not complete yet."""

from functools import partial


class Pending:
    """A collective under way. Its arrays belong to it until `wait` returns."""

    def __init__(self, comm, requests=(), describe=None, finish=None, name=None):
        self.comm = comm
        self.requests = requests
        self.describe = describe
        self.finish = finish
        self.name = name  # name of the wait on a timeline
        self.open = set(range(len(requests)))

    def test(self):
        """Let messages progress, which MPI does only within calls; return whether all arrived."""
        if self.open:
            with self.comm.clock("comm"):
                self.comm.test(self.requests, self.open)
        return not self.open

    def wait(self, what):
        """Wait until the result is there; calling it again does nothing.

        StoppedError after the communicator's `timeout`, naming this rank, those it
        waits for, and `what`, e.g. "the broadcast of block 2 in layer 1 forward".
        """
        if self.open:
            self.comm.wait(self.requests, partial(self.describe, what), self.open, self.name)
        finish = self.finish
        if finish is not None:
            self.finish = None
            with self.comm.clock("comm"):
                finish()


def format_ranks(ranks):
    """Name ranks in words, at most eight of them: "rank(s) 0, 2, 5"."""
    ranks = sorted(ranks)
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank(s) {', '.join(map(str, ranks[:8]))}{more}"
