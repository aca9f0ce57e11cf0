"""Readers of split files: masks or vertex ids in .npz and JSON, or a column of a table."""
from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.packing import unpacked_name
from hpgcn.datasets.readers import numpy_files
from hpgcn.datasets.readers.npz import as_mask
from hpgcn.datasets.source import Source, truncate
from hpgcn.datasets.tables import roles, table_files
from hpgcn.datasets.tables.vertex_rows import VertexRows, keys_of
from hpgcn.datasets.text.column_names import PARTS, SPLIT_NAME
from hpgcn.datasets.text.data_table import NumberColumn, TextColumn
from hpgcn.datasets.text.json_files import JsonObject, read_json
from hpgcn.datasets.text.lines import whole_text
from hpgcn.errors import DataError
from hpgcn.graphs.classes import BOOLEANS, UNLABELED
from hpgcn.graphs.edge_weights import join_names, plain
from hpgcn.graphs.validation import SPLIT

if TYPE_CHECKING:
    from hpgcn.datasets.tables.table_files import TableOptions
    from hpgcn.datasets.tables.vertex_ids import VertexIds
    from hpgcn.datasets.text.data_table import Table

TORCH = (".pt", ".pth")  # files with a dict
TEXT_FACTOR = 20  # memory per byte of text
# first line of a file of lists
LIST = re.compile(rb"\s*(train|training|tr)[ \t]*[\s,;:|]", re.IGNORECASE)
FLAGS = {"0", "1", "0.0", "1.0", *BOOLEANS}  # cells of a mask


def read_split(source: Source, column: str | None, vertices: VertexIds, options: TableOptions,
               counts: list[int]) -> VertexRows:
    """Return the VertexRows of a split file: masks (rows, 3), or (rows, 3, s) of s splits.

    Masks without ids have a row for each vertex, for each id in --ids, or for each id
    up to the largest. `counts` are these three numbers; they distinguish masks (s,
    rows) from (rows, s).
    """
    if source.suffix in TORCH or table_files.is_array(source):
        return _from_arrays(source, vertices, options, counts)
    if table_files.is_json(source) and column is None:
        found = read_json(source, options.memory)
        lists = _lists(found)
        if lists is not None:
            columns = {part: _id_column(ids, source, part) for part, ids in lists.items()}
            return _from_ids(columns, source, vertices)
    lists = None if table_files.is_json(source) or column else _lists_of_lines(source, options)
    if lists is not None:
        columns = {part: TextColumn(part, ids) for part, ids in lists.items()}
        return _from_ids(columns, source, vertices)
    table, _ = table_files.read_table(source, vertices, options)
    if table is None:
        raise DataError(f"{source}: expected train, val and test, each a list of ids")
    columns = None if column else _columns_of_ids(table)
    if columns is not None:
        return _from_ids(columns, source, vertices)
    return _from_table(table, column, vertices, options)


def _lists_of_lines(source: Source, options: TableOptions) -> dict[str, list[str]] | None:
    """Return a dict from "train", "val" and "test" to ids in lines `train: 1 2 3`, or None."""
    lists = {}
    if source.magic[:4] == table_files.PARQUET or not LIST.match(source.head()):
        return None
    text = whole_text(source, options.memory, TEXT_FACTOR).decode()
    for line in filter(None, map(str.strip, text.splitlines())):
        word, *ids = re.split(r"[\s,;:|]+", line.rstrip(",;"))
        part = PARTS.get(word.lower())
        if part is None or part in lists:
            return None  # a table
        lists[part] = ids
    return lists if "train" in lists and len(lists) > 1 else None


def _columns_of_ids(table: Table) -> dict[str, TextColumn] | None:
    """Return a dict from "train", "val" and "test" to columns of ids, or None.

    None if the table has other columns, or only cells 0 and 1.
    """
    parts = [PARTS.get(plain(column.name).removesuffix("idx")) for column in table.columns]
    if "train" not in parts or None in parts or len(set(parts)) < len(parts):
        return None
    cells = {part: [text for text in column.texts() if text.lower() not in UNLABELED]
             for part, column in zip(parts, table.columns)}
    if all(text.lower() in FLAGS for texts in cells.values() for text in texts):
        return None  # masks
    return {part: TextColumn(part, texts) for part, texts in cells.items()}


