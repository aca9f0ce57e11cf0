"""Forecast the seconds of MPI collectives from the critical path of their messages.

A long broadcast over q ranks is scattered along a tree and gathered in a ring; each
rank forwards 2 (q - 1) / q of the bytes. A short broadcast uses a binomial tree. MPI is
assumed to use the faster algorithm.

Sources: Thakur, Rabenseifner and Gropp 2005; Chan, Heimlich, Purkayastha and van de
Geijn 2007.
"""
import numpy as np


def algorithms(kind, ranks):
    """Return (rounds, copies) for each algorithm that MPI may use for a collective over
    `ranks` ranks.

    The critical path consists of `rounds` messages in sequence, which together have
    `copies` times the bytes of the collective. `kind`: "broadcast", "reduce" or
    "allreduce".
    """
    depth = (ranks - 1).bit_length()  # messages from the root of a binomial tree to the last rank
    twice = 2 * (ranks - 1) / ranks  # the blocks of all other ranks, scattered and gathered
    rounds = {"broadcast": depth + ranks - 1,  # a tree, then a ring
              "reduce": 2 * depth, "allreduce": 2 * depth}  # halving, then a tree or doubling
    return (depth, depth), (rounds[kind], twice)


def collective_seconds(kind, ranks, sizes, latency_s, byte_s):
    """Return the seconds of collectives of `sizes` bytes, an array; 0 bytes take 0
    seconds.
    """
    if ranks == 1:
        return np.zeros(np.shape(sizes))
    found = [rounds * latency_s + copies * byte_s * np.asarray(sizes)
             for rounds, copies in algorithms(kind, ranks)]
    return np.where(np.asarray(sizes) > 0, np.minimum(*found), 0.0)


def measured_rate(kind, ranks, size, latency_s, seconds):
    """Return the bytes per second at which `collective_seconds` gives the measured
    seconds.
    """
    return max(1e-15, min(copies * size / max(seconds - rounds * latency_s, 1e-15)
                          for rounds, copies in algorithms(kind, ranks)))
