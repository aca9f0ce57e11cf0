"""Results of `hpgcn bench tune` are stored and read; invalid ones are ignored; no bit changes."""
import json
import os
import tempfile

import numpy as np
import pytest
import scipy.sparse as sp
from commands import refused, succeed

from hpgcn import bench
from hpgcn.bench import host, tune
from hpgcn.kernels import pack_mask
from hpgcn.kernels.cpu import trusted, tuning
from hpgcn.kernels.cpu.emit import row_passes
from hpgcn.kernels.cpu.tuning import LEVELS, PrefetchDistance, Tuning

KINDS = PrefetchDistance(3, 1, 5, 1), PrefetchDistance(7, 2, 0, 0), PrefetchDistance(2, 3, 9, 2)
OTHER = Tuning(dict.fromkeys(LEVELS, KINDS), streamed=False, blocks=1, entries=False)
QUICK = {"scale_down": 4096, "repeats": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Provide an empty cache folder of the user, and forget tuned values read before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.measured.cache_clear()
    yield tmp_path
    tuning.measured.cache_clear()


def test_what_is_kept_is_used():
    assert tuning.current() is tuning.default()
    file = tuning.save(OTHER)
    assert tuning.measured() == tuning.current() == OTHER
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    with tuning.using(tuning.default()):
        assert tuning.current() is tuning.default()
    assert tuning.current() == OTHER
    assert tuning.forget() == file and tuning.forget() is None
    assert tuning.current() is tuning.default()


@pytest.mark.parametrize(("vendor", "expected"), [
    ("vendor_id : GenuineIntel\n", "INTEL"), ("vendor_id : AuthenticAMD\n", "AMD"),
    ("CPU implementer : 0x41\n", "AMD"), ("", "AMD")])
def test_the_default_is_that_of_a_maker(vendor, expected, monkeypatch):
    monkeypatch.setattr(tuning.Path, "read_text", lambda path: f"processor : 0\n{vendor}\nx : y\n")
    tuning.default.cache_clear()
    try:
        assert tuning.default() is getattr(tuning, expected)
    finally:
        tuning.default.cache_clear()


@pytest.mark.parametrize(("row_bytes", "kind"), [(4, 0), (64, 0), (65, 1), (256, 1), (260, 2)])
def test_rows_of_one_line_of_few_and_of_more(row_bytes, kind, monkeypatch):
    monkeypatch.setattr(tuning, "second_cache", lambda: 1 << 10)
    monkeypatch.setattr(tuning, "last_level_cache", lambda: 1 << 14)
    told = {level: tuple(PrefetchDistance(place, each, 0, 0) for each in range(3))
            for place, level in enumerate(LEVELS)}
    with tuning.using(OTHER._replace(reach=told)):
        for place, size in enumerate((1 << 10, 1 << 13, 1 << 14)):
            distance = tuning.prefetch_distance(size // row_bytes, row_bytes)
            assert distance == PrefetchDistance(place, kind, 0, 0)


def changed(*keys, value):
    """Return the JSON of tuned values with one entry changed, or removed if `value` is None."""
    held = json.loads(json.dumps(tuning.to_json(OTHER)))
    part = held
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    if value is None:
        del part[keys[-1]]
    return json.dumps(held)


REACH = "reach", "last", 1
WRONG = {
    "empty": lambda: "", "garbage": lambda: "\0\1{", "no text": lambda: b"\xff\xfe\x00",
    "deep": lambda: "[" * 100_000, "a list": lambda: "[]", "a number": lambda: "7",
    "truncated": lambda: changed("version", value=1)[:-9],
    "other version": lambda: changed("version", value=tuning.VERSION + 1),
    "other CPU": lambda: changed("cpu", value="another"),
    "no version": lambda: changed("version", value=None),
    "no level": lambda: changed("reach", "last", value=None),
    "level is a number": lambda: changed("reach", "last", value=3),
    "one kind of rows": lambda: changed("reach", "last", value=[{}]),
    "a kind too many": lambda: changed("reach", "last", value=4 * [KINDS[0]._asdict()]),
    "no field": lambda: changed(*REACH, "near", value=None),
    "another field": lambda: changed(*REACH, "nearer", value=3),
    "negative": lambda: changed(*REACH, "far", value=-1),
    "too far": lambda: changed(*REACH, "far", value=1025),
    "a fraction": lambda: changed(*REACH, "near", value=1.5),
    "text": lambda: changed(*REACH, "near", value="8"),
    "a truth": lambda: changed(*REACH, "near", value=True),
    "streamed is text": lambda: changed("streamed", value="no"),
    "entries are a number": lambda: changed("entries", value=1),
    "nothing of entries": lambda: changed("entries", value=None),
    "nothing of stores": lambda: changed("streamed", value=None),
    "half a block": lambda: changed("blocks", value=.5),
    "a block less than none": lambda: changed("blocks", value=-1),
    "blocks beyond reason": lambda: changed("blocks", value=tuning.MOST_BLOCKS + 1),
    "nothing of blocks": lambda: changed("blocks", value=None)}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_not_right_is_ignored(name):
    text = WRONG[name]()
    file = tuning.path()
    file.parent.mkdir()
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert tuning.current() is tuning.default()
    tuning.save(OTHER)
    assert tuning.current() == OTHER


def test_where_nothing_can_be_read(cache, monkeypatch):
    tuning.path().mkdir(parents=True)  # a folder has the file's name
    assert tuning.current() is tuning.default()
    tuning.measured.cache_clear()

    monkeypatch.delenv("XDG_CACHE_HOME")  # a user without a home folder
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(cache))
    assert tuning.current() is tuning.default()
    assert tuning.path().parent == cache / f"hpgcn-{os.geteuid()}" / "hpgcn"


def test_what_cannot_be_kept_is_one_line(cache):
    (cache / "hpgcn").write_text("a file")
    words = "bench tune: the distances cannot be stored: "
    for more in ((), ("--reset",)):
        assert words in refused(73, "bench", "tune", "--threads", 1, *more)


NEAR, FAR = 24, 128  # nonzeros ahead that candidates have, and no default of AMD


def seconds(host, call):
    """Return fake seconds of a product, least for prefetch distances NEAR and FAR and 2 blocks."""
    candidate, _ = call.args
    reaches = [each for kinds in candidate.reach.values() for each in kinds]
    liked = any(each.near == NEAR for each in reaches) + any(each.far == FAR for each in reaches)
    return (3 - liked + candidate.streamed + (candidate.blocks != 2) + candidate.entries,)


def test_the_fastest_is_kept(monkeypatch):
    monkeypatch.setattr(tuning, "default", lambda: tuning.AMD)
    monkeypatch.setattr(host.BenchHost, "seconds", seconds)
    monkeypatch.setattr(tune, "run", lambda candidate, product: None)
    bench.run("tune", bench.Settings(**QUICK))
    kept = tuning.measured()
    for level in LEVELS:
        assert {(each.near, each.far) for each in kept.reach[level]} == {(NEAR, FAR)}, level
    assert (kept.streamed, kept.blocks, kept.entries) == (False, 2, False)


def test_the_default_is_kept_where_nothing_is_faster(monkeypatch):
    monkeypatch.setattr(host.BenchHost, "seconds", lambda self, call: (
        1.0 if call.args[0] == tuning.default() else 0.98,))
    monkeypatch.setattr(tune, "run", lambda candidate, product: None)
    report = bench.run("tune", bench.Settings(**QUICK))
    assert tuning.measured() == tuning.default()
    assert {row["ratio"] for row in report["rows"]} == {1}


@pytest.mark.long
def test_tune():
    words = "bench", "tune", "--scale-down", 4096, "--repeats", 1, "--threads", 1
    report = json.loads(succeed(*words, "--json"), parse_constant=pytest.fail)
    assert report["kept"] == str(tuning.path()) and report["machine"]["tuning"] == "default"
    assert tuning.measured() is not None
    *products, stores, blocks, entries = report["rows"]
    assert [(row["level"], row["row"]) for row in products] == [
        (level, row) for level in LEVELS for row in ("one line", "few lines", "more")]
    kept = tuning.measured()
    for place, row in enumerate(products):
        reach = kept.reach[row["level"]][place % 3]
        assert reach == PrefetchDistance(*(row[field] for field in PrefetchDistance._fields))
        assert row["ratio"] == pytest.approx(row["default_ms"] / row["time_ms"])
        assert row["ratio"] == 1 or row["ratio"] > 1.03
    assert stores["row"] == ("past the cache" if kept.streamed else "into it")
    assert blocks["row"] == (f"{kept.blocks} x second cache" if kept.blocks else "none")

    assert entries["row"] == ("ahead" if kept.entries else "as they come")

    text = succeed(*words)
    heading = next(line for line in text.splitlines() if line.startswith("level"))
    assert " ".join(heading.split()) == "level row near near lines far far lines time default ratio"
    assert f"kept: {tuning.path()}" in text
    assert f"tuning                        {tuning.path()}" in text
    assert f"removed: {tuning.path()}" in succeed(*words, "--reset")
    assert tuning.current() is tuning.default()
    assert "removed: nothing" in succeed(*words, "--reset")


TUNINGS = [OTHER, *(Tuning({level: 3 * (PrefetchDistance(*reach),) for level in LEVELS},
                           True, 0, True)
                    for reach in ((0, 0, 0, 0), (1, 2, 1024, 16)))]


@pytest.mark.parametrize("width, dtype", [  # each is compiled for all TUNINGS
    pytest.param(16, np.float32, marks=pytest.mark.release),
    pytest.param(41, np.float32, marks=pytest.mark.long),
    pytest.param(16, np.float64, marks=pytest.mark.release),
    pytest.param(41, np.uint16, marks=pytest.mark.long)])
def test_no_bit_of_a_product_depends_on_it(width, dtype, monkeypatch):
    monkeypatch.setattr(row_passes, "last_level_cache", lambda: 1 << 12)  # results are larger
    rng = np.random.default_rng(width)
    A = sp.random_array((300, 200), density=0.05, format="csr", rng=rng)
    real = np.float32 if dtype is np.uint16 else dtype
    x = rng.standard_normal((200, width)).astype(real)
    if dtype is np.uint16:
        x = (x.view(np.uint32) >> 16).astype(np.uint16)
    mask = pack_mask(rng.random((300, width)) < 0.5)
    before = rng.standard_normal((300, width)).astype(real)
    arrays = A.indptr, A.indices, A.data.astype(real), x

    def products():
        yield trusted.spmm(*arrays, np.empty((300, width), real))
        yield trusted.spmm(*arrays, before.copy(), accumulate=True)
        yield trusted.sspmm(*arrays, mask, np.empty((300, width), real))
        if dtype is np.uint16:
            yield trusted.spmm(*arrays, np.empty((300, width), np.uint16))

    expected = [result.tobytes() for result in products()]
    for candidate in TUNINGS:
        with tuning.using(candidate):
            assert [result.tobytes() for result in products()] == expected
