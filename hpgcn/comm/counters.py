"""What a rank has sent to others: payload and messages, by phase and by what they were for."""


class Counters:
    """Payload this rank contributed to others; hpgcn.parallel.counts defines what counts."""

    def __init__(self):
        self.phase = "setup"
        self.bytes = {}
        self.messages = {}
        self.sent = {}  # bytes by phase, then by destination
        self.sums = {}  # those of them that are partial sums of the destination's rows

    def add(self, kind, payload, messages, to=(), sums=()):
        """Count one call; `to`: pairs (rank, bytes), where it is known who gets what.

        `sums`: the same of what others add up.
        """
        key = (self.phase, kind)
        self.bytes[key] = self.bytes.get(key, 0) + payload
        self.messages[key] = self.messages.get(key, 0) + messages
        for counted, pairs in ((self.sent, to), (self.sums, sums)):
            sent = counted.setdefault(self.phase, {})
            for rank, size in pairs:
                sent[rank] = sent.get(rank, 0) + size

    def include(self, other):
        """Add what other Counters have counted so far."""
        for ours, theirs in ((self.bytes, other.bytes), (self.messages, other.messages)):
            for key, value in theirs.items():
                ours[key] = ours.get(key, 0) + value
        for ours, theirs in ((self.sent, other.sent), (self.sums, other.sums)):
            for phase, sizes in theirs.items():
                sent = ours.setdefault(phase, {})
                for rank, size in sizes.items():
                    sent[rank] = sent.get(rank, 0) + size

    def total(self, phase):
        """Return (bytes, messages) of a phase, all kinds."""
        return tuple(sum(value for (of, _), value in counted.items() if of == phase)
                     for counted in (self.bytes, self.messages))
