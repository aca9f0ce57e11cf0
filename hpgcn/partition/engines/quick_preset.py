"""A quick configuration of Mt-KaHyPar: its deterministic preset with less work.

The preset spends half of its time on a first partition, and most of the rest on rounds
of Jet. This one refines a partition that is given, in one V-cycle, or makes a first one
from few vertices. Its rounds end at the first iteration that gains little.
"""
# names and values of Mt-KaHyPar's own deterministic_preset.ini
_PRESET = """
mode=direct preset-type=deterministic deterministic=true maxnet-removal-factor=0.01
smallest-maxnet-threshold=50000 maxnet-ignore=1000 num-vcycles=0
s-use-localized-random-shuffle=false s-static-balancing-work-packages=128
p-enable-community-detection=true p-louvain-edge-weight-function=hybrid
p-max-louvain-pass-iterations=5 p-louvain-min-vertex-move-fraction=0.01
p-vertex-degree-sampling-threshold=200000 p-louvain-low-memory-contraction=true
p-num-sub-rounds=16 c-type=deterministic_multilevel_coarsener c-use-adaptive-edge-size=false
c-resolve-swaps=true c-min-shrink-factor=1.01 c-max-shrink-factor=2.5 c-s=1
c-vertex-degree-sampling-threshold=200000 c-num-sub-rounds=3 c-rating-score=heavy_edge
c-rating-heavy-node-penalty=no_penalty c-rating-acceptance-criterion=best_prefer_unmatched
i-mode=rb i-use-adaptive-ip-runs=false i-perform-refinement-on-best-partitions=false
i-fm-refinement-rounds=3 i-lp-maximum-iterations=20 i-lp-initial-block-size=5
i-r-refine-until-no-improvement=false i-r-rebalancer-type=deterministic i-r-lp-type=deterministic
i-r-lp-maximum-iterations=5 i-r-sync-lp-sub-rounds=1 i-r-lp-he-size-activation-threshold=100
i-r-sync-lp-active-nodeset=true i-r-fm-type=do_nothing i-population-size=64
r-refine-until-no-improvement=false r-rebalancer-type=deterministic r-max-det-rebalancing-rounds=0
r-det-rebalancing-deadzone=0.1 r-det-rebalancing-heavy-vertex-exclusion=1.5 r-lp-type=do_nothing
r-lp-maximum-iterations=5 r-sync-lp-sub-rounds=1 r-lp-he-size-activation-threshold=100
r-sync-lp-active-nodeset=true r-jet-type=deterministic r-jet-relative-improvement-threshold=0.001
r-jet-dynamic-rounds=3 r-jet-initial-negative-gain=0.75 r-jet-final-negative-gain=0.0
r-fm-type=do_nothing r-flow-algo=do_nothing"""
_SCRATCH = "c-t=10 i-runs=3"  # vertices and tries of a first partition; the preset has 160 and 20
_CYCLE = "c-t=160 i-runs=20"
_ROUNDS = "r-jet-num-iterations=1"  # without a gain; the preset has 8


def quick_ini(started):
    """Write the configuration, one setting per line; `started`: a partition is given."""
    return "\n".join([*_PRESET.split(), *(_CYCLE if started else _SCRATCH).split(), _ROUNDS]) + "\n"
