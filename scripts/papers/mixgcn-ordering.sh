#!/usr/bin/env bash
# Reordering by RCM: its seconds beside METIS's, the bandwidth, the stages that a pipeline needs, how many batches the
# first one waits for, and mop's pipeline in both orders (mixgcn, Tables 4 and 5: stages 11, 11, 19, 6, 4; faster by
# 1.01 to 1.18).
#     scripts/papers/mixgcn-ordering.sh [--small] GRAPH.h5 ...
# RANKS=2, BATCHES=6, HIDDEN=128, EPOCHS, PARTS=32 of METIS, OUT=FOLDER. Both orders of mop take turns, twice over.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
ranks=${RANKS:-2}
batches=${BATCHES:-6}
declare -A flags=([stored]=--no-rcm [rcm]=)
for graph in "${graphs[@]}"; do
    name=$(basename "$graph" .h5)
    for order in stored rcm; do
        hpgcn partition "$graph" -k "$ranks" --method block --pipeline-batches "$batches" ${flags[$order]} \
            -o "$out/$name.$order.h5" --overwrite --json > "$out/$name.$order.json"
    done
    show mixgcn_ordering.py seconds "$graph" "${PARTS:-$(pick 2 32)}" > "$out/$name.seconds.json"
    for turn in 1 $([ $small = 1 ] || echo 2); do
        for order in stored rcm; do
            on "$ranks" train "$out/$name.$order.h5" --strategy mop:"$batches" --layers 3 \
                --hidden "${HIDDEN:-$(pick 16 128)}" --threads 1 --epochs "${EPOCHS:-$(pick 2 8)}" --eval-every 0 \
                --out "$out/$name-$order-$turn" --overwrite -q > /dev/null
        done
    done
done
show mixgcn_ordering.py table "$out"
