"""Reader of graphs in .mat files of MATLAB 5 to 7, as of SuiteSparse and Facebook100."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.edges.edge_arrays import read_edge_arrays, refuse_list_flags
from hpgcn.datasets.readers.adjacency_matrix import (
    NAMES,
    choose_matrix,
    find_name,
    from_matrix,
    listed_shapes,
    other_matrices,
)
from hpgcn.datasets.readers.matlab5 import BrokenError, variables
from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError
from hpgcn.graphs.classes import parse_classes
from hpgcn.graphs.validation import check_edge_arrays

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source

EDGES = "edge_index"  # from Lim et al.: sources and targets (2, e), from 0
GROUPS = "group"  # key of DeepWalk's sets: 0 or 1 for each vertex and label
FEATURES = ("attributes", "attribute", "attrb", "features", "feature", "feat", "fea", "node_feat",
            "X")
LABELS = ("label", "labels", "gnd", "node_label", "class", "Y")  # keys of one number per vertex
FACTS = "local_info"  # key of Facebook100
FACT_NAMES = ("status", "gender", "major", "second_major", "dorm", "year", "high_school")
GENDER = 1  # column of Facebook100 with 1 or 2, or 0 if unknown


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read the adjacency matrix by the rules of `choose_matrix`; A[u, v]: u aggregates v.

    Names are compared without regard to case. Besides the matrix, FEATURES (n, f),
    LABELS (n, 1) or (1, n) and `group` (n, t) are read. `local_info` (n, 7) is used as
    in Lim et al. (2021, arXiv 2110.14446): gender is the label, and each value of
    another column is a feature.
    """
    # find the variables by their names
    arrays = variables(source, memory // 2)
    shapes = {key: each.shape for key, each in arrays.items()}
    name = _choose(shapes, options.matrix, source)
    places = [find_name(arrays, names, but=name)
              for names in (FEATURES, LABELS, [GROUPS], [FACTS])]

    # read the variables that are used
    where = f"{source}: {name}"
    try:
        matrix = arrays[name].field("A", where) if name.lower() == "problem" else arrays[name]
        matrix = matrix.read(where)
        beside = [None if key is None else arrays[key].read(f"{source}: {key}") for key in places]
    except BrokenError as error:
        raise DataError(f"{where}: broken MATLAB data ({truncate(error)})") from error
    features, labels, groups, facts = beside

    # build the graph; the table of facts has both features and labels
    raw = _graph(name, matrix, features, labels, source, memory, options)
    if facts is not None:
        _take_facts(raw, facts, f"{source}: {places[3]}")
    else:
        raw.features = features
        key = places[1] if labels is not None else places[2]
        values = labels if labels is not None else groups
        if values is not None:
            _take_labels(raw, values, f"{source}: {key}", memory, one=labels is not None)

    # note variables that were not read
    read_names = {name, *(places[3:] if facts is not None else places[:2])}
    if facts is None and labels is None:
        read_names.add(places[2])
    if unread := [key for key in arrays if key not in read_names]:
        other = next((key for key in unread if key in other_matrices(shapes, name)), None)
        hint = f" (--matrix {truncate(other, 40)} reads it as the adjacency)" if other else ""
        raw.notes.append(f"not read: {truncate(', '.join(unread))}{hint}")
    return raw


def _graph(name: str, matrix: Any, features: Any, labels: Any, source: Source, memory: int,
           options: ConvertOptions) -> Raw:
    """Return the Raw of an adjacency matrix, or of an array of sources and targets."""
    where = f"{source}: {name}"
    if name.lower() != EDGES:
        refuse_list_flags(options, source)
        return from_matrix(matrix, memory, where)

    # an array of edges, whose vertices other arrays may count
    n = next((max(array.shape) if array is labels else array.shape[0]
              for array in (features, labels) if array is not None), None)
    edges = matrix.toarray() if sp.issparse(matrix) else matrix
    if edges.dtype.kind == "f" and np.array_equal(edges, np.floor(edges)):
        edges = edges.astype(np.int64)
    ends = check_edge_arrays(edges, None, where)[0]
    places = [f"{name} row {end}" for end in range(2)]
    return read_edge_arrays(ends, None, n, options, memory, [f"{source}:", *places])


def _choose(shapes: dict[str, tuple], choice: str | None, where: Source) -> str:
    """Return the name of the variable with the adjacency or the edges."""
    if choice is None and find_name(shapes, NAMES) is None:
        edges = find_name(shapes, [EDGES])
        if edges is not None:
            return edges
    others = {name: shape for name, shape in shapes.items()
              if find_name([name], (*FEATURES, *LABELS, GROUPS, FACTS)) is None}
    name = (choice is None and choose_matrix(others, None, where)) or choose_matrix(
        shapes, choice, where)
    if name is None:
        raise DataError(f"{where}: holds {listed_shapes(shapes)}, expected a square matrix, or "
                        f"{EDGES}")
    return name


def _take_labels(raw: Raw, values: Any, where: str, memory: int, *, one: bool) -> None:
    """Set `raw.labels` to an array (n, t), or to one class for each vertex (`one`).

    Classes that begin at 1 are numbered from 0.
    """
    need(8 * values.shape[0] * values.shape[1], memory, where)
    values = values.toarray() if sp.issparse(values) else values
    if not one or values.shape not in ((raw.num_nodes, 1), (1, raw.num_nodes)):
        raw.labels = values
        return

    classes = parse_classes([f"{value:.17g}" for value in values.ravel().tolist()], where,
                            "vertex {}".format)
    raw.labels, raw.class_names = classes.numbers, classes.names
    raw.notes += classes.notes

    # name classes that begin at 1 by their numbers
    count = int(raw.labels.max(initial=0))
    if np.array_equal(np.unique(raw.labels[raw.labels >= 0]), np.arange(1, count + 1)) and count:
        raw.labels = np.where(raw.labels > 0, raw.labels - 1, -1)
        raw.class_names = tuple(map(str, range(1, count + 1)))
        raw.notes.append(f"classes 1..{count} are numbered 0..{count - 1}")


def _take_facts(raw: Raw, facts: np.ndarray, where: str) -> None:
    """Set the labels and the features of `raw` from Facebook100's table `local_info`."""
    n = raw.num_nodes
    if sp.issparse(facts) or facts.dtype.kind not in "fiu" or facts.shape != (n, 7):
        raise DataError(f"{where} has shape {np.shape(facts)}, expected numbers ({n}, 7)")

    # take the gender as label
    gender = facts[:, GENDER]
    wrong = ~np.isin(gender, (0, 1, 2))
    if wrong.any():
        k = np.argmax(wrong)
        raise DataError(f"{where}: gender of vertex {k} is {gender[k]}, expected 1, 2, or 0 for "
                        "unknown")
    raw.labels = gender.astype(np.int64) - 1

    # encode the other facts as one-hot features
    columns = [np.unique(facts[:, k], return_inverse=True) for k in range(7) if k != GENDER]
    blocks = [sp.csr_array((np.ones(n, np.float32), place.ravel(), np.arange(n + 1)),
                           shape=(n, values.size)) for values, place in columns]
    raw.features = sp.hstack(blocks, format="csr")
    known = [name for name in FACT_NAMES if name != FACT_NAMES[GENDER]]
    raw.feature_names = tuple(f"{name}={value:g}" for name, (values, _) in zip(known, columns)
                              for value in values)
    raw.notes.append(f"labels: gender; features: {raw.features.shape[1]} columns, one for each "
                     "value of the other columns of local_info")
