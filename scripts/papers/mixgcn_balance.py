"""Table for mixgcn-balance.sh: operations of the busiest rank divided by the mean over
ranks.
"""
import sys

import numpy as np
from results import lines, show

import hpgcn
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
    curves = {}
    for case, (strategy, parts) in CASES.items():
        counts = [operations(count_candidate(inputs, Candidate(strategy, parts, p, (p,))))
                  for p in ranks]
        curves[case] = ranks, [float(count.max() / count.mean()) for count in counts]
    show("balance", "operations of the busiest rank over the mean; 3 layers",
         {"case": ("case", ""), **{f"ranks_{p}": (str(p), ".3f") for p in ranks}},
         [{"case": case, **{f"ranks_{p}": ratio for p, ratio in zip(ranks, ratios)}}
          for case, (_, ratios) in curves.items()])
    print("mixgcn, Figure 11: 1 for MixGCN on any number of nodes; DistDGL and PipeGCN grow.")
    lines("busiest rank over the mean", "ranks",
          "operations, max / mean", curves)


def operations(footprint):
    """Return the number of floating-point operations of each rank in a training step,
    (P,).
    """
    found = np.array([sum(flops for flops, _ in step.work.dense) for step in footprint.rank_steps],
                     np.float64)
    for product in footprint.products:
        plan = footprint.train_plans[product.layer]
        columns = -(-product.width // plan.traffic.slices)
        found += 2.0 * plan.operands[product.backward].entries_read * columns
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
