"""The path through the house by its commands: raw data, graph, parts, ranks, predictions; and every refusal's code."""
import json
import pickle

import numpy as np
import pytest
from commands import hpgcn, refused, succeed

from hpgcn import load, predict, store


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """digits.h5, and digits.p3.h5 in 3 parts."""
    pytest.importorskip("sklearn", reason="digits need scikit-learn: pip install 'hpgcn[demo]'")
    pytest.importorskip("mtkahypar", reason="needs pip install 'hpgcn[partition]'")
    folder = tmp_path_factory.mktemp("digits")
    assert "1797 vertices, 24678 edges, undirected" in succeed("convert", "digits", folder / "digits.h5")
    table = json.loads(succeed("partition", folder / "digits.h5", "-k", 3, "--json"))
    assert table["k"] == 3
    assert 100 < table["volume"] < 600  # at random it is about 3,000
    return folder


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_one_rank_and_three_find_the_same(digits, tmp_path):
    settings = ("--hidden", 32, "--epochs", 60, "--dtype", "float64")
    succeed("train", digits / "digits.h5", *settings, "--out", tmp_path / "one")
    printed = succeed("train", digits / "digits.p3.h5", *settings, "--out", tmp_path / "three", ranks=3)
    one, three = summary_of(tmp_path / "one"), summary_of(tmp_path / "three")
    np.testing.assert_allclose(losses_of(tmp_path / "three"), losses_of(tmp_path / "one"), rtol=1e-9)
    assert (one["best_epoch"], one["test_acc"]) == (three["best_epoch"], three["test_acc"])
    assert one["test_acc"] > 0.95
    assert three["ranks"] == 3
    assert three["sent_bytes_per_epoch"] == three["predicted_bytes_per_epoch"] > 0
    assert three["sent_messages_per_epoch"] == three["predicted_messages_per_epoch"] > 0
    assert f"{three['sent_bytes_per_epoch']:,} sent" in printed

    succeed("predict", tmp_path / "one")
    succeed("predict", tmp_path / "three", digits / "digits.p3.h5", ranks=3)
    with pytest.raises(AssertionError):
        succeed("predict", tmp_path / "one")  # predictions exist
    found, again = (store.read_predictions(tmp_path / name / "predictions.h5")[0] for name in ("one", "three"))
    np.testing.assert_allclose(found["logits"], again["logits"], atol=1e-8)
    graph = store.load(digits / "digits.h5")
    test = graph.masks["test"]
    assert np.mean(found["label"][test] == graph.labels[test]) == pytest.approx(one["test_acc"])
    assert found["embedding"].shape == (1797, 32)


def test_same_command_twice_is_the_same_to_the_bit(digits, tmp_path):
    for name in ("a", "b"):
        succeed("train", digits / "digits.p3.h5", "--epochs", 10, "--out", tmp_path / name, ranks=3)
    assert losses_of(tmp_path / "a") == losses_of(tmp_path / "b")
    a, b = (store.read_model(tmp_path / name / "model.h5")[0] for name in ("a", "b"))
    assert all(a[key].tobytes() == b[key].tobytes() for key in a)


def test_an_unpartitioned_graph_is_partitioned_once(digits, tmp_path):
    graph = tmp_path / "g.h5"
    graph.write_bytes((digits / "digits.h5").read_bytes())
    first = hpgcn("train", graph, "--epochs", 3, "--out", tmp_path / "a", ranks=2)
    assert first.returncode == 0, first.stderr
    assert "partitioning" in first.stderr
    made = (tmp_path / "g.p2.h5").read_bytes()
    second = hpgcn("train", graph, "--epochs", 3, "--out", tmp_path / "b", ranks=2)
    assert second.returncode == 0, second.stderr
    assert "using the partition in" in second.stderr
    assert (tmp_path / "g.p2.h5").read_bytes() == made
    assert losses_of(tmp_path / "a") == losses_of(tmp_path / "b")


