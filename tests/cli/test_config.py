"""Settings: ranges, TOML round trip, suggestions, help texts, and words for None."""
import dataclasses
import math
import re

import numpy as np
import pytest
import site_tables
from checkout import ROOT
from commands import hpgcn as process
from commands import refused, run
from graphs import make

import hpgcn
from hpgcn import setting_words, store
from hpgcn.config import SHOWN, Config, read_settings
from hpgcn.errors import InputNotFoundError, UsageError
from hpgcn.model import find_model
from hpgcn.model.registry import model_kinds
from hpgcn.setting_field import values_of
from hpgcn.strategies import (
    STRATEGIES,
    find_strategy,
    keeps_rows,
    read_options,
    strategy_setting,
)


def test_toml_round_trip(tmp_path):
    config = Config(graph='a "quoted"\\ path\n.h5', dropout=0.25, hidden=64, seed=2**62,
                    memory="1.5G", comm_timeout=5.0, strategy="a word of a stranger's")
    (tmp_path / "run.toml").write_text(config.to_toml())
    settings = read_settings(tmp_path / "run.toml")
    assert Config(**settings) == config
    assert len(settings) == len(dataclasses.fields(Config))
    assert config.first_dropout == 0.25  # equals dropout unless given
    assert config.replace(input_dropout=0).first_dropout == 0


def test_files_of_earlier_versions_open(tmp_path):
    """`read_settings` translates settings that earlier versions named differently."""
    (tmp_path / "run.toml").write_text("stages = 3\n")
    assert read_settings(tmp_path / "run.toml") == {"pipeline_batches": 3}


@pytest.mark.parametrize("former, present", [
    ({"strategy": "2d", "grid": "4x2"}, {"strategy": "2d:4x2"}),
    ({"strategy": "1.5d", "replication": 2}, {"strategy": "1.5d:2"}),
    ({"strategy": "p2p+cover", "balance": 0.1}, {"strategy": "p2p+cover:0.1"}),
    ({"strategy": "mop", "pipeline_batches": 8}, {"strategy": "mop:8"}),
    ({"delay": "3", "delay_variant": "paper"}, {"delay": "paper:3"}),
    ({"schedule": "step", "step_every": 5}, {"schedule": "step:5:0.1"}),
    ({"schedule": "step", "step_factor": 0.5}, {"schedule": "step:100:0.5"}),
    ({"schedule": "cosine", "step_every": 7}, {"schedule": "cosine"}),
    ({"layer_norm": True}, {"norm": "layer"})], ids=str)
def test_settings_of_earlier_versions_are_words(caplog, former, present):
    """Keywords of earlier versions have the same effect as words, and a line says these."""
    setting_words._log_once.cache_clear()
    ours, theirs = Config(**former), Config(**present)
    if "strategy" in former:
        options = read_options(ours)
        assert dataclasses.replace(options, config=theirs) == read_options(theirs)
        assert strategy_setting(options.strategy, options) == theirs.strategy
    else:
        assert ours == theirs
    (name, value), = present.items()
    lines = [record.getMessage() for record in caplog.records]
    written = [] if value == "cosine" else [f": now written {name} = {value!r}"]
    assert [line[line.index(":"):] for line in lines] == written


@pytest.mark.long
def test_flags_of_earlier_versions_are_understood(tmp_path):
    store.write_graph(tmp_path / "g.h5", make(n=40))
    ran = process("train", tmp_path / "g.h5", "--strategy", "2d", "--grid", "2x1", "--ranks", 2,
              "--epochs", 1, "--no-prune", "--out", tmp_path / "run")
    lines = ran.stderr.splitlines()
    assert not ran.returncode
    assert "hpgcn: --grid 2x1: now written --strategy 2d:2x1" in lines
    assert sum("--no-prune: --no-shortcuts turns off all" in line for line in lines) == 1
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'strategy = "2d:2x1"' in text and "grid =" not in text
    shown = run("train", "--help-all").stdout
    assert "--grid" not in shown and "--prune" not in shown and "--no-shortcuts" in shown


NUMBERS = [entry for entry in dataclasses.fields(Config) if entry.type in ("int", "float")]
HUGE = 10**5000  # more digits than Python prints


@pytest.mark.parametrize("entry", NUMBERS, ids=lambda entry: entry.name)
def test_every_number_has_bounds_and_a_type(entry):
    low, high = entry.metadata["low"], entry.metadata["high"]
    assert low is not None
    above = [high + 1] if high else []
    values = low - 1, -1e300, math.nan, math.inf, -math.inf, HUGE, -HUGE, [HUGE], True, "1", None
    message = rf"^{entry.name}( = .{{1,80}})?: expected [^\n]{{1,80}}$"
    for value in (*values, 1j, *above):
        with pytest.raises(UsageError, match=message):
            Config(**{entry.name: value})
    good = 0 if high == 1 else 1
    for kind in (int, np.int64, *((float, np.float32) if entry.type == "float" else ())):
        value = getattr(Config(**{entry.name: kind(good)}), entry.name)
        assert (value, type(value).__name__) == (good, entry.type)