def _from_table(table: Table, column: str | None, vertices: VertexIds,
                options: TableOptions) -> VertexRows:
    split = None if column is None else table.column(column, "--split FILE:COLUMN")
    taken = options.used_in(table) + ([] if split is None else [split])
    ids = roles.find_ids(table, vertices, options.id_column, taken)
    split = roles.find_split(table, ids) if split is None else split
    masks = np.zeros((table.num_rows, len(SPLIT)), bool)

    # read a mask for each part, or a column of words
    if isinstance(split, dict):
        for part, k in split.items():
            masks[:, SPLIT.index(part)] = table.flags(k)
        name = join_names([table.columns[k].name for k in split.values()])
        for k in split.values():
            options.use(table.where, table.columns[k].name)
    else:
        name = table.title(split)
        options.use(table.where, table.columns[split].name)
        texts = table.columns[split].texts()
        if (codes := roles.split_codes(texts)) is not None:
            texts = [codes.get(text, "") for text in texts]
            name += describe_codes(codes)
        for row, text in enumerate(texts):
            word = text.lower()
            if word in PARTS:
                masks[row, SPLIT.index(PARTS[word])] = True
            elif word not in UNLABELED:
                raise DataError(f"{table.where}: {table.place(row)}: column {name} is "
                                f"{truncate(text, 40)!r}, expected train, val, test or nothing")

    rows = VertexRows("split", table.where, masks, place=table.place,
                      notes=[*table.notes, f"{table.where}: split read from column {name}"])
    return table_files.with_ids(rows, table, ids, vertices)


def describe_codes(codes: dict[str, str]) -> str:
    """Return the end of a note on a split whose parts are numbered: see `split_codes`."""
    told = {part: code for code, part in sorted(codes.items(), reverse=True) if part}
    return ": " + ", ".join(f"{code} is {part}" for part, code in sorted(
        told.items(), key=lambda pair: SPLIT.index(pair[0]))) + " (words say it without a guess)"


def _lists(found: Any) -> dict[str, list] | None:
    """Return a dict from "train", "val" and "test" to lists of ids; None for other JSON.

    Three lists without names are train, val and test.
    """
    if not isinstance(found, JsonObject):
        named = isinstance(found, list) and len(found) == len(SPLIT) and all(
            type(ids) is list for ids in found)
        return dict(zip(SPLIT, found)) if named else None
    lists = {PARTS.get(name.lower().removesuffix("_idx").removesuffix("_mask")): value
             for name, value in found}
    if "train" not in lists or not all(isinstance(value, list) for value in lists.values()):
        return None
    if any(isinstance(entry, bool) for value in lists.values() for entry in value[:1]):
        return None
    return {part: value for part, value in lists.items() if part is not None}


def _id_column(ids: list, source: Source, part: str) -> TextColumn:
    for k, entry in enumerate(ids):
        if type(entry) not in (int, str):
            raise DataError(f"{source}: {part}: entry {k} is {truncate(entry, 40)}, expected an id")
    return TextColumn(part, [str(entry) for entry in ids])


def read_split_folder(folder: Path | str, vertices: VertexIds,
                      options: TableOptions) -> tuple[VertexRows, list[Source]]:
    """Return the VertexRows of a folder of files train, val and test, and Sources.

    Each file has an id in each line. OGB writes such folders, of train.csv.gz,
    valid.csv.gz and test.csv.gz.
    """
    parts, sources = {}, []
    for path in sorted(Path(folder).iterdir()):
        part = PARTS.get(Path(unpacked_name(path.name)).stem.lower())
        if part is None or not path.is_file():
            continue
        if part in parts:
            raise DataError(f"{path}: there are two files for {part}, expected one")
        sources.append(Source(path))
        parts[part] = table_files.read_ids(sources[-1], None, vertices, options).keys
    if "train" not in parts:
        raise DataError(f"{folder}: no file of this folder is called train, expected train, val "
                        "and test with an id in each line")
    return _from_keys(parts, folder, vertices), sources


def _from_ids(columns: dict[str, Any], source: Source, vertices: VertexIds) -> VertexRows:
    """Return the VertexRows of masks, from a dict of each part's column of ids."""
    return _from_keys({part: keys_of(column, vertices, f"{source}: {part}", "entry {}".format)
                       for part, column in columns.items()}, source, vertices)


