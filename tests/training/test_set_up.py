"""Set-up allocates work arrays, compiles kernels and names slow phases before the first epoch."""
import io
import logging
import os
import re
import sys
import time
from functools import partial

import numba
import numpy as np
import pytest
from arrays import assert_none
from commands import python
from compilations import Names, noted_calls
from graphs import make
from numba.core import event
from training import settings_of

import hpgcn
from hpgcn.comm import SerialComm, run_on_ranks
from hpgcn.config import Config
from hpgcn.kernels import ahead
from hpgcn.kernels.cpu import column_blocks, tuning
from hpgcn.model import make_spec
from hpgcn.parallel.workspace import PAGE, PIECE, Workspace, touch
from hpgcn.runtime import progress_bar
from hpgcn.runtime.device import Host
from hpgcn.runtime.progress_log import progress_log, set_activity
from hpgcn.training.compile import warmup
from hpgcn.training.compile.recording import recorded
from hpgcn.training.trainer import make_trainer

# float64 where float32 needs kernels that no other short test needs, and the shapes of other tests
SETTINGS = [{}, {"model": "sage", "norm": "layer", "residual": True, "dtype": "float64"},
            {**settings_of("gat"), "dtype": "float64"},
            {"model": "gin", "layers": 3, "dtype": "float64"},
            {"prune": False, "input_dropout": 0.0}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_epoch_makes_no_array_that_was_not_there(settings):
    trainer = make_trainer(make(), Config(epochs=1, **settings), SerialComm())
    workspace = trainer.training.model.workspace
    before = {name: each.ctypes.data for name, each in workspace.arrays.items()}
    assert before
    trainer.train_epoch(1)
    warmup.evaluate(trainer.evaluation)
    assert {name: each.ctypes.data for name, each in workspace.arrays.items()} == before


@pytest.mark.parametrize("size", [0, 1, PAGE + 1, PIECE + 5, 3 * PIECE])
def test_every_page_is_touched(size):
    array = np.ones(size, np.uint8)
    touch(array)
    assert_none(array[::PAGE])
    space = Workspace(np.float64)
    space.reserve({"a": (size, np.dtype(np.float32))})
    assert space.arrays["a"].size == size
    assert space.flat("a", size) is not None


def test_slow_parts_are_named(caplog):
    caplog.set_level(logging.INFO, "hpgcn")
    with progress_log(every=0.05):
        set_activity("reading g.h5")
        time.sleep(0.3)
        set_activity()
        time.sleep(0.1)
        before = len(caplog.messages)
        time.sleep(0.2)
    assert caplog.messages[0] == "set-up: reading g.h5, 0 s so far"
    assert len(caplog.messages) == before
    with progress_log(shown=False, every=0.01):
        set_activity("reading")
        time.sleep(0.1)
    assert len(caplog.messages) == before


def test_each_rank_of_a_process_has_its_own_activity(caplog):
    caplog.set_level(logging.INFO, "hpgcn")

    def rank(comm):
        with progress_log(shown=comm.rank == 0, every=0.02):
            set_activity(f"what rank {comm.rank} does")
            comm.Barrier()
            time.sleep(0.1)

    run_on_ranks(rank, 3)
    assert {each.split(",")[0] for each in caplog.messages} == {"set-up: what rank 0 does"}


def test_long_compilations_are_counted(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "hpgcn")
    monkeypatch.setattr(progress_bar, "EVERY", 0.0)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with warmup.compiling():
        assert [numba.njit(lambda x, k=k: x + k)(1) for k in (1, 2)] == [2, 3]
    first, *others = caplog.messages
    assert first == warmup.Compilations.text
    for count, line in enumerate(others, 1):
        kernels = f"{count} kernel{'s' * (count > 1)}"
        assert re.fullmatch(rf"{first}: {kernels}, \S+ s per kernel", line)
    assert len(others) == 2


@pytest.mark.parametrize("blocked", [0, 700 * 48 * 4, 700 * 40 * 2])
@pytest.mark.parametrize("settings", [
    {}, {"model": "sage"}, pytest.param({"dtype": "bf16"}, marks=pytest.mark.long)], ids=str)
def test_nothing_is_compiled_in_an_epoch(settings, blocked, monkeypatch):
    if blocked:  # H, or what the logits are made of, fills two blocks
        room = blocked * 5 // 9
        monkeypatch.setattr(column_blocks, "second_cache", lambda: room)
    graph = make(n=700, f=40, c=40, degree=40)
    config = Config(epochs=1, hidden=48, **settings)
    with tuning.using(tuning.default()._replace(blocks=1 if blocked else 0)):
        if blocked:
            assert column_blocks.block_of(700, 700, 700 * 40, *(
                (48, 4, 4) if blocked > 1 << 17 else (40, 2, 4)))
        trainer = make_trainer(graph, config, SerialComm())
        names = Names()
        with event.install_listener("numba:compile", names):
            trainer.train_epoch(1)
            warmup.evaluate(trainer.evaluation)
    assert not names.found


def test_ranks_of_one_process_load_its_kernels_once(monkeypatch):
    calls = []
    monkeypatch.setattr(warmup, "call_kernels", lambda *_: calls.append(1))
    hpgcn.train(make(), Config(epochs=1), ranks=3)
    assert calls == [1]


@pytest.mark.parametrize("options", [{}, {"aligned": False}, {"accumulate": True},
                                     {"masked": True}])
def test_products_are_loaded_without_their_memory(options):
    if options.get("masked"):
        ahead.load_product(1 << 10, 8, 1 << 12, "float32", **options)
    else:
        ahead.load_product(1 << 24, 64, 1 << 20, "float32", **options)  # arrays of 4 GiB each


# graphs and hidden layers: columns of X, hidden columns, classes
SHAPES = (10, 16, 5), (1433, 16, 7), (767, 64, 10), (100, 256, 47), (64, 128, 40)
# a command and a kernel instead of all
FEW = ("import sys; from hpgcn.__main__ import main; "
       "from hpgcn.doctor import common_kernels as common; "
       "common.ahead.cases = lambda: [(common.ahead.load_product, (400, 8, 3200, 'float32'))]; "
       "common.commands = lambda: [['train', 'none.h5']]; sys.exit(main(['doctor', '--compile']))")


@pytest.mark.parametrize("words, shapes", [
    pytest.param(("-m", "hpgcn", "doctor", "--compile", "--jobs", "2"), SHAPES,
                 marks=pytest.mark.release),
    pytest.param(("-c", FEW), SHAPES[:1], marks=pytest.mark.long)], ids=["all", "few"])
def test_all_users_read_what_a_site_compiled(tmp_path, words, shapes):
    """Runs read kernels from HPGCN_KERNELS, where they store none."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    both = {"HPGCN_KERNELS": str(shared), "NUMBA_CACHE_DIR": str(own)}

    def run():
        done = python(*words, timeout=1800, **both)
        assert done.returncode == 70 * (words[-1] == FEW), done.stderr
        assert ("failed: hpgcn train none.h5" in done.stderr) == (words[-1] == FEW)
        return done.stderr.splitlines()[-1]

    first = run()
    assert not first.startswith("hpgcn: 0 kernels") and first.endswith(f" in {shared}/hpgcn/numba")
    assert run().startswith("hpgcn: 0 kernels")
    files = {*shared.rglob("*")}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644, 0o755}

    for f, hidden, c in shapes:
        graph = tmp_path / f"{f}.h5"
        hpgcn.save(make(n=400, f=f, c=c), graph)
        done = python("-m", "hpgcn", "train", graph, "--epochs", "2", "--hidden", hidden, "--out",
                      tmp_path / f"run-{f}", **both)
        assert done.returncode == 0, done.stderr
        if len(shapes) > 1:
            assert "compiling kernels" not in done.stderr, (f, hidden, c)
    assert {*shared.rglob("*")} == files
    assert len([*own.rglob("*.nbc")]) < len(files) and (len(shapes) > 1) != any(own.rglob("*.nbc"))


def print_kernels():
    """Print the number of kernels that are compiled ahead, and each kernel that runs need besides.

    A process of its own calls this, because loaded kernels are not recorded.
    """
    def needed(call):
        """Return the kernels, with types, that a call has to compile or load."""
        others = set()

        def note(kernel, *types):
            if types and kernel.py_func.__module__.startswith("hpgcn."):
                others.add((kernel, *types))

        with noted_calls(note), recorded() as found:
            call()
        return others | found.keys()

    def prepare():
        for function, arguments in ahead.cases():
            function(*arguments)

    compiled = needed(prepare)
    print(len(compiled))
    for f, hidden, c in SHAPES:
        header, config = make(n=400, f=f, c=c).header, Config(hidden=hidden)
        spec = make_spec(header, config)
        found = needed(partial(warmup.call_kernels, header, config, spec, Host(), 1))
        print(len(found), *(found - compiled), sep="\n")


@pytest.mark.long
def test_runs_call_kernels_that_are_compiled_ahead():
    """Runs of common shapes call only kernels that `--compile` compiles."""
    done = python("-c", "from test_set_up import print_kernels; print_kernels()", timeout=600,
                  PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 0, done.stderr
    compiled, *found = done.stdout.splitlines()
    assert int(compiled) > 100 and len(found) == len(SHAPES), found
    assert min(map(int, found)) > 5
