"""Steps that are repeated as recorded calls give the bits of steps that Python computes."""
import numpy as np
import pytest
from cuda_ranks import cuda, gpu
from fake_cupy import Stream
from graphs import make, several_labels, with_edges, with_links, with_targets
from stacks import KINDS, STACKS

from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.kernels import cpu
from hpgcn.kernels.host.record import Recording, derived, of_step, repeat
from hpgcn.kernels.host.replay import Replay
from hpgcn.strategies import STRATEGIES
from hpgcn.training.steps import step_replay
from hpgcn.training.trainer import make_trainer

__all__ = ["cuda", "gpu"]
SETTINGS = [
    *(pytest.param(kind, id=name) for name, kind in KINDS.items()),
    *(pytest.param({"strategy": name}, id=name) for name in STRATEGIES),
    *(pytest.param({**KINDS["gat"], "strategy": name}, id=f"gat {name}")
      for name, kind in STRATEGIES.items() if not kind.unsupported_reason([4], 1)),
    *(pytest.param(stack, id=name, marks=pytest.mark.long) for name, stack in STACKS.items()),
    *(pytest.param(changes, id=str(changes)) for changes in (
        {"model": "gin"}, {"masked_products": "always"}, {"shortcuts": False}, {"dtype": "bf16"},
        {"optimizer": "sgd", "clip_norm": 0.1}, {"label_smoothing": 0.1}, {"input_dropout": 0.0},
        {"schedule": "cosine"}))]
OTHER_TASKS = [
    pytest.param(lambda: several_labels(make(n=300)), {}, id="several labels"),
    pytest.param(lambda: with_edges(n=300), {"model": "gine"}, id="edge features"),
    *(pytest.param(lambda: with_targets(make(n=300)), changes, id=str(changes))
      for changes in ({"loss": "mse"}, {"loss": "mae"}, {"loss": "huber"}, {"dtype": "bf16"}))]


def trained(graph, settings, allowed, ranks=1, device=None):
    """Return the results of five steps, and both StepReplays of each rank.

    Results are losses, accuracies and bytes sent, and the parameters after the steps.
    """
    config = Config(**{"dropout": 0.4, "hidden": 10, "layers": 3, "seed": 3,
                       "replay": "auto" if allowed else "never", **settings})

    def train(comm):
        if device:
            comm.use(device)
        trainer = make_trainer(graph, config, as_comm(comm), warm=False)
        epochs = []
        for number in range(1, 6):
            epoch = trainer.train_epoch(number)
            trainer.evaluate_epoch(epoch)
            epochs.append({key: number for key, number in epoch.items()
                           if not key.endswith(("_s", "_rss_bytes"))})
        counters = vars(trainer.comm.counters)
        return ((epochs, trainer.comm.device.get(trainer.parameters.flat).tobytes(), counters),
                [trainer.training.replay, trainer.evaluation.replay])

    nodes = 1 + ranks // 4
    found = [train(SerialComm())] if ranks == 1 else run_on_ranks(train, ranks, nodes=nodes)
    return [each[0] for each in found], [replay for each in found for replay in each[1]]


def check_bits(graph, settings, ranks=1, device=None):
    """Check that steps have the same bits if they are repeated, and that they are repeated."""
    results, replays = trained(graph, settings, True, ranks, device)
    assert results == trained(graph, settings, False, ranks, device)[0]
    assert all(each.replay is not None for each in replays)
    return replays


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("settings", SETTINGS)
def test_repeated_steps_have_the_same_bits(settings, sparse):
    check_bits(make(n=300, sparse=sparse), settings)


