"""Divide the cores of a node among its ranks.

A launcher may have bound each rank to cores of its own. Otherwise ranks stay in NUMA
domains, one or more ranks in each: memory of another domain is slower.
"""
from fractions import Fraction


def share_of(cores: list[set[int]], rank: int) -> int:
    """Return the number of cores of a rank, at least 1.

    `cores` are those that each rank of the node may use. A core that several ranks may
    use is divided among them.
    """
    users = {core: sum(core in each for each in cores) for core in cores[rank]}
    return max(1, int(sum(Fraction(1, count) for count in users.values())))


def domain_of(cores: list[set[int]], rank: int, domains: list[set[int]]) -> set[int] | None:
    """Return the NUMA domain in which a rank of a node should stay; None for no change.

    `cores` are those that each rank may use. If they differ, the launcher has bound the
    ranks. `domains` are the cores of each domain. Consecutive ranks share a domain, the
    same number each.
    """
    count = len(cores)
    bound = any(each != cores[0] for each in cores)
    if bound or not count or len(domains) < 2 or count % len(domains):
        return None
    return domains[rank * len(domains) // count]
