"""Settings: ranges, TOML round trip, suggestions, what is said of each."""
import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from hpgcn.config import Config, values_of
from hpgcn.errors import InputNotFoundError, UsageError


def test_toml_round_trip(tmp_path):
    config = Config(graph='a "quoted"\\ path\n.h5', dropout=0.25, hidden=64, seed=2**62, comm_timeout=5.0)
    (tmp_path / "run.toml").write_text(config.to_toml())
    assert Config(**Config.from_toml(tmp_path / "run.toml")) == config
    assert len(Config.from_toml(tmp_path / "run.toml")) == len(dataclasses.fields(Config))


BAD = [
    ({"hidden": 0}, "hidden = 0: expected 1 to 16777216"),
    ({"hidden": 2.5}, "hidden = 2.5: expected int"),
    ({"hidden": True}, "expected int"),
    ({"dropout": 1.0}, "dropout = 1.0: expected 0 to 1"),
    ({"dropout": 0.999999}, "drops everything"),
    ({"dropout": -0.1}, "dropout = -0.1"),
    ({"lr": float("nan")}, "lr = nan"),
    ({"lr": "fast"}, "expected float"),
    ({"optimizer": "adamm"}, "did you mean adam"),
    ({"strategy": "9d"}, "expected one of p2p"),
    ({"seed": -1}, "seed = -1"),
]


NUMBERS = [entry for entry in dataclasses.fields(Config) if entry.type in ("int", "float")]
HUGE = 10**5000  # more digits than Python prints


@pytest.mark.parametrize("entry", NUMBERS, ids=lambda entry: entry.name)
def test_every_number_has_bounds_and_a_type(entry):
    low, high = entry.metadata["low"], entry.metadata["high"]
    assert low is not None
    for value in (low - 1, -1e300, math.nan, math.inf, -math.inf, HUGE, -HUGE, [HUGE], True, "1", None, 1j,
                  *([high + 1] if high else [])):
        with pytest.raises(UsageError, match=rf"^{entry.name}( = .{{1,80}})?: expected [^\n]{{1,80}}$"):
            Config(**{entry.name: value})
    good = 0 if high == 1 else 1
    for kind in (int, np.int64, *((float, np.float32) if entry.type == "float" else ())):
        value = getattr(Config(**{entry.name: kind(good)}), entry.name)
        assert (value, type(value).__name__) == (good, entry.type)


@pytest.mark.parametrize("change, message", [
    ({"comm_timeout": 0}, "comm_timeout = 0.0: expected 0.001 to 1000000000"),
    ({"comm_timeout": 1e300}, "comm_timeout = 1e.300: expected"),
    ({"input_dropout": -0.5}, r"input_dropout = -0.5: expected 0 to 1, or -1 \(as dropout\)"), *BAD])
def test_bad_values(change, message):
    with pytest.raises(UsageError, match=message):
        Config(**change)


def test_unknown_keys_get_a_suggestion(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("hiden = 3\n")
    with pytest.raises(UsageError, match=r"run.toml: key 'hiden' is unknown; did you mean hidden\?"):
        Config.from_toml(path)
    with pytest.raises(UsageError, match="unknown"):
        Config().replace(weight_dacay=1)
    for text in ("0x" + "f" * 5000, "9" * 5000, "[[0x" + "f" * 5000 + "]]", "[" * 100_000):
        path.write_text(f"hidden = {text}\n")
        with pytest.raises(UsageError, match=r"^[^\n]*run\.toml: [^\n]{1,200}$"):
            Config.from_toml(path)
    path.write_text("hidden = = 3\n")
    with pytest.raises(UsageError, match=r"run\.toml"):
        Config.from_toml(path)
    with pytest.raises(InputNotFoundError):
        Config.from_toml(tmp_path / "none.toml")


def test_first_dropout_follows_dropout_unless_given():
    assert Config(dropout=0.3).first_dropout == 0.3
    assert Config(dropout=0.3, input_dropout=0).first_dropout == 0


def test_every_field_is_documented():
    """docs/config.md has these lines and no other rows; `help(hpgcn.Config)` has them, too."""
    expected = [f"| `{entry.name}` | {entry.metadata['help']} | {values_of(entry)} |".replace("''", "empty")
                for entry in dataclasses.fields(Config)]
    text = (Path(__file__).parents[1] / "docs" / "config.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("| `")] == expected
    for entry in dataclasses.fields(Config):
        assert entry.metadata["help"]
        assert f"\n{entry.name} : {values_of(entry)}\n    {entry.metadata['help']}" in Config.__doc__