@pytest.mark.parametrize("ranks", [2, 4, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("settings", SETTINGS)
def test_repeated_steps_of_several_ranks(settings, ranks):
    if "heads" in settings and ranks == 3:
        settings = {**settings, "heads": 3}
    check_bits(make(n=300, directed=ranks == 4), settings, ranks)


def test_delayed_sums_are_not_repeated():
    settings = {"strategy": "vertex-cut", "delay": "2"}
    results, replays = trained(make(n=300), settings, True, 2)
    assert [each.turn for each in replays[::2]] == 2 * [step_replay.REFUSED]
    assert results == trained(make(n=300), settings, False, 2)[0]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("graph, settings", OTHER_TASKS)
def test_repeated_steps_of_other_tasks(graph, settings, ranks):
    check_bits(graph(), settings, ranks)


def test_repeated_steps_of_ranks_that_share_targets():
    check_bits(with_targets(make(n=300), 3), {"strategy": "2d"}, 4)


def test_steps_with_an_effect_that_is_not_recorded_are_computed(monkeypatch, caplog):
    make_trainer(make(), Config(), SerialComm(), warm=False)  # loads what is patched
    from hpgcn.model.loss import Loss

    gradient = Loss.gradient

    def scaled(self, logits, out=None):
        loss, G = gradient(self, logits, out)
        G *= np.float32(2)
        return loss, G

    monkeypatch.setattr(Loss, "gradient", scaled)
    for ranks in (1, 2):
        results, replays = trained(make(n=300), {}, True, ranks)
        assert [each.turn for each in replays[::2]] == ranks * [step_replay.REFUSED]
        assert results == trained(make(n=300), {}, False, ranks)[0]


def test_steps_are_recorded_again_if_arrays_are_replaced():
    graph = make(n=300)
    trainer = make_trainer(graph, Config(), SerialComm(), warm=False)
    for number in range(1, 6):
        trainer.train_epoch(number)
    replay, first = trainer.training.replay, trainer.training.replay.replay
    workspace = trainer.training.model.workspace
    workspace.reserve({name: (each.size, each.dtype) for name, each in workspace.arrays.items()})
    for number in range(6, 9):
        trainer.train_epoch(number)
    assert replay.replay is not None and replay.replay is not first


def test_a_fault_keeps_steps_from_being_recorded(monkeypatch):
    monkeypatch.setenv("HPGCN_FAULT", "raise:0:9:loss")
    assert not step_replay.may_replay(SerialComm())


@pytest.mark.parametrize("settings", SETTINGS)
def test_repeated_steps_on_a_gpu(settings, gpu):
    check_bits(make(n=300, sparse=settings.get("model") == "gin"), settings, device=gpu)


@pytest.mark.parametrize("graph, settings", OTHER_TASKS)
def test_repeated_steps_of_other_tasks_on_a_gpu(graph, settings, gpu):
    check_bits(graph(), settings, device=gpu)


def test_what_depends_on_the_step_is_made_anew():
    recording = Recording(1, lambda: "all")
    x, vertex = np.ones((40, 8)), np.arange(40)
    key = {"seed": 1, "layer": 0, "p": 0.5}
    with recording.active():
        out = cpu.dropout(x, vertex, epoch=1, **key)
        total = derived(np.sum, out)
        repeat(np.negative, out, out)
        assert of_step(int, 1) == 1
    assert not recording.refusal
    replay = Replay(recording)
    for step in (1, 7):
        replay.run(step)
        expected = cpu.dropout(x, vertex, epoch=step, **key)
        np.testing.assert_array_equal(out, -expected)
        assert total == expected.sum()
    assert set(replay.seconds) == {"all"} and replay.seconds["all"] > 0


def test_another_step_refuses_a_recording():
    recording = Recording(1, lambda: None)
    with recording.active():
        cpu.dropout(np.ones((4, 8)), np.arange(4), epoch=2, seed=1, layer=0, p=0.5)
    assert recording.refusal == "a kernel reads step 2"


LAUNCHES = {"gcn": 44, "sage-mean": 61, "gat": 104}  # at most, if Python computes a step


@pytest.mark.parametrize("kind", LAUNCHES)
def test_launches_of_a_step_on_a_gpu(kind, gpu, cuda):
    """A repeated step is one graph, and launches of words, optimizer and checks of numbers."""
    if cuda is None:
        pytest.skip("launches of a real GPU are not counted")
    for replay, most in (("never", LAUNCHES[kind]), ("auto", 10)):
        comm = SerialComm()
        comm.use(gpu)
        config = Config(**{"dropout": 0.4, "hidden": 16, "layers": 3, "replay": replay,
                           **KINDS[kind]})
        trainer = make_trainer(make(n=300), config, comm, warm=False)
        for number in range(1, 5):
            trainer.train_epoch(number)
        Stream.launches.clear()
        trainer.train_epoch(5)
        assert Stream.launches.total() <= most, Stream.launches
        assert Stream.launches["graph"] == (replay == "auto")


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("changes", [
    {}, {"decoder": "hadamard:2", "negatives": "uniform:3"}, {"negatives": "shared:9"}], ids=str)
def test_repeated_steps_on_links(changes, ranks):
    settings = {"task": "links", "output_width": 6, "strategy": "p2p", **changes}
    replays = check_bits(with_links(make(n=300)), settings, ranks)
    assert [each.turn for each in replays] == 2 * ranks * [step_replay.REPEAT]


def test_repeated_steps_on_links_on_a_gpu(gpu):
    check_bits(with_links(make(n=300)), {"task": "links", "output_width": 6}, device=gpu)
