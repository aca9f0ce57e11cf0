"""Readers of split files: masks or vertex ids in .npz and JSON, or a column of a table."""
import numpy as np

from hpgcn.datasets.readers import numpy_files
from hpgcn.datasets.readers.npz import as_mask
from hpgcn.datasets.source import truncate
from hpgcn.datasets.tables import roles, table_files
from hpgcn.datasets.tables.data_table import NumberColumn, TextColumn
from hpgcn.datasets.tables.json_table import JsonObject, read_json
from hpgcn.datasets.tables.vertex_rows import VertexRows, keys_of
from hpgcn.errors import DataError
from hpgcn.graphs.classes import UNLABELED
from hpgcn.graphs.edge_weights import listed
from hpgcn.graphs.validation import SPLIT


def read_split(source, column, vertices, options, counts):
    """Return the VertexRows of a split file: masks (rows, 3) bool, or (rows, 3, s) for
    s splits.

    Masks without ids have a row for each vertex, for each id in --ids, or for each id
    up to the largest. `counts` are these three numbers; they distinguish masks (s,
    rows) from (rows, s).
    """
    if table_files.is_array(source):
        return _from_arrays(source, vertices, options, counts)
    if table_files.is_json(source) and column is None:
        found = read_json(source, options.memory)
        lists = _lists(found)
        if lists is not None:
            columns = {part: _id_column(ids, source, part) for part, ids in lists.items()}
            return _from_ids(columns, source, vertices)
    table, _ = table_files.read_table(source, vertices, options)
    if table is None:
        raise DataError(f"{source}: expected train, val and test, each a list of ids")
    return _from_table(table, column, vertices, options)


def _from_table(table, column, vertices, options):
    split = None if column is None else table.column(column, "--split FILE:COLUMN")
    taken = options.used_in(table) + ([] if split is None else [split])
    ids = roles.find_ids(table, vertices, options.id_column, taken)
    split = roles.find_split(table, ids) if split is None else split
    masks = np.zeros((table.num_rows, len(SPLIT)), bool)

    # a mask for each part, or a column of words
    if isinstance(split, dict):
        for part, k in split.items():
            masks[:, SPLIT.index(part)] = table.flags(k)
        name = listed([table.columns[k].name for k in split.values()])
        for k in split.values():
            options.use(table.where, table.columns[k].name)
    else:
        name = table.title(split)
        options.use(table.where, table.columns[split].name)
        for row, text in enumerate(table.columns[split].texts()):
            word = text.lower()
            if word in roles.PARTS:
                masks[row, SPLIT.index(roles.PARTS[word])] = True
            elif word not in UNLABELED:
                raise DataError(f"{table.where}: {table.place(row)}: column {name} is "
                                f"{truncate(text, 40)!r}, expected train, val, test or nothing")

    rows = VertexRows("split", table.where, masks, place=table.place,
                      notes=[*table.notes, f"{table.where}: split read from column {name}"])
    return table_files.with_ids(rows, table, ids, vertices)


def _lists(found):
    """Return a dict from "train", "val" and "test" to lists of ids; None if the JSON
    has another form.
    """
    if not isinstance(found, JsonObject):
        return None
    lists = {roles.PARTS.get(name.lower().removesuffix("_idx").removesuffix("_mask")): value
             for name, value in found}
    if "train" not in lists or not all(isinstance(value, list) for value in lists.values()):
        return None
    if any(isinstance(entry, bool) for value in lists.values() for entry in value[:1]):
        return None
    return {part: value for part, value in lists.items() if part is not None}


def _id_column(ids, source, part):
    for k, entry in enumerate(ids):
        if type(entry) not in (int, str):
            raise DataError(f"{source}: {part}: entry {k} is {truncate(entry, 40)}, expected an id")
    return TextColumn(part, [str(entry) for entry in ids])


def _from_ids(columns, source, vertices):
    """Return the VertexRows of masks for a dict from parts of the split to columns of
    ids.
    """
    keys, parts = [], []
    for part, column in columns.items():
        found = keys_of(column, vertices, f"{source}: {part}", "entry {}".format)
        keys.append(found)
        parts.append(np.full(len(found), SPLIT.index(part)))

    # an id may be in several parts
    parts = np.concatenate(parts)
    keys = [key for each in keys for key in each] if vertices.named else np.concatenate(keys)
    distinct = {}
    places = np.array([distinct.setdefault(key, len(distinct)) for key in (
        keys if vertices.named else keys.tolist())], np.int64)
    masks = np.zeros((len(distinct), len(SPLIT)), bool)
    masks[places, parts] = True

    unique = list(distinct)
    return VertexRows("split", str(source), masks,
                      unique if vertices.named else np.array(unique, np.int64),
                      order=f"the ids in {listed(list(columns))}")


def _from_arrays(source, vertices, options, counts):
    if source.magic[:2] != b"PK":
        # an array of words
        array, notes = numpy_files.read_array(source, options.memory, "SU")
        if array.ndim != 1 or not roles.is_split(array.astype(np.str_).tolist()):
            raise DataError(f"{source}: expected one of the words train, val, test for each vertex")
        words = [roles.PARTS.get(word.lower()) for word in array.astype(np.str_).tolist()]
        masks = np.array([[word == part for part in SPLIT] for word in words])
        return VertexRows("split", str(source), masks, notes=notes)

    # an archive: masks or ids, by the names of its arrays
    archive = numpy_files.Archive(source, options.memory)
    masks, columns = {}, {}
    for key in archive.keys:
        # which part the array is of
        part = roles.PARTS.get(key.lower().removesuffix("s").removesuffix("_mask")
                               .removesuffix("_idx").removesuffix("_index"))
        if part is None:
            continue
        array = archive.read(key, "fiubSU")
        where = f"{source} {key}"
        if part in masks or part in columns:
            raise DataError(f"{where}: there are two arrays for {part}, expected one")

        # a mask, or ids
        if "mask" in key.lower() or array.dtype.kind in "bf" or array.ndim > 1:
            num_rows = next((n for n in counts if n in array.shape), max(array.shape, default=0))
            masks[part] = as_mask(array, num_rows, where)
        else:
            ids = (TextColumn(key, array.astype(np.str_).tolist()) if array.dtype.kind in "SU"
                   else NumberColumn(key, array))
            columns[part] = ids

    # all must be of one kind
    if not masks and not columns:
        raise DataError(f"{source}: arrays {listed(archive.keys)}, expected train_mask, val_mask "
                        "and test_mask, or train_idx, val_idx and test_idx")
    if masks and columns:
        raise DataError(f"{source}: {listed([*masks])} as masks and {listed([*columns])} as ids, "
                        "expected masks or ids for all three")
    if columns:
        return _from_ids(columns, source, vertices)

    # stack the masks; a part without one is empty
    count = max(mask.shape[1] if mask.ndim == 2 else 1 for mask in masks.values())
    full = {part: np.broadcast_to(mask.reshape(num_rows, -1), (num_rows, count))
            for part, mask in masks.items()}
    none = np.zeros((num_rows, count), bool)
    values = np.stack([full.get(part, none) for part in SPLIT], axis=1)
    return VertexRows("split", str(source), values[:, :, 0] if count == 1 else values,
                      notes=archive.notes)
