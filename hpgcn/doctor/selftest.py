"""Train two epochs on the karate club, and print JSON.

Messages are whole at first, and then in small pieces.
"""

import json
import os
import sys

import numpy as np

from hpgcn.comm import collectives, world
from hpgcn.config import Config
from hpgcn.datasets import convert
from hpgcn.doctor import SELFTEST_SECONDS
from hpgcn.errors import HpgcnError, InternalError
from hpgcn.runtime.machine import die_with_parent
from hpgcn.training.trainer import make_trainer

SECONDS = 2.0 * SELFTEST_SECONDS  # the parent has the only deadline, which is shorter
PIECE = 64  # bytes
CONFIG = Config(epochs=2, hidden=8, dtype="float64", threads=1, comm_timeout=SECONDS)


def losses(graph, ranks):
    trainer = make_trainer(graph, CONFIG, ranks)
    with trainer:
        return [trainer.train_epoch(epoch)["loss"] for epoch in range(1, CONFIG.epochs + 1)]


def run():
    """Train twice, with whole messages and with pieces.

    Return the communicator and a dict of the results.
    """
    from hpgcn.kernels.cpu.emit.emitter import vector_bytes

    ranks = world(SECONDS)
    total = np.array([ranks.rank + 1.0])
    ranks.allreduce(total, "weights")
    if total[0] != ranks.size * (ranks.size + 1) / 2:
        raise InternalError(f"an allreduce over {ranks.size} ranks gave {total[0]:g}")
    graph = convert.read("karate")[0]
    n = graph.header.num_nodes
    if ranks.size > 1:
        graph = graph.permuted(np.arange(n), np.arange(ranks.size + 1) * n // ranks.size)

    whole = losses(graph, ranks)
    limit = collectives.MAX_MESSAGE_BYTES
    collectives.MAX_MESSAGE_BYTES = PIECE
    pieces = losses(graph, ranks)
    return ranks, {"size": ranks.size, "losses": whole, "pieces": pieces, "limit": limit,
                   "piece": PIECE, "vector_bytes": vector_bytes()}


def main():
    die_with_parent()
    try:
        ranks, answer = run()
    except HpgcnError as error:
        sys.stderr.write(f"hpgcn: {error}\n")
        sys.stderr.flush()
        os._exit(error.code)
    if ranks.rank == 0:
        print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
