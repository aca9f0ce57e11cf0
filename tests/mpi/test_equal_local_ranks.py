"""Local ranks (threads of one process) give the same bits and files as ranks of MPI."""
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from graphs import make, scattered
from training import LATER, SETTINGS, skip_refused

import hpgcn
from hpgcn.comm import as_comm, run_on_disk, run_on_ranks
from hpgcn.config import Config
from hpgcn.runtime.disk import scratch_folder
from hpgcn.strategies import STRATEGIES
from hpgcn.training.steps.loop_state import CLOCKED

pytestmark = pytest.mark.mpi
MORE = [{"strategy": "p2p", **SETTINGS["gat"]}, {"strategy": "p2p", **SETTINGS["appnp"]},
        {"strategy": "vertex-cut", "delay": "2"}, {"strategy": "mop+p2p+cover"},
        {"strategy": "mop", "pipeline_batches": 4},
        {"strategy": "p2p", "dtype": "bf16"},
        {"strategy": "cover", "batch": "neighbors:3,2,2:40"}]
# models and samplers whose ranks exchange nothing that those above do not
ALIKE = [*({"strategy": "cover", "batch": batch} for batch in ("vertices:60", "parts:1")),
         *({"strategy": "p2p", **SETTINGS[model]} for model in SETTINGS
           if model not in ("gcn", "gat", "appnp"))]
RUNS = [*(pytest.param({"strategy": strategy}, marks=[pytest.mark.long] * (strategy in LATER))
          for strategy in STRATEGIES),
        *(pytest.param(settings, marks=pytest.mark.long) for settings in MORE),
        *(pytest.param(settings, marks=pytest.mark.release) for settings in ALIKE)]

# what no two runs share, and threads, of which ranks of one process have more
UNEQUAL = {"steps", "epoch_s_median", "peak_rss_bytes", "started_utc", "created_utc", "threads",
           "attributes_crc32", "sha256", "bytes", "seconds", "resident", "parts",
           "in_process", "processes", *CLOCKED}


def on_rank_0(comm, function):
    """Run a function on rank 0; return its result, or raise its error, on all ranks."""
    with comm.extended_timeout(600):
        result = function() if comm.rank == 0 else None
        comm.barrier()  # in which other ranks sleep longer than in a broadcast
        return comm.bcast(result)


def contents(run):
    """Return the contents of all files in a run directory, without times and sizes."""
    found = {}
    for path in sorted(Path(run).rglob("*.*")):
        name = str(path.relative_to(run))
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                found[name] = attributes(file)
                file.visititems(lambda place, node, of=found[name]: of.update({place: (
                    attributes(node), node[()].tobytes() if hasattr(node, "dtype") else None)}))
        elif path.suffix in (".json", ".jsonl"):
            text = path.read_text()
            values = text.splitlines() if path.suffix == ".jsonl" else [text]
            found[name] = timeless([*map(json.loads, values)])
        else:
            found[name] = path.read_bytes()
    return found


def attributes(node):
    """Return the attributes of an HDF5 object, with JSON texts decoded and times removed."""
    values = {name: value.tolist() for name, value in node.attrs.items()}
    for name, value in values.items():
        if isinstance(value, bytes) and value.startswith(b"{"):
            values[name] = json.loads(value)
    return timeless(values)


def timeless(values):
    """Return JSON values without the fields that differ between runs, such as times."""
    if isinstance(values, dict):
        return {name: timeless(value) for name, value in values.items()
                if name not in UNEQUAL and not name.endswith("_s")}
    return [*map(timeless, values)] if isinstance(values, list) else values


@pytest.mark.parametrize("settings", RUNS, ids=str)
def test_a_run_of_three_epochs(comm, settings, tmp_path):
    graph = make(directed=settings.get("model", "gcn") == "gcn")
    out = Path(comm.bcast(str(tmp_path / "run")))
    config = Config(layers=3, hidden=12, dropout=0.3, epochs=3, device="cpu", out=str(out),
                    checkpoint_every=3, **settings)
    skip_refused(graph, config, comm)

    def train(communicator):
        result = hpgcn.train(scattered(graph, as_comm(communicator)), config, communicator)
        counted = [(row["loss"], row["val_loss"], row["sent_bytes"], row["sent_messages"])
                   for row in result.history]
        return counted, {name: array.tobytes() for name, array in result.weights.items()}

    def train_locally():
        files = contents(out)
        shutil.rmtree(out)
        local = run_on_ranks(train, comm.size)[0]
        for name, fields in contents(out).items():
            assert fields == files.pop(name), name
        assert not files
        return local

    ours = train(comm.mpi)
    comm.barrier()
    assert on_rank_0(comm, train_locally) == ours


# test_scratch.py shows it of local ranks, whose checkpoints are those of MPI
@pytest.mark.release
def test_a_run_goes_on_with_arrays_in_files_and_back(comm, tmp_path, monkeypatch):
    """A run of MPI ranks resumes with --scratch, and the reverse, to the same bits."""
    monkeypatch.setattr(scratch_folder, "THRESHOLD", 4096)
    graph, folder = make(n=301, f=33), Path(comm.bcast(str(tmp_path)))
    config = Config(layers=3, hidden=32, dropout=0.3, device="cpu", strategy="p2p",
                    checkpoint_every=1)

    def train(communicator, name, epochs, resume=""):
        out = str(folder / name)
        result = hpgcn.train(scattered(graph, as_comm(communicator)),
                             config.replace(out=out, epochs=epochs), communicator,
                             resume=resume and out)
        return [row["loss"] for row in result.history]

    def train_in_files(*arguments):
        return on_rank_0(comm, lambda: run_on_disk(train, comm.size, str(folder), *arguments)[0])

    straight = train(comm.mpi, "straight", 2)
    train(comm.mpi, "a", 1)
    assert train_in_files("a", 2, "a") == straight
    assert train_in_files("b", 1) == straight[:1]
    assert train(comm.mpi, "b", 2, "b") == straight


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [
    1, 8, 511, 512, 513, 3000,
    pytest.param(1 << 21, marks=pytest.mark.long)])  # is sent in pieces
def test_reductions_add_in_the_same_order(comm, size, dtype):
    def reduce(communicator):
        rng = np.random.default_rng(communicator.rank)
        total = rng.standard_normal(size).astype(dtype)
        communicator.allreduce(total, None)
        sums = [total]
        for root in range(communicator.size):
            part = rng.standard_normal(size).astype(dtype)
            communicator.start_reduce(part, None, root, None).wait("a sum")
            sums.append(communicator.bcast(part if communicator.rank == root else None)
                        if root == 0 else part if communicator.rank == root else total)
        return [array.tobytes() for array in sums]

    local = on_rank_0(comm, lambda: run_on_ranks(lambda mpi: reduce(as_comm(mpi)), comm.size))
    assert reduce(comm) == (local[comm.rank] if comm.size > 1 else local[0])
