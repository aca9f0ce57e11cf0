"""Settings: ranges, TOML round trip, suggestions, what is said of each."""
import dataclasses
from pathlib import Path

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


@pytest.mark.parametrize("change, message", BAD)
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
