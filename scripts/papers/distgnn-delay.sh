#!/usr/bin/env bash
# Accuracy, bytes, memory and split vertices of exact sums (cd-0), of sums delayed by 5 epochs (cd-5) and of none (0c)
# on vertex cuts of Libra with roots at random (distgnn-2021, Tables 4 to 6); the last two as hpgcn delays sums, and as
# Algorithm 4 of the paper does (cases "paper").
#     scripts/papers/distgnn-delay.sh [--small] GRAPH.h5
# RANKS="2 4 8 16", EPOCHS=300, HIDDEN=16, LAYERS=2, OUT=FOLDER. Ranks run in one process, in turns.
# LR_0=.003 LR_5=.01 LR_NONE=.01: learning rates of cd-0, cd-5 and 0c, which differ in Table 5 as well.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
graph=${graphs[0]}
ranks=${RANKS:-$(pick 2 "2 4 8 16")}
model=(--model sage --aggregator gcn --layers "${LAYERS:-2}" --hidden "${HIDDEN:-16}")
declare -A rates=([0]=${LR_0:-.003} [5]=${LR_5:-.01} [none]=${LR_NONE:-.01})
for p in $ranks; do
    hpgcn partition "$graph" -k "$p" --method distgnn -o "$out/p$p.h5" --overwrite -q --json > "$out/p$p.json"
    for case in 0 5 5-paper none none-paper; do
        delay=$case steps=${case%-paper}
        [[ $case == *-paper ]] && steps=paper:$steps
        flags=(--strategy vertex-cut --delay "$steps" --lr "${rates[${case%-paper}]}")
        hpgcn train "$out/p$p.h5" --ranks "$p" "${flags[@]}" "${model[@]}" \
            --epochs "${EPOCHS:-$(pick 12 300)}" --out "$out/P$p-$delay" --overwrite -q > /dev/null
        hpgcn train "$out/p$p.h5" --ranks "$p" "${flags[@]}" "${model[@]}" --dry-run --json > "$out/P$p-$delay.json"
    done
done
show distgnn_delay.py "$out" "$ranks"
