"""Maximum matchings of bipartite graphs, in compiled code.

A graph has sums (its rows) and columns. `ptr` (S + 1,) and `adj` (e,) list the columns
of each sum, `cptr` and `cadj` the sums of each column. Columns marked in `passing` are
left out. `match_s` and `match_c` have the partner of each sum and column, or -1. All
numbers are int32. Parallel edges are allowed.

Source: Hopcroft and Karp, SIAM J. Comput. 2(4), 1973.
"""
from __future__ import annotations

import numpy as np

from hpgcn.kernels.host.jit import jit


@jit()
def transpose(num_sums: int, num_columns: int, ptr: np.ndarray, adj: np.ndarray, cptr: np.ndarray,
              cadj: np.ndarray) -> None:
    """Fill in the sums of each column, `cptr` and `cadj`."""
    # count the edges of each column
    cptr[:num_columns + 1] = 0
    for e in range(ptr[num_sums]):
        cptr[adj[e] + 1] += 1
    for c in range(num_columns):
        cptr[c + 1] += cptr[c]

    # place them; pointers move on by a column, and are moved back
    for u in range(num_sums):
        for e in range(ptr[u], ptr[u + 1]):
            c = adj[e]
            cadj[cptr[c]] = u
            cptr[c] += 1
    for c in range(num_columns, 0, -1):
        cptr[c] = cptr[c - 1]
    cptr[0] = 0


@jit()
def begin(num_sums: int, num_columns: int, ptr: np.ndarray, adj: np.ndarray, degree: np.ndarray,
          passing: np.ndarray, match_s: np.ndarray, match_c: np.ndarray) -> None:
    """Match each sum with its free column of least `degree`."""
    match_c[:num_columns] = -1
    for u in range(num_sums):
        match_s[u] = -1
        fewest = 0
        for e in range(ptr[u], ptr[u + 1]):
            c = adj[e]
            free = not passing[c] and match_c[c] < 0
            if free and (match_s[u] < 0 or degree[c] < fewest):
                match_s[u] = c
                fewest = degree[c]
        if match_s[u] >= 0:
            match_c[match_s[u]] = u


@jit()
def augment(ptr: np.ndarray, adj: np.ndarray, passing: np.ndarray, match_s: np.ndarray,
            match_c: np.ndarray, free: np.ndarray, count: int, level: np.ndarray, queue: np.ndarray,
            at: np.ndarray, path: np.ndarray) -> int:
    """Make a matching maximum.

    Free[:count] are its free sums. Return how many sums lie on alternating paths from
    the sums that stay free.

    These sums are in `queue`, and have `level` >= 0; other sums have -1. The caller sets
    all levels to -1 before the first call, and these after each call. `at` and `path`
    are work arrays.
    """
    nowhere = np.int32(0x7FFFFFFF)
    while True:
        # breadth first from the free sums, up to the first level that reaches a free column
        top = 0
        for i in range(count):
            u = free[i]
            queue[top] = u
            top += 1
            level[u] = 0
            at[u] = ptr[u]
        last = nowhere
        head = 0
        while head < top:
            u = queue[head]
            head += 1
            if level[u] > last:
                break
            for e in range(ptr[u], ptr[u + 1]):
                c = adj[e]
                if passing[c]:
                    continue
                w = match_c[c]
                if w < 0:
                    last = level[u]
                elif level[w] < 0:
                    level[w] = level[u] + 1
                    at[w] = ptr[w]
                    queue[top] = w
                    top += 1
        if last == nowhere:
            return top

        # disjoint paths along the levels, depth first
        kept = 0
        for i in range(count):
            path[0] = free[i]
            depth = 0
            while depth >= 0:
                u = path[depth]
                if at[u] == ptr[u + 1]:  # a dead end: back to the sum before
                    depth -= 1
                    if depth >= 0:
                        at[path[depth]] += 1
                    continue
                c = adj[at[u]]
                if not passing[c]:
                    w = match_c[c]
                    if w < 0:
                        break
                    if level[w] == level[u] + 1 and at[w] < ptr[w + 1]:
                        depth += 1
                        path[depth] = w
                        continue
                at[u] += 1

            # swap the pairs of the path
            if depth < 0:
                free[kept] = free[i]
                kept += 1
            while depth >= 0:
                u = path[depth]
                match_s[u] = adj[at[u]]
                match_c[adj[at[u]]] = u
                at[u] = ptr[u + 1]  # no other path of this round passes here
                depth -= 1

        count = kept
        for i in range(top):
            level[queue[i]] = -1