def _from_keys(keys_of_parts: dict[str, Any], source: object, vertices: VertexIds) -> VertexRows:
    parts = [np.full(len(keys), SPLIT.index(part)) for part, keys in keys_of_parts.items()]
    keys = [*keys_of_parts.values()]

    # merge the parts; an id may be in several
    parts = np.concatenate(parts)
    keys = [key for each in keys for key in each] if vertices.has_names else np.concatenate(keys)
    distinct: dict[Any, int] = {}
    places = np.array([distinct.setdefault(key, len(distinct)) for key in (
        keys if vertices.has_names else keys.tolist())], np.int64)
    masks = np.zeros((len(distinct), len(SPLIT)), bool)
    masks[places, parts] = True

    unique = list(distinct)
    return VertexRows("split", str(source), masks,
                      unique if vertices.has_names else np.array(unique, np.int64),
                      order=f"the ids in {join_names(list(keys_of_parts))}")


def _from_array(array: np.ndarray, source: Source, notes: list[str]) -> VertexRows:
    """Return the VertexRows of an array.

    It has a word or a number for each vertex, or masks (rows, 3).
    """
    if array.ndim == 2 and array.shape[1] == len(SPLIT) and np.isin(array, (0, 1)).all():
        note = f"{source}: columns are the masks of {', '.join(SPLIT)}, in this order"
        return VertexRows("split", str(source), array.astype(bool), notes=[*notes, note])
    texts = array.ravel().astype(np.str_).tolist()
    codes = roles.split_codes(texts)
    if codes is not None:
        notes = [*notes, f"{source}: split{describe_codes(codes)}"]
        texts = [codes.get(text, "") for text in texts]
    if array.ndim != 1 or not roles.is_split(texts):
        raise DataError(f"{source}: expected one of the words train, val, test or of the numbers "
                        "0, 1, 2 for each vertex, or masks (n, 3)")
    words = [PARTS.get(word.lower()) for word in texts]
    masks = np.array([[word == part for part in SPLIT] for word in words])
    return VertexRows("split", str(source), masks, notes=notes)


def _from_arrays(source: Source, vertices: VertexIds, options: TableOptions,
                 counts: list[int]) -> VertexRows:
    if source.suffix in TORCH:
        from hpgcn.interop import pt

        arrays, notes = pt.read_data(source.path, options.memory, str(source)), []
    elif source.magic[:2] != b"PK":
        array, notes = table_files.read_array(source, options.memory)
        return _from_array(array, source, notes)
    else:
        arrays = numpy_files.Archive(source, options.memory)
        notes = arrays.notes

    # recognize masks and ids by the names of the arrays
    masks, columns = {}, {}
    for key in arrays:
        # find the part of the array
        part = PARTS.get(key.lower().removesuffix("s").removesuffix("_mask")
                               .removesuffix("_idx").removesuffix("_index"))
        if part is None:
            continue
        array = np.asarray(arrays[key])
        where = f"{source} {key}"
        if part in masks or part in columns:
            raise DataError(f"{where}: there are two arrays for {part}, expected one")

        # distinguish masks from ids
        if "mask" in key.lower() or array.dtype.kind in "bf" or array.ndim > 1:
            num_rows = next((n for n in counts if n in array.shape), max(array.shape, default=0))
            masks[part] = as_mask(array, num_rows, where)
        else:
            ids = (TextColumn(key, array.astype(np.str_).tolist()) if array.dtype.kind in "SU"
                   else NumberColumn(key, array))
            columns[part] = ids

    # read one array of words or numbers
    coded = [key for key in arrays if re.fullmatch(SPLIT_NAME, plain(key))]
    if not masks and not columns and len(coded) == 1:
        return _from_array(np.asarray(arrays[coded[0]]), source, notes)

    # refuse a mixture of masks and ids
    if not masks and not columns:
        raise DataError(f"{source}: arrays {join_names(list(arrays))}, expected train_mask, "
                        "val_mask and test_mask, or train_idx, val_idx and test_idx")
    if masks and columns:
        raise DataError(f"{source}: {join_names([*masks])} as masks and {join_names([*columns])} "
                        "as ids, expected masks or ids for all three")
    if columns:
        return _from_ids(columns, source, vertices)

    # stack the masks; a part without one is empty
    count = max(mask.shape[1] if mask.ndim == 2 else 1 for mask in masks.values())
    full = {part: np.broadcast_to(mask.reshape(num_rows, -1), (num_rows, count))
            for part, mask in masks.items()}
    none = np.zeros((num_rows, count), bool)
    values = np.stack([full.get(part, none) for part in SPLIT], axis=1)
    return VertexRows("split", str(source), values[:, :, 0] if count == 1 else values,
                      notes=notes)
