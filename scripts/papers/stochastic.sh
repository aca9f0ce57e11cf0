#!/usr/bin/env bash
# Rows that mini-batches send on parts of the hypergraph (HP) and of the stochastic hypergraph (SHP), counted over whole
# epochs without training (demirci-2022, Figure 5: HP sends 10% more on com-Amazon, batches of 20,000 vertices, 3 to 27
# GPUs). Batches have 20,000 vertices, or a tenth of the graph's if those are fewer.
#     scripts/papers/stochastic.sh [--small] GRAPH.h5
# RANKS="3 9 27", EPOCHS=10, OUT=FOLDER. Neither kind of parts is refined; "best" are those of hpgcn for full batches.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
ranks=${RANKS:-$(pick "3 9" "3 9 27")}
python "$here/../benchmarks/run.py" batches "${graphs[0]}" --ranks "${ranks// /,}" --epochs "${EPOCHS:-$(pick 2 10)}" \
    --json > "$out/batches.json"
show stochastic.py "$out"
