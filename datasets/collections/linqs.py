"""Reader of LINQS citation sets: NAME.content (id, words, class) and NAME.cites.

Sen et al., Collective Classification in Network Data, AI Magazine 29(3), 2008. A line
of NAME.cites is `cited citing`: the citing paper is the source, the cited one the
target.
"""
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.convert_options import ConvertOptions
from hpgcn.datasets.edges import edge_lists
from hpgcn.datasets.raw_graph import TARGET_FIRST, Raw
from hpgcn.datasets.source import Source, decoded, need, open_all, truncate
from hpgcn.datasets.text.data_table import plural
from hpgcn.datasets.text.lines import BLANKS, NUMBER, open_lines
from hpgcn.datasets.vertex_numbers import Nodes
from hpgcn.errors import DataError
from hpgcn.graphs.classes import parse_classes
from hpgcn.graphs.validation import check_finite

SUFFIXES = (".content", ".cites")
SAMPLE = 1000  # first lines, whose ids are compared
ID_BYTES = 400  # memory per paper, without its words


def belongs(path: Path) -> bool:
    """Return whether `path` is NAME.content, or NAME.cites beside it.

    Other edge lists may also end in .cites.
    """
    return path.suffix == ".content" or (path.suffix == ".cites"
                                         and path.with_suffix(".content").is_file())


def graph_name(path: Path) -> str:
    return path.stem


def read(source: Source, memory: int) -> Raw:
    """Read both files.

    Citations are skipped if one of their papers has no line in NAME.content. If the
    content is of another kind, only the citations are read.
    """
    if source.path.suffix == ".cites" and _is_foreign(source):
        raw = edge_lists.read(source, memory, ConvertOptions())
        raw.notes.append(f"{source.path.with_suffix('.content').name} is not read: it has no lines "
                         "of an id, words and a class")
        return raw
    source.files = open_all(source.path.with_suffix(suffix) for suffix in SUFFIXES)
    content, cites = source.files
    ids, features, labels, lines = _content(content, memory)
    nodes = Nodes(ids, content)
    order = nodes.order
    classes = parse_classes(labels, f"{content}: last column", lambda k: f"line {lines[k]}",
                            classes=True)
    targets, sources, notes = _cites(cites, nodes, memory)
    return Raw(len(ids), targets, sources, features=None if features is None else features[order],
               labels=classes.numbers[order], class_names=classes.names,
               original_ids=nodes.original_ids, reads=TARGET_FIRST, notes=[*notes, *classes.notes])


def _is_foreign(cites: Source) -> bool:
    """Return whether NAME.content is no file of LINQS.

    Its first line then has no numbers between two fields, and no line begins with the
    id of a paper in NAME.cites.
    """
    content = Source(cites.path.with_suffix(".content"))
    rows = [fields for _, fields in islice(rows_of(content), SAMPLE)]
    cited = {field for _, fields in islice(rows_of(cites), SAMPLE) for field in fields}
    numbers = bool(rows) and len(rows[0]) > 2 and all(map(NUMBER.fullmatch, rows[0][1:-1]))
    return bool(cited) and not numbers and cited.isdisjoint(fields[0] for fields in rows)


def _content(file: Source, memory: int) -> tuple:
    """Return ids, features (CSR), labels and line numbers of NAME.content."""
    ids, labels, lines, columns, values, counts = [], [], [], [], [], [0]
    width = 0

    # a line is an id, one number for each word, and a class
    for line, fields in rows_of(file):
        where = f"{file}: line {line}"
        if len(fields) != width if ids else len(fields) < 2:
            expected = width if ids else "an id, words and a class"
            raise DataError(f"{where}: {len(fields)} field(s), expected {expected}")
        width = len(fields)
        ids.append(decoded(fields[0], where))
        labels.append(decoded(fields[-1], where))
        lines.append(line)

        # keep the words that are not 0
        try:
            with np.errstate(over="ignore"):
                numbers = np.array(fields[1:-1], dtype="S").astype(np.float32)
        except ValueError as error:
            raise DataError(f"{where}: {truncate(error)}") from error
        check_finite(numbers, where)
        nonzero = np.flatnonzero(numbers)
        columns.append(nonzero)
        values.append(numbers[nonzero])
        counts.append(counts[-1] + nonzero.size)
        need(ID_BYTES * len(ids) + 24 * counts[-1], memory, file)
    if not ids:
        raise DataError(f"{file}: no vertices")

    # join the rows to a CSR matrix
    features = sp.csr_array((np.concatenate(values), np.concatenate(columns), np.array(counts)),
                            shape=(len(ids), width - 2))
    return ids, features if width > 2 else None, labels, lines


def _cites(file: Source, nodes: Nodes, memory: int) -> tuple[np.ndarray, np.ndarray, list]:
    """Return targets and sources of the citations, (e,) int64, and notes on skipped lines."""
    edges, left_out, unknown = [], 0, set()
    for line, fields in rows_of(file):
        where = f"{file}: line {line}"
        if len(fields) != 2:
            raise DataError(f"{where}: {len(fields)} field(s), expected the cited and the citing "
                            "paper")
        names = [decoded(field, where) for field in fields]
        missing = [name for name in names if name not in nodes.number]
        unknown.update(missing)
        left_out += bool(missing)
        if not missing:
            edges.append([nodes.number[name] for name in names])
        need(200 * (len(edges) + len(unknown)), memory, file)

    # name the lines that were left out
    notes = []
    if left_out and not edges:
        raise DataError(f"{file}: no line has two papers of {nodes.where.path.name}: use --format "
                        "snap to read the edges alone")
    if left_out:
        names = truncate(", ".join(sorted(unknown)[:3])) + ", ..." * (len(unknown) > 3)
        notes.append(f"{plural(left_out, 'line')} of {file.path.name} left out: "
                     f"{plural(len(unknown), 'paper')} not in {nodes.where.path.name} ({names})")

    return *np.array(edges, np.int64).reshape(-1, 2).T, notes


def rows_of(file: Source) -> Iterator[tuple[int, list]]:
    """Yield the line number and the fields of each line.

    Fields are separated by tabs or, without tabs, by blanks.
    """
    with open_lines(file) as table:
        for line in table.rest():
            if text := line.strip(BLANKS):
                fields = text.split(b"\t") if b"\t" in text else text.split()
                yield table.line, [field.strip() for field in fields]
