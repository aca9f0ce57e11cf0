"""The training recipe of Platonov et al. on a made-up graph in the published format."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT


@pytest.mark.long
@pytest.mark.parametrize("model", ["gcn", "gat"])  # sage is no case of its own in the script
def test_the_recipe_runs_on_all_splits(tmp_path, model, forked):
    rng = np.random.default_rng(0)
    n, splits = 90, 3
    y = np.arange(n) % 2
    edges = np.unique(np.sort(rng.integers(0, n, (300, 2))), axis=0)
    order = np.argsort(rng.random((splits, n)))
    masks = {f"{name}_masks": np.isin(order, range(*ends))
             for name, ends in (("train", (0, 45)), ("val", (45, 68)), ("test", (68, n)))}
    X = rng.standard_normal((n, 10)) + y[:, None]
    np.savez(tmp_path / "tolokers.npz", node_features=X.astype(np.float32), node_labels=y,
             edges=edges[edges[:, 0] < edges[:, 1]], **masks)
    command = ["bash", ROOT / "scripts" / "heterophilous.sh", "tolokers.npz", model,
               "--hidden", "16", "--epochs", "25", "--lr", "0.01"]
    path = os.pathsep.join([forked, str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PATH": path}, text=True,
                           capture_output=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "roc-auc" in ended.stdout
    mean = next(line for line in ended.stdout.splitlines() if line.startswith("mean"))
    assert float(mean.split()[1].rstrip("%")) > 80
    assert len(list((tmp_path / f"tolokers-{model}").glob("split-*/summary.json"))) == splits
