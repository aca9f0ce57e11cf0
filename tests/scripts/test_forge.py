"""Workflows of a forge and images call scripts of this repository, and these exist."""
import os
import re
import subprocess

import pytest
from checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONTAINERS = ROOT / "scripts" / "containers"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_scripts_and_nothing_else(path):
    commands = re.findall(r"run: (?:sudo )?(.*)", path.read_text())
    assert commands and "run: |" not in path.read_text()
    for command in commands:
        script = ROOT / command.split()[0]
        assert script.is_relative_to(ROOT / "scripts") and os.access(script, os.X_OK), command


def test_scripts_of_releases_and_images_parse():
    for path in (ROOT / "scripts" / "release.sh", *CONTAINERS.glob("*.sh")):
        shell = path.read_text().splitlines()[0].removeprefix("#!/usr/bin/env ").removeprefix("#!")
        done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["Dockerfile", "hpgcn.def"])
def test_images_take_the_steps_of_the_script(name):
    text = (CONTAINERS / name).read_text()
    assert "sh /tmp/hpgcn/install.sh" in text and "HPGCN_KERNELS=/opt/hpgcn/kernels" in text
    assert "pip install" not in text and "apt-get" not in text


@pytest.mark.release
def test_the_steps_of_an_image_make_a_container_that_works():
    """Build a root of Debian by the steps of the images, and train in it as another user."""
    built = subprocess.run([ROOT / "scripts" / "release.sh", "--build"], capture_output=True,
                           text=True, check=False, timeout=600)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([CONTAINERS / "try.sh"], capture_output=True, text=True, check=False,
                          timeout=3600)
    if done.returncode in (69, 77):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("== the container works\n")
