"""Number parts so that pairs of them make good partitions into half the number, and so on."""
import numpy as np

HALVINGS = 3  # levels of halving, at most
ROUNDS = 50  # passes over pairs of pairs, at most


def nested_parts(method, cut, rows, weights, request):
    """Divide the graph into halves at most HALVINGS times, then each piece into parts.

    If all parts are found at once and then merged, halves are a fifth worse than halves
    that are found as such.

    Parameters
    ----------
    method : callable
        One of METHODS that partition rows; its parts are not refined.
    cut : callable
        Returns, from rows (n, n) and some vertices, the rows that `method` gets.
    rows, weights, request
        Arguments of `method`.

    Returns
    -------
    part : (n,) int32
    groups : int
        Number of groups of consecutive parts; groups are already nested.
    first : Parts or None
        The parts of the first division.
    """
    # halvings first; together they keep within the imbalance
    factors, rest = [], request.k
    while rest % 2 == 0 and len(factors) < HALVINGS:
        factors.append(2)
        rest //= 2
    share = (1 + request.epsilon) ** (1 / (len(factors) + 1)) - 1

    # divide each group, level by level
    part = np.zeros(weights.size, np.int32)
    groups = 1
    first = None
    for factor in (*factors, rest):
        finer = np.empty_like(part)
        for group in range(groups):
            own = np.flatnonzero(part == group)
            found = np.arange(own.size) % factor
            if 1 < factor < own.size:
                part_request = request._replace(k=factor, epsilon=share, refine=False)
                made = method(cut(rows, own), weights[own], part_request)
                first = first or made
                found = made.part
            finer[own] = found
        part = part * factor + finer
        groups *= factor
    return part, groups // rest, first


def nested_numbers(touched):
    """Return numbers of parts so that 2 p and 2 p + 1 merge well.

    Parts are paired level by level, until two or an odd number are left. Two parts that
    merge save a row or sum for each net that both touch.

    Parameters
    ----------
    touched : csr_array (k, nets) of numbers
        1 where a part touches a net.

    Returns
    -------
    (k,) int64
        New number of each part.
    """
    touched = touched.astype(np.int64)

    # merge pairs until one or an odd number is left
    members = np.arange(touched.shape[0])[:, None]  # parts of each group
    while len(members) > 2 and len(members) % 2 == 0:
        shared = (touched @ touched.T).toarray()
        pairs = _match(shared)
        members = members[pairs].reshape(len(pairs), -1)
        touched = touched[pairs[:, 0]] + touched[pairs[:, 1]]
        touched.data[:] = 1

    # the order of the members is the numbering
    numbers = np.empty(members.size, np.int64)
    numbers[members.ravel()] = np.arange(members.size)
    return numbers


def _match(shared):
    """Pair groups that share many nets, greedily, then by exchanging partners, (m / 2, 2)."""
    m = len(shared)
    first, second = np.triu_indices(m, 1)
    free = np.ones(m, bool)
    pairs = []

    # greedy pairs, the closest first
    for at in np.argsort(-shared[first, second], kind="stable"):
        a, b = first[at], second[at]
        if free[a] and free[b]:
            free[[a, b]] = False
            pairs.append((a, b))

    # exchange partners while that helps
    pairs = np.array(pairs)
    for _ in range(ROUNDS):
        if not _exchange(pairs, shared):
            break

    return pairs


def _exchange(pairs, shared):
    """Exchange partners wherever two pairs share more afterwards; return whether any did."""
    changed = False
    for i in range(len(pairs)):
        a, b = pairs[i]
        c, d = pairs.T
        kept = shared[a, b] + shared[c, d]
        gains = np.stack([shared[a, c] + shared[b, d], shared[a, d] + shared[b, c]]) - kept
        gains[:, i] = 0
        way, j = np.unravel_index(np.argmax(gains), gains.shape)
        if gains[way, j] > 0:
            c, d = pairs[j] if way == 0 else pairs[j][::-1]
            pairs[i], pairs[j] = (a, c), (b, d)
            changed = True
    return changed
