"""The clock's events, the trace of all ranks on one time axis, and bytes between ranks."""
import json
import textwrap
import time

import numpy as np
import pytest
from arrays import assert_none
from commands import python, succeed
from graphs import make

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.errors import OutputError
from hpgcn.runtime.clock import KINDS, PARTS, Clock
from hpgcn.training.files import trace


def test_sums_without_recording():
    clock = Clock()
    with clock("spmm"):
        time.sleep(0.01)
    with pytest.raises(KeyError, match="lost"), clock("wait"):
        raise KeyError("lost")  # the time until then counts
    assert clock.events is None
    assert clock.seconds["spmm"] >= 0.01 and clock.seconds["wait"] > 0
    assert clock.seconds["dense"] == clock.seconds["comm"] == 0
    clock.reset()
    assert clock.seconds == dict.fromkeys(KINDS, 0.0)


def test_parts_do_not_overlap():
    """Time in messages within a dense product counts as messages only, and only once."""
    clock = Clock()
    begin = time.perf_counter()
    with clock("dense", part="gemm"):
        with clock("comm"):
            time.sleep(0.03)
            with clock("wait"):
                time.sleep(0.02)
        time.sleep(0.01)
        with clock("dense", part="gemm"):
            pass
    with clock("comm"):
        pass
    clock.detail = "update"
    with clock("comm"):
        pass
    whole = time.perf_counter() - begin
    parts = clock.parts
    assert parts.keys() == PARTS.keys()
    assert parts["dense_comm"] >= 0.03 and parts["wait"] >= 0.02 and parts["gemm"] >= 0.01
    assert parts["comm"] > 0 and parts["gradient_comm"] > 0 and parts["dense"] == 0
    assert 0.06 <= sum(parts.values()) <= whole
    assert clock.seconds["dense"] >= 0.06  # including the events inside it


def test_messages_of_a_part_have_its_name():
    clock = Clock()
    clock.record(limit=100)
    with clock.messages("sparse_comm"):
        for kind in ("comm", "wait", "spmm"):
            with clock(kind), clock.messages(None):
                pass
    with clock("wait"):
        pass
    assert [name for name, *_ in clock.stop()] == ["sparse_comm", "sparse_comm", "spmm", "wait"]
    assert clock.parts["sparse_comm"] > clock.parts["comm"] == 0 and clock.parts["wait"] > 0
    assert clock.seconds["wait"] > clock.parts["wait"] and clock.seconds["comm"] > 0


@pytest.mark.parametrize("strategy", ["1d", "2d"])
def test_broadcasts_of_blocks_of_A_are_told_apart(strategy, tmp_path):
    run = tmp_path / "run"
    hpgcn.train(make(n=60), hpgcn.Config(strategy=strategy, epochs=2, trace=True, out=str(run)),
                ranks=4)
    seconds = hpgcn.read_run(run).metrics["mean_sparse_comm_s"]
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    named = [event for event in events if event["name"].startswith("sparse_comm")]
    assert bool(named) == (strategy == "2d") == bool((seconds > 0).all())


def test_events_carry_name_epoch_and_detail():
    clock = Clock()
    with clock("dense"):
        pass
    clock.record(limit=100)
    with clock.span("epoch", 3):
        clock.detail = "layer 0 forward"
        with clock("dense"), clock("wait", "reduce"):
            pass
    events = clock.stop()
    assert [(name, epoch, detail) for name, _, _, epoch, detail, _ in events] == [
        ("reduce", 3, "layer 0 forward"), ("dense", 3, "layer 0 forward"), ("epoch", 3, "")]
    (_, b2, e2, *_), (_, b1, e1, *_), (_, b0, e0, *_) = events
    assert b0 <= b1 <= b2 <= e2 <= e1 <= e0 and "reduce" not in clock.seconds
    assert clock.seconds["wait"] == pytest.approx(e2 - b2) and clock.events is None
    assert clock.stop() == []