def test_a_partition_of_the_users_own_is_left_alone(digits, tmp_path):
    graph = tmp_path / "g.h5"
    graph.write_bytes((digits / "digits.h5").read_bytes())
    succeed("partition", graph, "-k", 2, "--method", "random")
    mine = (tmp_path / "g.p2.h5").read_bytes()
    succeed("train", graph, "--epochs", 2, "--out", tmp_path / "a", ranks=2)
    assert (tmp_path / "g.p2.h5").read_bytes() == mine
    assert (tmp_path / "g.p2-hypergraph-0.h5").exists()


def test_parts_from_a_file(digits, tmp_path):
    parts = np.arange(1797) % 2
    np.save(tmp_path / "parts.npy", parts)
    (tmp_path / "parts.txt").write_text("\n".join(map(str, parts)) + "\n")
    for name in ("parts.npy", "parts.txt"):
        out = tmp_path / f"{name}.h5"
        succeed("partition", digits / "digits.h5", "-k", 2, "--parts", tmp_path / name, "-o", out)
        np.testing.assert_array_equal(store.load(out).partition.part, parts)
    (tmp_path / "short.txt").write_text("0\n1\n")
    assert "short.txt" in refused(65, "partition", digits / "digits.h5", "-k", 2, "--parts", tmp_path / "short.txt",
                                  "-o", tmp_path / "x.h5")


def test_an_empty_part_trains(digits, tmp_path):
    np.save(tmp_path / "parts.npy", np.arange(1797) % 2 * 2)
    succeed("partition", digits / "digits.h5", "-k", 3, "--parts", tmp_path / "parts.npy", "-o", tmp_path / "p.h5")
    succeed("train", tmp_path / "p.h5", "--epochs", 5, "--out", tmp_path / "a", ranks=3)
    succeed("train", digits / "digits.h5", "--epochs", 5, "--out", tmp_path / "b")
    np.testing.assert_allclose(losses_of(tmp_path / "a"), losses_of(tmp_path / "b"), rtol=1e-5)


