"""The part of a plan's report that is about nodes: bytes and seconds between and within them."""
from hpgcn.planning.seconds.message_seconds import bytes_between
from hpgcn.planning.seconds.step_seconds import tier_seconds


def tiers_of(ranks, footprint, machine):
    """Return the seconds and the other entries of a report's row about nodes.

    They are two dicts, both empty if the machine has one tier.
    """
    nodes = machine.nodes(ranks)
    if nodes is None:
        return {}, {}
    prediction = footprint.prediction
    between = int(bytes_between(prediction, nodes, footprint.plan.is_floor).sum())
    seconds = tier_seconds(machine, footprint)
    return dict(zip(("between_nodes", "within_nodes"), seconds)), {
        "nodes": int(nodes.max()) + 1, "node_aware": footprint.node_aware,
        "bytes_between_nodes": between,
        "bytes_within_nodes": prediction.total_bytes() - between}


def node_notes(options, ranks):
    """Return a list with a note on networks between and within nodes.

    The list is empty if the machine needs no note. `ranks` is the largest number of
    ranks.
    """
    machine = options.machine
    if machine.within is not None and not options.single_node:
        return [f"networks of the machine file: {_rates(machine.network)} between nodes of "
                f"{machine.ranks_per_node} ranks, {_rates(machine.within)} within them"]
    if options.single_node:
        if not machine.ranks_per_node and ranks > options.single_node:
            return [f"{ranks} ranks, but the machine file has the network within a node of "
                    f"{options.single_node} ranks only: seconds of more ranks are too low; use "
                    f"--ranks-per-node {options.single_node}"]
        if machine.ranks_per_node and ranks > machine.ranks_per_node:
            return [f"network between nodes assumed: {_rates(machine.network)} per rank; that "
                    f"of the machine file, {_rates(machine.within)}, is within nodes"]
    return []


def _rates(tier):
    return f"{tier.latency_s * 1e6:g} us, {tier.bytes_per_s / 1e9:g} GB/s"
