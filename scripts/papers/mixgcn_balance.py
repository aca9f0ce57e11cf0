"""Table for mixgcn-balance.sh.

Operations of the busiest rank divided by the mean over ranks.
"""
import sys

import numpy as np
from results import count_axis, curves, picture, show

import hpgcn
from hpgcn.parallel.layout import split
from hpgcn.planning.answers.candidates import Candidate, count_candidate
from hpgcn.planning.counts.plan_input import PlanInput

# case: strategy and parts; in brackets the systems of the paper that divide the work so
CASES = {
    "graph parts (DistDGL, PipeGCN)": ("p2p", "graph"),
    "hypergraph parts": ("p2p", "hypergraph"),
    "random parts (CAGNET, Sancus)": ("p2p", "random"),
    "mop (MixGCN)": ("mop", "stored"),
}


def main(graph, ranks, hidden):
    inputs = PlanInput(graph, hpgcn.Config(graph=graph, layers=3, hidden=int(hidden)))
    ranks = [int(p) for p in ranks.split()]
    ratios = {}
    for case, (strategy, parts) in CASES.items():
        counts = [operations(count_candidate(inputs, Candidate(strategy, parts, p, (p,))))
                  for p in ranks]
        ratios[case] = [count.max() / count.mean() for count in counts]
    show("balance", "operations of the busiest rank over the mean; 3 layers",
         {"case": ("case", ""), **{f"ranks_{p}": (str(p), ".3f") for p in ranks}},
         [{"case": case, **{f"ranks_{p}": value for p, value in zip(ranks, values)}}
          for case, values in ratios.items()])
    print("mixgcn, Figure 11: 1 for MixGCN on any number of nodes; DistDGL and PipeGCN grow.")
    picture(lambda axes: draw(axes, ranks, ratios))


def draw(axes, ranks, ratios):
    """Plot the balance by ranks, like Figure 11."""
    curves(axes, {case: (ranks, values) for case, values in ratios.items()},
           title="Operations, busiest rank over the mean (mixgcn, Figure 11)", xlabel="ranks",
           ylabel="max / mean")
    count_axis(axes.xaxis, ranks)


def operations(footprint):
    """Return the number of floating-point operations of each rank in a training step, (P,)."""
    found = np.array([sum(flops for flops, _ in step.work.dense) for step in footprint.rank_steps],
                     np.float64)
    for product in footprint.products:
        plan = footprint.train_plans[product.layer]
        columns = np.diff(split(product.width, plan.traffic.slices))  # by rank, or one for all
        found += 2.0 * plan.operands[product.backward].entries_read * columns
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
