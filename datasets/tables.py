"""Features and labels as text: JSON lists (MUSAE's sets), LibSVM, and CSV with a column of classes.

The rows of all three are those of the ids in the file, where it has any, else in its order.
"""
import csv
import json
import re

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets import arrays, columns
from hpgcn.datasets.source import need, shown
from hpgcn.datasets.text import WHOLE, Table, finite, whole_text
from hpgcn.errors import DataError
from hpgcn.graphs.validation import MAX_WIDTH

TEXT_FACTOR = 40  # bytes of memory that a byte of text may become
LIBSVM = re.compile(rb"(?>(?:#[^\n]*+\n|\s)*+)[-+.0-9eE]++(?:[ \t]++\d++:[-+.0-9eE]++)++")


def read_features(source, memory):
    """Return features and notes: JSON, LibSVM, or whatever `arrays.read_matrix` takes."""
    head = source.head()
    if head.lstrip()[:1] in (b"{", b"["):
        return _json(source, memory)
    if LIBSVM.match(head):
        return _libsvm(source, memory)[1:]
    return arrays.read_matrix(source, memory)


def read_labels(source, memory):
    """Return labels and notes: a .csv with a header, the labels of LibSVM, or an .npy."""
    name = source.path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        return _csv(source, memory)
    if LIBSVM.match(source.head()):
        labels, _, notes = _libsvm(source, memory)
        return labels, notes
    return arrays.read_array(source, memory)


def _text(source, memory):
    return whole_text(source, memory, TEXT_FACTOR).decode()


def _json(source, memory):
    """Return (n, f) of ones: {"id": [numbers of features]}, or a list of such lists."""
    text = _text(source, memory)
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: broken JSON ({shown(error) or 'nested too deep'})") from error
    pairs = text.lstrip()[:1] == "{"
    rows = found if pairs else list(enumerate(found))
    n = _rows([row for row, _ in rows], source) if pairs else len(rows)
    need(16 * n, memory, f"{source}: {n} rows")
    lists = [np.empty(0, np.int64)] * n
    for row, numbers in rows:
        whole = isinstance(numbers, list) and all(type(k) is int for k in numbers)
        if not whole or any(not 0 <= k < MAX_WIDTH for k in numbers):
            raise DataError(f"{source}: row {row}: expected a list of the numbers of its features, "
                            f"0..{MAX_WIDTH - 1}")
        lists[int(row)] = np.unique(np.array(numbers, np.int64))
    indptr = np.concatenate([[0], np.cumsum([each.size for each in lists])]).astype(np.int64)
    indices = np.concatenate([*lists, np.empty(0, np.int64)])
    data = np.ones(indices.size, np.float32)
    width = int(indices.max(initial=-1)) + 1
    notes = [] if len(rows) == n else [f"{source}: {n - len(rows)} rows without features"]
    return sp.csr_array((data, indices, indptr), shape=(n, width)), notes


def _rows(ids, where):
    """Return how many rows these ids, str or int, are of; each must be there once."""
    seen = set()
    for name in ids:
        if not WHOLE.fullmatch(str(name)):
            raise DataError(f"{where}: id {shown(name, 40)!r}, expected a whole number")
        if int(name) in seen:
            raise DataError(f"{where}: id {name} is there twice")
        seen.add(int(name))
    n = max(seen, default=-1) + 1
    if n > 2 * len(seen) + 1024:
        raise DataError(f"{where}: {len(seen)} ids up to {n - 1}, expected those of 0..n-1")
    return n


def _libsvm(source, memory):
    """Return labels (n,), features (n, f) and notes; numbers begin at 1, at 0 where one is 0."""
    labels, indices, values, counts = [], [], [], []
    with source.open() as stream:
        table = Table(stream, source)
        for block in table.blocks():
            for line in block.split(b"\n")[:-1]:
                table.line += 1
                words = line.partition(b"#")[0].split()
                if not words:
                    continue
                where = f"{source}: line {table.line}"
                labels.append(finite(words[0], where))
                for word in words[1:]:
                    number, _, value = word.partition(b":")
                    if not number.isdigit() or len(number) > 9 or int(number) > MAX_WIDTH:
                        text = shown(word.decode("utf-8", "replace"), 40)
                        raise DataError(f"{where}: {text!r}, expected NUMBER:VALUE")
                    indices.append(int(number))
                    values.append(finite(value, where))
                counts.append(len(words) - 1)
            need(120 * (len(indices) + len(labels)), memory, source)
    indices = np.array(indices, np.int64)
    first = int(indices.min(initial=1) > 0)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    X = sp.csr_array((np.array(values), indices - first, indptr),
                     shape=(len(labels), int(indices.max(initial=first - 1)) + 1 - first))
    repeated = X.copy()
    repeated.sum_duplicates()
    if repeated.nnz < X.nnz:
        raise DataError(f"{source}: a row has a feature twice")
    return np.array(labels), X, [f"{source}: features are numbered from {first}"]


def _csv(source, memory):
    """Return classes (n,), -1 for unknown: whole numbers as they are, names in sorted order."""
    lines = _text(source, memory).splitlines()
    tabs = bool(lines) and "\t" in lines[0]
    try:
        rows = list(csv.reader(lines, delimiter="\t" if tabs else ","))
    except csv.Error as error:
        raise DataError(f"{source}: broken CSV ({shown(error)})") from error
    header, rows = (rows[0] if rows else []), [row for row in rows[1:] if row]
    ids, column = columns.of_labels(header, f"{source}: line 1")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise DataError(f"{source}: row {number}: {len(row)} field(s), expected {len(header)}")
    texts = [row[column].strip() for row in rows]
    places = range(len(rows)) if ids is None else [row[ids].strip() for row in rows]
    n = len(rows) if ids is None else _rows(places, source)
    whole = all(text in ("", "-1") or WHOLE.fullmatch(text) for text in texts)
    known = {text: int(text) for text in set(texts) - {""}} if whole else {
        text: k for k, text in enumerate(sorted(set(texts) - {""}))}
    labels = np.full(n, -1, np.int64)
    for place, text in zip(places, texts):
        labels[int(place)] = known.get(text, -1)
    names = shown(", ".join(sorted(known)))
    notes = [f"{source}: column {shown(header[column])}" + ("" if whole else f": {names}")]
    return labels, notes
