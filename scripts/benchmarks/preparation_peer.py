"""Programs that the benchmark `preparation` compares with, each in a process of its own.

    python preparation_peer.py read FILE                    read a file, without using its contents
    python preparation_peer.py pymetis GRAPH.h5 PARTS OUT   partition with pymetis
    python preparation_peer.py cluster GRAPH.h5 PARTS OUT   partition with PyG's ClusterData

OUT gets the part of each row, as an npy file. Seconds of the call without the read are printed.
"""

import sys
import time

import h5py
import numpy as np

BLOCK = 1 << 22  # bytes


def read(path):
    """Read a file block by block; return the number of bytes."""
    block = bytearray(BLOCK)
    size = 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            size += count
    return size


def pymetis(indptr, indices, parts):
    """Return the part of each row, by METIS (k-way)."""
    import pymetis as library

    adjacency = library.CSRAdjacency(indptr, indices)
    return lambda: library.part_graph(parts, adjacency)[1]


def cluster(indptr, indices, parts):
    """Return the part of each row, by PyG's ClusterData."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import ClusterData

    n = indptr.size - 1
    rows = np.repeat(np.arange(n), np.diff(indptr))
    edges = torch.from_numpy(np.stack([rows, indices.astype(np.int64)]))
    data = Data(edge_index=edges, num_nodes=n)

    def run():
        found = ClusterData(data, parts, log=False).partition
        part = np.empty(n, np.int64)
        part[found.node_perm] = np.repeat(np.arange(parts), np.diff(found.partptr))
        return part
    return run


PEERS = {"pymetis": pymetis, "cluster": cluster}


def main(name, path, parts=1, out=None):
    """Run one of the programs."""
    if name == "read":
        print(read(path))
        return
    with h5py.File(path) as file:
        indptr, indices = (file[f"adjacency/{key}"][:] for key in ("indptr", "indices"))
    run = PEERS[name](indptr, indices, int(parts))
    begin = time.perf_counter()
    part = run()
    print(time.perf_counter() - begin)
    np.save(out, np.asarray(part))


if __name__ == "__main__":
    main(*sys.argv[1:])
