"""Turns of all settings touch the arrays that their plan names, and have the bits in memory."""
import json
import os

import pytest
from checkout import ROOT
from commands import python
from scratch_settings import FIRST, SAMPLERS, groups


def check(folder, shape, strategy, settings):
    """Train in a process where accesses fault that the plan leaves out."""
    texts = [json.dumps({"strategy": strategy} | each) for each in settings]
    ended = python(ROOT / "tests" / "support" / "scratch_models.py", folder, shape, *texts,
                   HPGCN_CHECK_RESIDENCY="1", timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not os.listdir(folder)


@pytest.mark.parametrize("strategy, shape", [("p2p", "symmetric"), ("vertex-cut", "directed")])
def test_first_settings(strategy, shape, tmp_path):
    """Other accesses fault, and contents that were dropped too early change results."""
    check(tmp_path, shape, strategy, FIRST[:2] if shape == "symmetric" else FIRST[2:])


@pytest.mark.long
def test_first_sampler(tmp_path):
    check(tmp_path, "symmetric", "cover", SAMPLERS[:1])


@pytest.mark.long
@pytest.mark.parametrize("strategy, shape", [
    ("cover", "directed"), ("1d", "symmetric"), ("mop", "directed"), ("1.5d", "symmetric"),
    ("2d", "directed"), ("3d", "symmetric")])
def test_one_setting_of_others(strategy, shape, tmp_path):
    check(tmp_path, shape, strategy, FIRST[1:2])


@pytest.mark.release
@pytest.mark.parametrize("shape", ["symmetric", "directed"])
@pytest.mark.parametrize("strategy, settings", groups(), ids=[
    f"{strategy}-{number}" for number, (strategy, _) in enumerate(groups())])
def test_whole_table(strategy, settings, shape, tmp_path):
    check(tmp_path, shape, strategy, settings)