@pytest.mark.parametrize("change, message", [
    ({"comm_timeout": 0}, "comm_timeout = 0.0: expected 0.001 to 1000000000"),
    ({"input_dropout": -0.5}, r"input_dropout = -0.5: expected 0 to 1, or -1 \(same as dropout\)"),
    ({"hidden": 0}, "hidden = 0: expected 1 to 16777216"), ({"hidden": 2.5}, "= 2.5: expected int"),
    ({"dropout": 1.0}, "dropout = 1.0: expected at least 0 and below 1"),
    ({"dropout": 0.999999}, "drops everyth"),
    *(({"memory": text}, "is not a size") for text in ("much", "-1", "0", "1e300")),
    ({"lr": "fast"}, "expected float"), ({"optimizer": "adamm"}, "did you mean adam"),
    ({"aggregate_on": "cuda", "update_on": "cpu"}, "needs update_on = 'cuda'")])
def test_bad_values(change, message):
    with pytest.raises(UsageError, match=message):
        Config(**change)


def test_unknown_keys_get_a_suggestion(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("hiden = 3\n")
    with pytest.raises(UsageError, match=r"run.toml: key 'hiden' is unknown; did you mean hidden"):
        read_settings(path)
    with pytest.raises(UsageError, match="unknown"):
        Config().replace(weight_dacay=1)
    with pytest.raises(UsageError, match="setting 'hiden' is unknown; did you mean hidden"):
        Config(hiden=3)
    huge = "0x" + "f" * 5000
    for text in (huge, "9" * 5000, f"[[{huge}]]", "[" * 100_000, "= 3"):
        path.write_text(f"hidden = {text}\n")
        with pytest.raises(UsageError, match=r"^[^\n]*run\.toml: [^\n]{1,200}$"):
            read_settings(path)
    with pytest.raises(InputNotFoundError):
        read_settings(tmp_path / "none.toml")


def test_every_field_is_documented():
    """The site lists every setting in docs/config.md, and `help(hpgcn.Config)` has it."""
    assert "\n<!-- table: settings -->\n" in (ROOT / "docs" / "config.md").read_text()
    listed = site_tables.settings()
    assert "- `hops` (int from 0 to 1000; default 0): sgc and appnp only. Number of" in listed
    for entry in SHOWN:
        assert entry.metadata["help"] and f"- `{entry.name}` (" in listed
        text = f"\n{entry.name} : {values_of(entry)}\n    {entry.metadata['help']}"
        assert text in Config.__doc__


WHOLE = [name for name, strategy in STRATEGIES.items() if keeps_rows(strategy)]
WORDS = [
    ({"strategy": "9d"},
     f"strategy = '9d': expected one of auto, {', '.join(STRATEGIES)}, auto-per-layer, or one "
     f"for each product with A, such as {WHOLE[-1]}+{WHOLE[0]}"),
    ({"delay": "5"}, "delay = '5': only for strategy vertex-cut; add strategy='vertex-cut'"),
    ({"aggregate_on": "cpu"}, "aggregate_on = 'cpu': only for strategy mop; add strategy='mop'"),
    ({"strategy": "1d", "update_on": "cpu"},
     "update_on = 'cpu': only for strategy mop; add strategy='mop'"),
    ({"strategy": "p2p:3"},
     "strategy = 'p2p:3': a word is only for strategies cover, 1.5d, 2d, 3d and mop, not p2p"),
    ({"strategy": "1.5d:two"}, "strategy = '1.5d:two': 'two': expected int"),
    ({"strategy": "cover:-1"}, "strategy = 'cover:-1': '-1': expected at least 0"),
    ({"model": "mlp"}, f"model = 'mlp': expected one of {', '.join(model_kinds())}"),
    ({"model": "sage", "aggregator": "max"}, "aggregator = 'max': expected one of mean, gcn"),
    ({"model": "gin", "aggregator": "gcn"}, "aggregator = 'gcn': only for model sage"),
    ({"model": "sage", "norm_adj": "in"},
     "norm_adj = 'in': model sage-mean always uses norm_adj row")]


@pytest.mark.parametrize("settings, message", WORDS, ids=str)
def test_words_that_name_nothing(settings, message):
    config = Config(**settings)  # any word is accepted here: strategies and models refuse it
    for use in (lambda: (find_strategy(read_options(config)),
                         find_model(config)),
                lambda: hpgcn.train(make(n=40), config)):
        with pytest.raises(UsageError) as error:
            use()
        assert str(error.value) == message


@pytest.mark.long
@pytest.mark.parametrize("settings, message", WORDS, ids=str)
def test_words_that_name_nothing_on_the_command_line(tmp_path, settings, message):
    store.write_graph(tmp_path / "g.h5", make(n=40))
    (tmp_path / "run.toml").write_text(Config(**settings).to_toml())
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    for given in (flags, ["--config", tmp_path / "run.toml", "--dry-run"]):
        line = refused(2, "train", tmp_path / "g.h5", *given, cwd=tmp_path)
        said = re.sub(r"(\w+) = '([^']*)':",  # settings are flags on the command line
                      lambda match: f"--{match[1].replace('_', '-')} {match[2]}:", message)
        said = re.sub(r"strategy='(.*)'", r"--strategy \1", said)
        assert line == f"hpgcn: {said}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.h5", "run.toml"]
