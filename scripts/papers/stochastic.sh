#!/usr/bin/env bash
# Rows and seconds of mini-batches on parts of the hypergraph (HP) and of the stochastic hypergraph (SHP)
# (demirci-2022, Figure 5: HP sends 10% more on com-Amazon, batches of 20,000 vertices, 3 to 27 GPUs).
#     scripts/papers/stochastic.sh [--small] GRAPH.h5
# RANKS="2 3", BATCH=20000 or a tenth of the vertices, EPOCHS, HIDDEN, OUT=FOLDER. Neither kind of parts is refined.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
graph=${graphs[0]}
ranks=${RANKS:-$(pick 2 "2 3")}
batch=${BATCH:-$(show stochastic.py batch "$graph")}
for p in $ranks; do
    for method in hypergraph stochastic; do
        hpgcn partition "$graph" -k "$p" --method $method --no-refine -o "$out/$method.p$p.h5" --overwrite -q
        on "$p" train "$out/$method.p$p.h5" --strategy p2p --batch "vertices:$batch" --hidden "${HIDDEN:-16}" \
            --epochs "${EPOCHS:-3}" --eval-every 0 --threads 1 --out "$out/$method-P$p" --overwrite -q > /dev/null
    done
done
show stochastic.py table "$out" "$ranks" "$batch"