def test_the_limit_drops_what_comes_later():
    clock = Clock()
    clock.record(limit=4)
    for epoch in (1, 2, 3):
        with clock.span("epoch", epoch), clock("spmm"):
            pass
    assert clock.full == 3 and len(clock.stop()) == 4


def written(path, limit=None, epochs=1, blocks=1):
    """Write a trace of `epochs` epochs with `blocks` events each; return its JSON."""
    comm = SerialComm()
    recorder = trace.Trace(comm, limit)
    for epoch in range(1, epochs + 1):
        with comm.clock.span("epoch", epoch):
            for _ in range(blocks):
                with comm.clock("spmm"):
                    pass
    recorder.write(path)
    return json.loads(path.read_text())


def complete(found):
    return [event for event in found["traceEvents"] if event["ph"] == "X"]


def test_chrome_trace_events(tmp_path):
    comm = SerialComm()
    recorder = trace.Trace(comm)
    with comm.clock.span("epoch", 1):
        comm.clock.detail = 'layer 0 "forward"'
        with comm.clock("spmm"):
            time.sleep(0.02)
    with comm.clock.span("evaluate", 1):
        pass
    recorder.write(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())
    kinds = [event for event in found["traceEvents"] if event["ph"] == "M"]
    assert [(event["name"], event["args"]) for event in kinds] == [
        ("process_name", {"name": "rank 0"}), ("process_sort_index", {"sort_index": 0})]
    assert {(event["pid"], event["tid"]) for event in complete(found)} == {(0, 0)}
    assert [(event["name"], event["args"]) for event in complete(found)] == [
        ("epoch 1", {"epoch": 1}), ("spmm", {"epoch": 1, "at": 'layer 0 "forward"'}),
        ("evaluate 1", {"epoch": 1})]
    step, spmm, evaluate = complete(found)
    assert step["ts"] == 0
    assert 20_000 <= spmm["dur"] <= step["dur"] < 2_000_000  # microseconds
    assert evaluate["ts"] >= step["dur"] - 0.002
    assert found["otherData"]["clock_accuracy_us"] == [0]
    assert found["otherData"]["epochs"] == found["otherData"]["epochs_recorded"] == 1


@pytest.mark.parametrize("limit, epochs, blocks, expected, recorded", [
    (8, 5, 2, [1, 1, 1, 2, 2, 2], 2),  # whole epochs, each of three events
    (2, 2, 5, [1, 1], 0),  # an epoch over the limit is cut
    (None, 0, 1, [], 0)])
def test_what_is_kept(tmp_path, limit, epochs, blocks, expected, recorded):
    found = written(tmp_path / "trace.json", limit, epochs, blocks)
    assert [event["args"]["epoch"] for event in complete(found)] == expected
    about = found["otherData"]
    assert (about["epochs"], about["epochs_recorded"]) == (epochs, recorded)


def test_the_trace_is_replaced_or_refused(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    written(path)
    with pytest.raises(OutputError, match="no folder"):
        written(tmp_path / "nowhere" / "trace.json")
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]


def test_offsets_on_the_line_between_two_measurements():
    found = trace._offsets(np.array([10.0, 15.0, 20.0, 30.0]), (10.0, 1.0, 0.0), (20.0, 3.0, 0.0))
    assert found.tolist() == [1.0, 2.0, 3.0, 5.0]


RANKS = """
    import os, sys, time
    import numpy as np
    from hpgcn.training.files import trace
    from hpgcn.comm import world

    comm = world(30)
    shift = float(sys.argv[2]) * comm.rank  # as on nodes that were started at other times
    real = time.perf_counter
    time.perf_counter = lambda: real() + shift
    recorder = trace.Trace(comm)
    for epoch in (1, 2):
        with comm.clock.span("epoch", epoch):
            comm.clock.detail = f"rank {comm.rank}"  # texts differ from rank to rank
            for _ in range(comm.rank + 1):
                with comm.clock("spmm"):
                    time.sleep(0.01)
            comm.barrier()
    recorder.write(sys.argv[1])
    others = [q for q in range(comm.size) if q != comm.rank]
    comm.counters.sent = {"train": {q: 30 * comm.rank + 3 * q for q in others}}
    comm.counters.sums = {"train": {q: 3 * q for q in others}}
    trace.write_traffic(os.path.dirname(sys.argv[1]), comm, 3)
"""


