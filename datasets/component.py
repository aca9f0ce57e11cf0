"""The largest connected component of an input, as used in evaluations of published models."""
import numpy as np
import scipy.sparse as sp


def largest_component(csr, raw):
    """Drop vertices outside the largest weakly connected component; if several are
    equally large, keep the first.

    Parameters
    ----------
    csr : (indptr, indices, data)
        Of all vertices; data None for ones.
    raw : Raw
        Features, labels, masks and ids become those of the vertices that are left.

    Returns
    -------
    (indptr, indices, data)
        Vertices keep their order; `raw.original_ids` tells what they were, where any is left out.
    """
    indptr, indices, data = csr
    n = indptr.size - 1

    # find the component
    from scipy.sparse.csgraph import connected_components  # takes long to import
    pattern = sp.csr_array((np.ones(indices.size, np.int8), indices, indptr), shape=(n, n))
    _, component = connected_components(pattern, directed=True, connection="weak")
    kept = component == np.argmax(np.bincount(component))
    left_out = n - int(np.count_nonzero(kept))
    raw.notes.append(f"{left_out} vertices dropped: not in the largest component")
    if not left_out:
        return csr

    # renumber the vertices that are left
    vertices = np.flatnonzero(kept)
    # whether the row of an entry is kept, and so its column
    inside = kept[np.repeat(np.arange(n), np.diff(indptr))]
    numbers = np.cumsum(kept) - 1
    degree = np.diff(indptr)[vertices]
    ids = np.arange(raw.base, raw.base + n) if raw.original_ids is None else raw.original_ids

    # keep their rows of features, labels and masks
    raw.num_nodes = vertices.size
    raw.original_ids = ids[vertices]
    for name in ("features", "labels"):
        array = getattr(raw, name)
        if array is not None:
            rows = array.tocsr() if sp.issparse(array) else array
            setattr(raw, name, rows[vertices])
    if raw.masks is not None:
        raw.masks = {key: np.asarray(mask)[vertices] for key, mask in raw.masks.items()}
    return (np.concatenate([[0], np.cumsum(degree)]).astype(indptr.dtype),
            numbers[indices[inside]].astype(indices.dtype), None if data is None else data[inside])
