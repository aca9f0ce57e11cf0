"""scripts/cluster.sh: a cluster of network namespaces, and that nothing of it is left behind."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT
from commands import PLACES, clean_environment

SCRIPT = ROOT / "scripts" / "cluster.sh"
LAYOUT = """
import os, socket, time
from mpi4py import MPI
from hpgcn.comm.communicator import MpiComm

def say(*words):  # at once, so that lines of ranks do not mix
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

comm = MpiComm(MPI.COMM_WORLD)
buffer = bytearray(250_000)
for size in (1, len(buffer)):
    comm.barrier()
    start = time.perf_counter()
    if comm.rank == 0:
        MPI.COMM_WORLD.Send(buffer[:size], 4)
    elif comm.rank == 4:
        MPI.COMM_WORLD.Recv(buffer)
        say("seconds", time.perf_counter() - start)
words = comm.rank, socket.gethostname(), comm.local_rank, os.stat("/proc/self/ns/net").st_ino
say(*words, len(os.listdir("/dev/shm")))
"""


def start(*words):
    environment = clean_environment() | {"PATH": PLACES}
    return subprocess.Popen(["env", "--default-signal=INT", "bash", SCRIPT, *words],
                            env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finished(*words):
    process = start(*words)
    out, err = process.communicate(timeout=60)
    if process.returncode == 69:
        pytest.skip(err.strip())
    return process.returncode, out, err


def nothing_left(spaces):
    """Return whether no process is in these network namespaces any more."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = set()
        for entry in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                found.add(entry.stat().st_ino)
            except OSError:
                continue
        if not found & spaces:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.long
def test_ranks_see_their_node_and_nothing_is_left():
    """Ranks of two nodes count themselves within their node, and messages take the link's time."""
    code, out, err = finished("--ranks-per-node", "2,3", "--rate", "100mbit", sys.executable, "-c",
                              LAYOUT)
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    took = [float(line[1]) for line in lines if line[0] == "seconds"]
    assert took[1] > 0.01  # 250 KB at 100 Mb/s take 20 ms; the receiver may begin late
    ranks = sorted(line for line in lines if line[0] != "seconds")
    assert [line[:3] for line in ranks] == [
        ["0", "node1", "0"], ["1", "node1", "1"],
        ["2", "node2", "0"], ["3", "node2", "1"], ["4", "node2", "2"]]
    assert len({line[3] for line in ranks}) == 2
    assert {line[4] for line in ranks} == {"1"}  # the memory that MPI shares within a node
    assert nothing_left({int(line[3]) for line in ranks})


@pytest.mark.long
def test_a_message_takes_the_delay():
    code, out, err = finished("--ranks-per-node", "1,4", "--delay", "20ms", sys.executable, "-c",
                              LAYOUT)
    assert code == 0, err
    assert min(float(line.split()[1]) for line in out.splitlines() if "seconds" in line) > 0.02


@pytest.mark.long
@pytest.mark.parametrize("sent", [None, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after_a_failure_or_a_signal(sent):
    """The exit status is not 0 and no namespace remains, whether a rank fails or a signal comes."""
    command = "stat -Lc %i /proc/self/ns/net; " + ("exit 3" if sent is None else "exec sleep 1000")
    if sent is None:
        code, out, _ = finished("--ranks-per-node", "1", "bash", "-c", command)
        assert code == 3
    else:
        process = start("--ranks-per-node", "1", "bash", "-c", command)
        out = process.stdout.readline() + process.stdout.readline()
        if out:
            os.kill(process.pid, sent)
        _, err = process.communicate(timeout=60)
        if process.returncode == 69:
            pytest.skip(err.strip())
        assert process.returncode
    spaces = {int(word) for word in out.split()}
    assert len(spaces) == 2 and nothing_left(spaces)


@pytest.mark.parametrize("words", [
    [], ["--nodes", "0", "true"], ["--ranks-per-node", "1,2,3", "true"], ["--rate", "1", "true"],
    ["--delay", "5", "true"], ["--speed", "1gbit", "true"], ["--nodes", "2"]])
def test_usage(words):
    process = start(*words)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and err.startswith("usage: scripts/cluster.sh ")