def test_settings_from_a_file_and_flags_over_them(digits, tmp_path):
    (tmp_path / "run.toml").write_text("hidden = 8\nepochs = 2\n")
    succeed("train", digits / "digits.h5", "--config", tmp_path / "run.toml", "--epochs", 3, "--out", tmp_path / "a")
    assert summary_of(tmp_path / "a")["epochs"] == 3
    assert store.read_model(tmp_path / "a" / "model.h5")[0]["W0"].shape == (64, 8)
    # the file that a run leaves takes the run back
    succeed("train", digits / "digits.h5", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    assert losses_of(tmp_path / "a") == losses_of(tmp_path / "b")
    (tmp_path / "run.toml").write_text("hiden = 8\n")
    assert "did you mean hidden?" in refused(2, "train", digits / "digits.h5", "--config", tmp_path / "run.toml")


def test_the_default_run_directory_is_new_each_time(digits, tmp_path):
    for _ in range(2):
        printed = json.loads(succeed("train", digits / "digits.h5", "--epochs", 1, "--json", cwd=tmp_path))
        assert summary_of(tmp_path / printed["out"]) == printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-digits-1", "run-digits-2"]
    line = refused(73, "train", digits / "digits.h5", "--out", "run-digits-1", cwd=tmp_path)
    assert "run-digits-1: run directory exists" in line


def test_ranks_against_parts(digits, tmp_path):
    for ranks in (2, None):
        line = refused(78, "train", digits / "digits.p3.h5", "--out", tmp_path / "a", ranks=ranks)
        assert f"partition has 3 parts but {ranks or 1} ranks started" in line
    assert not (tmp_path / "a" / "summary.json").exists()


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch executed",)


def test_multi_label_predictions(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.random((120, 4)) < 0.4
    np.savez(tmp_path / "g.npz", edge_index=rng.integers(0, 120, (2, 40)), x=y + rng.random((120, 4)), y=y,
             train_idx=np.arange(60), val_idx=np.arange(60, 90), test_idx=np.arange(90, 120))
    succeed("convert", tmp_path / "g.npz", tmp_path / "g.h5", "--symmetrize")
    np.save(tmp_path / "classes.npy", np.arange(120) % 3)
    succeed("convert", tmp_path / "g.npz", tmp_path / "classes.h5", "--labels", tmp_path / "classes.npy")
    succeed("partition", tmp_path / "g.h5", "-k", 3, "--method", "random")
    found = []
    for name, graph, ranks in (("one", "g.h5", None), ("three", "g.p3.h5", 3)):
        run = tmp_path / name
        succeed("train", tmp_path / graph, "--epochs", 60, "--lr", "0.05", "--input-dropout", 0, "--out", run,
                ranks=ranks)
        succeed("predict", run, ranks=ranks)
        succeed("predict", run, tmp_path / "classes.h5", "-o", run / "others.h5")  # the model knows, not the graph
        for file in ("predictions.h5", "others.h5"):
            arrays, _ = store.read_predictions(run / file)
            assert arrays["label"].dtype == np.uint8
            np.testing.assert_array_equal(arrays["label"], arrays["logits"] > 0)
        found.append(store.read_predictions(run / "predictions.h5")[0])
        assert np.mean(found[-1]["label"] == y) > 0.7
    np.testing.assert_allclose(found[0]["logits"], found[1]["logits"], atol=1e-3)
    again = predict(load(tmp_path / "g.h5"), tmp_path / "one")
    np.testing.assert_array_equal(again["label"], found[0]["label"])


def test_bad_files_have_their_codes(digits, tmp_path):
    whole = (digits / "digits.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[:len(whole) // 2])
    (tmp_path / "text.h5").write_text("not HDF5\n")
    (tmp_path / "empty.h5").write_bytes(b"")
    flipped = bytearray(whole)
    at = whole.index(store.load(digits / "digits.h5").features[100:110].tobytes())
    flipped[at + 5] ^= 16
    (tmp_path / "flipped.h5").write_bytes(flipped)
    assert "none.h5" in refused(66, "train", tmp_path / "none.h5")
    for name in ("cut.h5", "text.h5", "empty.h5"):
        assert name in refused(65, "train", tmp_path / name, cwd=tmp_path)
        assert name in refused(65, "inspect", tmp_path / name)
    assert "features" in refused(74, "train", tmp_path / "flipped.h5", cwd=tmp_path)
    assert "none" in refused(66, "convert", tmp_path / "none.txt", tmp_path / "out.h5")
    assert refused(66, "train", tmp_path / "none.h5", ranks=2)
    assert refused(65, "train", tmp_path / "cut.h5", ranks=2)
    for key in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        (tmp_path / f"ind.evil.{key}").write_bytes(pickle.dumps(Evil(), protocol=2))
    (tmp_path / "ind.evil.test.index").write_text("1\n")
    assert "forbidden global" in refused(65, "convert", tmp_path / "ind.evil.x", tmp_path / "out.h5", cwd=tmp_path)
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "out.h5").exists()
    assert "out.h5" not in {path.name for path in tmp_path.iterdir()}


def test_outputs_are_not_overwritten_unless_asked(digits, tmp_path):
    out = tmp_path / "k.h5"
    succeed("convert", "karate", out)
    before = out.read_bytes()
    assert "k.h5" in refused(73, "convert", "karate", out)
    assert out.read_bytes() == before
    succeed("convert", "karate", out, "--overwrite")
    assert "k.p2.h5" in succeed("partition", out, "-k", 2, "--method", "block")
    assert refused(73, "partition", out, "-k", 2, "--method", "block")


def test_usage_errors_are_2(tmp_path):
    for args in ((), ("trian",), ("train",), ("train", "x.h5", "--strategy", "9d"), ("convert", "digits")):
        assert hpgcn(*args).returncode == 2
    assert hpgcn("train", "x.h5", "--hidden", "0").returncode == 2


def test_help_and_version():
    assert "train" in succeed("--help")
    assert "--weight-decay" in succeed("train", "--help")
    assert succeed("--version").startswith("hpgcn 0.")


def test_generated_graph_trains(tmp_path):
    succeed("generate", "sbm", tmp_path / "g.h5", "--scale", 9, "--features", 8, "--classes", 4)
    succeed("train", tmp_path / "g.h5", "--epochs", 30, "--out", tmp_path / "run")
    assert summary_of(tmp_path / "run")["test_acc"] > 0.6
    assert "512" in succeed("inspect", tmp_path / "g.h5", "--verify")
