"""Long sums in pieces, a few at a time: MPI keeps copies of every array under reduction."""

from collections import deque

PIECE_BYTES = 4 << 20
UNDER_WAY = 4  # pieces: enough that one travels while others are added


class Queue:
    """Pieces of the reductions of one communicator, which start in the order of the calls.

    MPI matches the collectives of a communicator by their order, so `flush` comes
    before any other of them. `busy` lists the queues of this rank in which pieces wait,
    of all communicators. A wait for one of them lets the others advance, as MPI itself
    does.
    """

    def __init__(self, busy):
        self.busy = busy
        self.waiting = deque()  # (list of requests, place in it, function that returns the request)
        self.running = []

    def extend(self, starts, null):
        """Queue calls, which start when a slot is free; return their requests, `null`
        until then.
        """
        requests = [null] * len(starts)
        idle = not self.waiting
        self.waiting.extend((requests, place, start) for place, start in enumerate(starts))
        if idle and self.waiting:
            self.busy.append(self)
            self.advance()
        return requests

    def advance(self, most=UNDER_WAY):
        """Start pieces while fewer than `most` are under way; does not wait."""
        self.running = [request for request in self.running if not request.Get_status()]
        while self.waiting and len(self.running) < most:
            requests, place, start = self.waiting.popleft()
            requests[place] = start()
            self.running.append(requests[place])
        if not self.waiting:
            self.busy.remove(self)

    def flush(self):
        if self.waiting:
            self.advance(most=len(self.running) + len(self.waiting))
