"""Reader of labels and sparse features in LibSVM's lines `label number:value ...`."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.source import need, truncate
from hpgcn.datasets.text.lines import finite, open_lines
from hpgcn.errors import DataError
from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.validation import MAX_WIDTH

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

START = re.compile(rb"(?>(?:#[^\n]*+\n|\s)*+)[-+.0-9eE]++(?:[ \t]++\d++:[-+.0-9eE]++)++")


def is_libsvm(head: bytes) -> bool:
    """Return whether a text begins like a LibSVM file."""
    return START.match(head) is not None


def read_libsvm(source: Source, memory: int) -> tuple[list[str], sp.csr_array, list[str]]:
    """Return the labels (list of str), features (n, f) and notes of a LibSVM file.

    Feature numbers begin at 1, or at 0 if a 0 occurs. A DataError names the line.
    """
    labels, indices, values, counts = [], [], [], []
    with open_lines(source) as table:
        for line in table.rest():
            # parse a label, then NUMBER:VALUE pairs
            words = line.partition(b"#")[0].split()
            if not words:
                continue
            where = f"{source}: line {table.line}"
            finite(words[0], where)
            labels.append(words[0].decode())
            for word in words[1:]:
                number, _, value = word.partition(b":")
                if not number.isdigit() or len(number) > 9 or int(number) > MAX_WIDTH:
                    text = truncate(word.decode("utf-8", "replace"), 40)
                    raise DataError(f"{where}: {text!r}, expected NUMBER:VALUE")
                indices.append(int(number))
                values.append(finite(value, where))
            counts.append(len(words) - 1)
            need(120 * (len(indices) + len(labels)), memory, source)

    # build a CSR matrix; numbers begin at 1 unless a 0 occurs
    indices = np.array(indices, np.int64)
    first = int(indices.min(initial=1) > 0)
    X = sp.csr_array((np.array(values), indices - first, run_offsets(counts)),
                     shape=(len(labels), int(indices.max(initial=first - 1)) + 1 - first))

    # refuse a repeated feature of a row
    repeated = X.copy()
    repeated.sum_duplicates()
    if repeated.nnz < X.nnz:
        raise DataError(f"{source}: a row has a feature twice")
    return labels, X, [f"{source}: features are numbered from {first}"]
