"""Commands in forks of one process behave like processes of their own."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import clean_environment


@pytest.fixture
def shell(forked, tmp_path):
    """Return a function that runs a line of bash with forked commands."""
    path = os.pathsep.join([forked, str(Path(sys.executable).parent), os.environ["PATH"]])

    def shell(line):
        return subprocess.run(["bash", "-c", line], cwd=tmp_path, text=True, capture_output=True,
                              env={**clean_environment(), "PATH": path}, timeout=60, check=False)

    return shell


@pytest.mark.long
def test_streams_folder_environment_and_exit_codes(shell, tmp_path):
    (tmp_path / "a.py").write_text(
        "import os, sys\nprint(sys.argv, input(), os.environ['B'], os.getcwd())\nsys.exit(5)")
    done = shell("echo in | B=7 python a.py 1 | tee copy; echo ${PIPESTATUS[1]}; cat copy >&2")
    line = f"['a.py', '1'] in 7 {tmp_path}\n"
    assert (done.stdout, done.stderr) == (f"{line}5\n", line)
    done = shell("hpgcn train --nonsense")
    assert (done.returncode, done.stdout) == (2, "") and "required: graph" in done.stderr
    (tmp_path / "b.py").write_text("1 / 0")
    done = shell("python b.py")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
    assert "required: graph" in shell("python -m hpgcn train --nonsense").stderr
    assert shell("python -c 'exit(4)'").returncode == 4


@pytest.mark.long
def test_signals_of_a_fork_and_of_its_client(shell, tmp_path):
    (tmp_path / "a.py").write_text("import os\nos.kill(os.getpid(), 15)")
    assert shell("python a.py").returncode == -15
    (tmp_path / "b.py").write_text(
        "import os, time\nopen('id', 'w').write(str(os.getpid()))\ntime.sleep(60)")
    done = shell("python b.py & while [ ! -s id ]; do sleep 0.05; done; kill -9 $!; "
                 "while kill -0 $(cat id); do sleep 0.05; done")
    assert done.returncode == 0 and "No such process" in done.stderr
