"""Adjacency matrices in .mat files of MATLAB 5 to 7: SuiteSparse, Facebook100, DeepWalk's sets."""
import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.mat5 import BrokenError, variables
from hpgcn.datasets.raw import Raw
from hpgcn.datasets.source import need, shown
from hpgcn.errors import DataError

ADJACENCY = ("A", "network", "adj", "adjacency", "Problem")  # what the matrix is called
GROUPS = "group"  # of DeepWalk's sets: 0 or 1 for each vertex and label
FACTS = "local_info"  # of Facebook100
GENDER = 1  # its column in these: 1 or 2, 0 unknown


def read(source, memory):
    """Read the one square matrix, or that of a known name; A[u, v]: u aggregates v.

    Beside it `group` (n, t) are labels, and of `local_info` (n, 7), as Lim et al. (2021, arXiv
    2110.14446) take it, the column of gender is the label, and each value of another is a feature.
    """
    if source.is_gzip:
        raise DataError(f"{source}: compressed, expected a plain .mat file")
    found = variables(source, memory // 2)
    name = _choose({key: each.shape for key, each in found.items()}, source)
    where = f"{source}: {name}"
    try:
        matrix = found[name].field("A", where) if name == "Problem" else found[name]
        matrix = sp.coo_array(matrix.read(where))
        beside = {key: found[key].read(f"{source}: {key}") for key in (FACTS, GROUPS)
                  if key in found}
    except BrokenError as error:
        raise DataError(f"{where}: broken MATLAB data ({shown(error)})") from error
    n = matrix.shape[0]
    if n != matrix.shape[1]:
        raise DataError(f"{where} has shape {matrix.shape}, expected a square matrix")
    need(64 * (n + matrix.nnz), memory, f"{source}: {n} vertices and {matrix.nnz} entries")
    raw = Raw(n, *matrix.coords, matrix.data)
    if FACTS in beside:
        _take_facts(raw, beside[FACTS], f"{source}: {FACTS}")
    elif GROUPS in beside:
        groups = beside[GROUPS]
        need(4 * groups.shape[0] * groups.shape[1], memory, f"{source}: {GROUPS}")
        raw.labels = groups.toarray() if sp.issparse(groups) else groups
    unread = [key for key in found if key not in (name, *beside)]
    if unread:
        raw.notes.append(f"not read: {shown(', '.join(unread))}")
    return raw


def _choose(shapes, where):
    """Return the name of the adjacency matrix."""
    for name in ADJACENCY:
        if name in shapes:
            return name
    square = [name for name, shape in shapes.items()
              if len(shape) == 2 and shape[0] == shape[1] > 1]
    if len(square) == 1:
        return square[0]
    names = shown(", ".join(f"{name} {shape}" for name, shape in shapes.items())) or "nothing"
    raise DataError(f"{where}: holds {names}, expected one square matrix, or one called "
                    f"{' or '.join(ADJACENCY)}")


def _take_facts(raw, facts, where):
    """Make labels and features of Facebook100's table."""
    n = raw.num_nodes
    if sp.issparse(facts) or facts.dtype.kind not in "fiu" or facts.shape != (n, 7):
        raise DataError(f"{where} has shape {np.shape(facts)}, expected numbers ({n}, 7)")
    gender = facts[:, GENDER]
    wrong = ~np.isin(gender, (0, 1, 2))
    if wrong.any():
        k = np.argmax(wrong)
        raise DataError(f"{where}: gender of vertex {k} is {gender[k]}, expected 1, 2, or 0 for "
                        "unknown")
    raw.labels = gender.astype(np.int64) - 1
    columns = [np.unique(facts[:, k], return_inverse=True) for k in range(7) if k != GENDER]
    blocks = [sp.csr_array((np.ones(n, np.float32), place.ravel(), np.arange(n + 1)),
                           shape=(n, values.size)) for values, place in columns]
    raw.features = sp.hstack(blocks, format="csr")
    raw.notes.append(f"labels: gender; features: {raw.features.shape[1]} columns, one for each "
                     "value of the others in local_info")
