"""Train on one of several tiers of memory, to which a run may go on from another one.

    HPGCN_FAULT=kill:3:2:backward python tiers.py TIER FOLDER OUT EPOCHS [SETTINGS]

TIER is a key of TIERS, FOLDER is for scratch files, and SETTINGS are those of Config as JSON.
A run directory OUT that exists is resumed.
"""
import json
import os
import sys

from cuda_ranks import real_or_fake
from graphs import dealt, make, scattered

from hpgcn import Config, run_on_ranks, train
from hpgcn.comm import as_comm, run_on_disk, run_on_gpu
from hpgcn.planning.counts import touches
from hpgcn.runtime.disk import scratch_folder
from hpgcn.runtime.gpu import gpu_turns
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.host_memory import ScratchSpace

RANKS = 5
SLOT = 4 << 20  # bytes of a slot of the GPU
POOL = 48 << 12  # bytes of pinned memory above a file
TIERS = {  # device, and a function that calls another one on all ranks
    "disk": ("cpu", lambda work, folder: run_on_disk(work, RANKS, folder, kept=1)),
    "GPU": ("cuda", lambda work, folder: run_on_gpu(work, GpuTurns(
        RANKS, 2, SLOT, scratch=ScratchSpace(folder, RANKS - 1, POOL)))),
    "memory": ("cpu", lambda work, _: run_on_ranks(work, RANKS)),
    "memory of a GPU": ("cuda", lambda work, _: run_on_ranks(work, RANKS))}


def train_on(tier, folder, out, epochs, settings):
    """Train a random graph with Config(**settings), or resume the run directory `out`."""
    device, start = TIERS[tier]
    config = Config(**{"layers": 3, "hidden": 24, "device": device, "checkpoint_every": 1,
                       "out": out, "epochs": epochs} | settings)
    graph = make(n=301, f=33, degree=12)
    divided = dealt if config.strategy == "vertex-cut" else scattered
    resumed = {"resume": out} if os.path.exists(out) else {}
    start(lambda comm: train(divided(graph, as_comm(comm)), config, comm, **resumed), folder)


if __name__ == "__main__":
    scratch_folder.THRESHOLD = touches.LEAST = 1 << 12
    gpu_turns.THRESHOLD = 1 << 8
    given_tier, scratch, run, number, text = sys.argv[1:]
    with real_or_fake():
        train_on(given_tier, scratch, run, int(number), json.loads(text))
