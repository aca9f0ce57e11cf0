"""Files of each release since 0.2 are read; see docs/files.md, Versions."""
import json
import shutil
from contextlib import closing

import numpy as np
import pytest
from checkout import ROOT
from released_files import SETTINGS, make_graph

import hpgcn

FOLDERS = sorted((ROOT / "tests" / "store" / "released").iterdir())


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name)
def released(request, tmp_path):
    """Return a copy of the files of a release."""
    return shutil.copytree(request.param, tmp_path / "released")


def test_a_graph_is_what_was_written(released):
    original = make_graph()
    with closing(hpgcn.load(released / "graph.h5")) as graph:
        (A, X, y, masks), (made_A, made_X, made_y, made) = graph.to_scipy(), original.to_scipy()
        assert abs(A - made_A).nnz == 0
        np.testing.assert_array_equal(X, made_X)
        np.testing.assert_array_equal(y, made_y)
        np.testing.assert_equal(masks, made)
        rows = graph.links["test"].read().positive
        assert graph.vertices(0, 12)[rows].tolist() == [[4, 11]]


def test_a_model_predicts_what_it_did(released):
    found = hpgcn.predict(released / "graph.h5", released / "run", ranks=2)
    expected = json.loads((released / "expected.json").read_text())
    assert [*map(str, found["id"])] == expected["id"]
    np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-6)


def test_a_checkpoint_is_resumed(released):
    expected = json.loads((released / "expected.json").read_text())
    config = hpgcn.Config(**{**SETTINGS, "epochs": 3, "out": str(released / "run")})
    result = hpgcn.train(released / "graph.h5", config, ranks=2, resume=released / "run")
    np.testing.assert_allclose([each["loss"] for each in result.history][:2], expected["loss"],
                               rtol=1e-6)