@pytest.mark.long
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_ranks_share_one_axis_of_time(tmp_path, shift):
    path = tmp_path / "trace.json"
    done = python("-c", textwrap.dedent(RANKS), path, shift, ranks=3)
    assert not done.returncode, done.stderr
    found = json.loads(path.read_text())
    events = complete(found)
    accuracy = found["otherData"]["clock_accuracy_us"]
    assert accuracy[0] == 0 and len(accuracy) == 3
    for rank in range(3):
        own = [event for event in events if event["pid"] == rank]
        names = [event["name"] for event in own if event["name"].startswith(("spmm", "epoch"))]
        spmm = (rank + 1) * ["spmm"]
        assert names == ["epoch 1", *spmm, "epoch 2", *spmm]
        assert {event["args"]["at"] for event in own if event["name"] == "spmm"} == {f"rank {rank}"}
    # no rank leaves the barrier of an epoch before the last one has reached it
    arrived = max(event["ts"] + event["dur"] for event in events if event["name"] == "spmm"
                  and event["args"]["epoch"] == 1)
    left = [event["ts"] + event["dur"] for event in events if event["name"] == "epoch 1"]
    assert min(left) >= arrived - 2 * max(accuracy) - 1 and max(left) - min(left) < 1e6
    assert np.load(tmp_path / "traffic.npy").tolist() == [[0, 1, 2], [10, 0, 12], [20, 21, 0]]
    assert np.load(tmp_path / "sums.npy").tolist() == [[0, 1, 2], [0, 0, 2], [0, 1, 0]]


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_run_leaves_its_timeline_and_traffic(request, tmp_path, ranks):
    succeed("generate", "rmat", "g.h5", "--scale", 7, cwd=tmp_path)
    options = {"ranks": ranks} if ranks > 1 else {}
    if options:
        request.getfixturevalue("forks")
    succeed("train", "g.h5", "--epochs", 3, "--trace", "--out", "run", "--threads", 1,
            "--eval-every", 3, "--effort", "default", cwd=tmp_path, **options)
    found = json.loads((tmp_path / "run" / "trace.json").read_text())
    for rank in range(ranks):
        names = [event["name"] for event in complete(found) if event["pid"] == rank]
        assert {"epoch 1", "epoch 2", "epoch 3", "evaluate 3", "spmm", "dense"} <= set(names)
        assert "evaluate 2" not in names
        if ranks > 1:
            assert {"comm", "reduce"} <= set(names)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    sent = np.load(tmp_path / "run" / "traffic.npy")
    assert sent.shape == (ranks, ranks)
    assert_none(sent.diagonal())
    parameters = 64 * 16 + 16 + 16 * 8 + 8
    reduced = 2 * (ranks - 1) * 4 * parameters  # sums of gradients are not in the matrix
    assert sent.sum() == summary["sent_bytes_per_epoch"] - reduced
    assert np.load(tmp_path / "run" / "sums.npy").shape == (ranks, ranks)


@pytest.mark.parametrize("strategy, at", [("1d", "spmm"), ("2d", "wait"), ("mop", "wait")])
def test_events_carry_the_number_of_their_stage(tmp_path, strategy, at):
    hpgcn.train(make(), hpgcn.Config(
        strategy=strategy, epochs=1, hidden=4, threads=1, trace=True, pipeline_batches=2,
        out=str(tmp_path / "run")), ranks=4)
    found = complete(json.loads((tmp_path / "run" / "trace.json").read_text()))
    staged = [event for event in found if "stage" in event["args"]]
    numbers = {event["args"]["stage"] for event in staged if event["name"].startswith(at)}
    assert numbers >= {0, 1}
    assert all(event["name"].endswith(f", stage {event['args']['stage']}") for event in staged)
    assert all("stage" not in event["args"] for event in found if event["name"] == "dense")
