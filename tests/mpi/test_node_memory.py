"""Memory that ranks of a node share: all of them have it, or none."""
import os
import subprocess
import sys

import numpy as np
import pytest
from arrays import assert_all
from graphs import make, scattered
from training import run

from hpgcn.comm.nodes import layout_of
from hpgcn.config import Config
from hpgcn.parallel.nodes import memory_files, node_memory
from hpgcn.parallel.nodes.node_memory import NodeMemory

pytestmark = pytest.mark.mpi
FAILING = {"create_file": lambda nbytes: (None, None), "open_file": lambda key: None}


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("step", [None, *FAILING])
def test_memory_that_one_rank_lacks_is_used_by_none(comm, monkeypatch, step):
    """If one rank can make or open no file, all ranks get None, none waits, and messages do."""
    if step and comm.rank == comm.size - 1:
        monkeypatch.setattr(node_memory, step, FAILING[step])
    if comm.size > 1:
        memory = NodeMemory(comm, tuple(range(comm.size)))
        before = descriptors()
        found = memory.allocate(8, 24)
        if step:
            assert found is None and descriptors() == before
        else:
            wide, _ = found
            wide[comm.rank][:] = comm.rank
            comm.barrier()
            for rank in range(comm.size):
                assert_all(wide[rank] == rank)
        comm.barrier()
        memory.close()

    # a run takes messages, and has the same bits
    comm.nodes = layout_of(1 if comm.size < 3 else [0, *[1] * (comm.size - 1)], comm.size, "nodes")
    config = Config(strategy="p2p", layers=2, hidden=4)
    _, flat = run(scattered(make(n=60), comm), config, comm, 1)
    monkeypatch.setenv(node_memory.VARIABLE, "0")
    _, again = run(scattered(make(n=60), comm), config, comm, 1)
    assert flat.tobytes() == again.tobytes()


OTHER = """
import sys
from hpgcn.parallel.nodes.memory_files import Key, open_file
process, number, token, nbytes = sys.argv[1:]
memory = open_file(Key(int(process), int(number), bytes.fromhex(token), int(nbytes)))
print(None if memory is None else memory.tolist())
if memory is not None:
    memory[0] = 9
"""


def test_another_process_opens_a_file_by_its_key_only(comm):
    """A wrong token, length or number opens nothing; a closed file keeps its contents."""
    if comm.rank:
        return
    key, memory = memory_files.create_file(3)
    memory[:] = 1, 2, 3

    def opened(key):
        words = [str(key.process), str(key.number), key.token.hex(), str(key.nbytes)]
        done = subprocess.run([sys.executable, "-c", OTHER, *words], check=True,
                              capture_output=True, text=True)
        return done.stdout.strip()

    assert opened(key) == "[1, 2, 3]"
    assert memory.tolist() == [9, 2, 3]
    assert opened(key._replace(token=bytes(16))) == "None"
    for wrong in (key._replace(nbytes=1 << 20), key._replace(number=10_000)):
        assert memory_files.open_file(wrong) is None
    key.close()
    assert memory_files.open_file(key) is None
    np.testing.assert_array_equal(memory, [9, 2, 3])


def test_no_room(comm, monkeypatch):
    def full(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = descriptors()
    assert memory_files.create_file(1 << 10) == (None, None) and descriptors() == before
    monkeypatch.delattr(os, "memfd_create")
    assert memory_files.create_file(1) == (None, None)
