"""Readers of label files: one class a vertex, or several labels."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.source import HEAD, need, truncate
from hpgcn.datasets.tables import roles, table_files
from hpgcn.datasets.tables.libsvm import is_libsvm, read_libsvm
from hpgcn.datasets.tables.vertex_rows import VertexRows, keys_of
from hpgcn.datasets.text.column_names import is_known
from hpgcn.datasets.text.data_table import NumberColumn, TextColumn, plural
from hpgcn.datasets.text.delimited import SEPARATORS
from hpgcn.datasets.text.json_files import JsonObject, multi_hot
from hpgcn.datasets.text.lines import whole_text
from hpgcn.errors import DataError
from hpgcn.graphs.classes import FEW, NUMBER, parse_classes
from hpgcn.graphs.contents import check_names
from hpgcn.graphs.edge_weights import join_names

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source
    from hpgcn.datasets.tables.table_files import TableOptions
    from hpgcn.datasets.tables.vertex_ids import VertexIds
    from hpgcn.datasets.text.data_table import Table

TEXT_FACTOR = 20  # memory per byte of text


def read_labels(source: Source, vertices: VertexIds, options: TableOptions) -> VertexRows:
    """Return the VertexRows of a label file.

    Values are classes (rows,), -1 for unlabeled, or 0 and 1 (rows, t).
    """
    rows = partial(VertexRows, "labels", str(source))

    # read files that have only labels
    if table_files.is_array(source):
        array, notes = table_files.read_array(source, options.memory)
        if array.dtype.kind in "SU" and array.shape[1:] in ((), (1,)) and array.ndim:
            texts = array.astype(np.str_).ravel().tolist()
            return _classes(rows, texts, str(source), options, notes=notes)
        return rows(array, notes=notes)
    if is_libsvm(source.head()):
        texts, _, notes = read_libsvm(source, options.memory)
        return _classes(rows, texts, str(source), options, notes=notes)

    # read lists of labels, or else a table
    lists = _lists_of_lines(source, vertices, options)
    if lists is not None:
        return _multi_label(rows, lists, vertices, options)
    table, lists = table_files.read_table(source, vertices, options)
    if table is None:
        return _multi_label(rows, lists, vertices, options)

    # find the columns of labels and of ids
    taken = options.used_in(table)
    labels = roles.named_labels(table, options.label_column)
    ids = roles.find_ids(table, vertices, options.id_column, taken + labels)
    if len(labels) > 1:
        found = _from_columns(rows, table, labels, options)
        return table_files.with_ids(found, table, ids, vertices)

    # read one column of classes
    k = roles.find_label(table, ids, options.label_column, taken)
    column = table.columns[k]
    options.use(source.path, column.name)
    notes = [*table.notes]
    if len(table.columns) > 1:
        notes.append(f"{source}: labels read from column {table.title(k)}")
    if isinstance(column, NumberColumn) and column.array.ndim == 2:
        rows = rows(column.array, place=table.place, notes=notes)
    else:
        rows = _classes(rows, column.texts(), f"{source}: column {table.title(k)}", options,
                        table.place, notes, " use --label-column NAME to name another column")
    return table_files.with_ids(rows, table, ids, vertices)


def _from_columns(rows: Callable, table: Table, labels: list[int],
                options: TableOptions) -> VertexRows:
    """Return the VertexRows of multi-label columns of 0 and 1, whose names are the classes."""
    names = tuple(table.columns[k].name for k in labels)
    need(12 * table.num_rows * len(labels), options.memory, table.where)
    for name in names:
        options.use(table.where, name)
    values = np.stack([table.flags(k) for k in labels], axis=1).astype(np.float32)
    note = f"{table.where}: multi-label: columns {join_names(names)}"
    return rows(values, place=table.place, class_names=names, notes=[*table.notes, note])


def _multi_label(rows: Callable, found: JsonObject | list[list], vertices: VertexIds,
                 options: TableOptions) -> VertexRows:
    """Return the VertexRows of JSON labels with several values.

    The JSON is {"id": [0, 1, 0]}, {"id": ["a", "b"]}, or a list of such lists.
    """
    pairs = found if isinstance(found, JsonObject) else list(enumerate(found))
    made = rows(np.empty(0))

    if any(isinstance(label, str) for _, labels in pairs if isinstance(labels, list)
           for label in labels):
        made.values, made.class_names = multi_hot(pairs, made.where, options.memory)
        made.notes.append(f"{made.where}: {plural(len(made.class_names), 'label')}: "
                          f"{join_names(made.class_names)}")
    else:
        made.values = _zeros_and_ones(pairs, made.where)

    if isinstance(found, JsonObject):
        ids = TextColumn("id", [name for name, _ in pairs])
        made.keys = keys_of(ids, vertices, made.where, made.place)
        made.order = "the ids in it"

    return made


def _zeros_and_ones(pairs: JsonObject, where: str) -> np.ndarray:
    """Return lists of t numbers 0 and 1 each as an array (rows, t) float32."""
    width = len(pairs[0][1]) if isinstance(pairs[0][1], list) else 0
    for row, numbers in pairs:
        if not width or not isinstance(numbers, list) or len(numbers) != width \
                or not all(number in (0, 1) for number in numbers):
            raise DataError(f"{where}: row {truncate(row, 40)}: expected a list of names, or a "
                            "list of 0 and "
                            f"1{f' of length {width}, as in the first row' if width else ''}")
    return np.array([numbers for _, numbers in pairs], np.float32)


def _classes(rows: Callable, texts: list[str], where: str, options: TableOptions,
             place: Callable = "row {}".format, notes: list[str] = (),
             hint: str = "") -> VertexRows:
    classes = parse_classes(texts, where, place, hint, classes=options.classes)

    if len(texts) and classes.numbers.max() < 0:
        raise DataError(f"{where}: no row of {len(texts)} has a label")
    made = rows(classes.numbers, place=place, notes=[*notes])
    made.notes += [f"{made.where}: {note}" for note in classes.notes]

    if classes.names is not None:
        check_names("class_names", classes.names, 0, len(classes.names), where)
        count = plural(len(classes.names), "class", "classes")
        labeled = np.count_nonzero(classes.numbers >= 0)
        named = not all(map(str.isdecimal, classes.names))  # numbers may be refused later
        if named and 2 * len(classes.names) > labeled > FEW:
            made.notes.append(f"{made.where}: {count} for {labeled} labels: are these vertex "
                              "names? Use --label-column NAME to name another column")
        made.notes.append(f"{made.where}: {count}: {join_names(classes.names)}")

    made.class_names = classes.names
    return made


def _lists_of_lines(source: Source, vertices: VertexIds,
                    options: TableOptions) -> JsonObject | None:
    """Return the ids and labels in lines `id a b`, a JsonObject; None for another text.

    Either lines have different numbers of labels: most lines have several, or all
    labels are numbers. Or all lines have several, of which most occur in more than one
    column.
    """
    head = source.head()
    whole = len(head) < HEAD  # otherwise the last line may be incomplete
    head = head.decode("utf-8", "replace").splitlines()[:None if whole else -1]
    separator = next((mark for mark in SEPARATORS if any(mark in line for line in head)), None)
    widths = {len(_words(line, separator)) for line in head if line.strip()}
    if widths in (set(), {1}, {2}) \
            or source.magic[:4] == table_files.PARQUET or table_files.is_json(source) \
            or options.label_column is not None or '"' in "".join(head):
        return None

    # the first words are ids
    text = whole_text(source, options.memory, TEXT_FACTOR).decode()
    rows = [_words(line, separator) for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if not row[0].startswith(("#", "%"))]
    rows = rows[bool(rows) and is_known(rows[0][0]):]
    ids = TextColumn("id", [row[0] for row in rows])
    if options.id_column is not None or not vertices.fit(ids, len(rows)):
        return None

    if len(widths) == 1:
        return JsonObject([(row[0], row[1:]) for row in rows]) if _share_labels(rows) else None
    labels = [label for row in rows for label in row[1:]]
    several = sum(len(row) > 2 for row in rows)
    if several < 2 or not (2 * several > len(rows) or all(map(str.isdecimal, labels))):
        return None  # a table with a damaged line
    return JsonObject([(row[0], row[1:]) for row in rows])


def _share_labels(rows: list[list]) -> bool:
    """Return whether the columns of labels have the same words, most of them repeated."""
    columns = [set(column) for column in zip(*(row[1:] for row in rows))]
    words = set().union(*columns)
    several = sum(sum(word in column for column in columns) > 1 for word in words)
    return not any(map(NUMBER.fullmatch, words)) and 2 * several > len(words) and \
        len(columns) * len(rows) >= 3 * len(words)


def _words(line: str, separator: str | None) -> list[str]:
    words = line.split(separator)
    return [word.strip() for word in words if word.strip()] or [""]
