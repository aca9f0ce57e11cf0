#!/usr/bin/env bash
# Accuracy on P = 1, 3, 9 and 27 ranks, curves on each other (demirci-2022, Figure 4c: about 75% on Cora).
#     scripts/papers/accuracy.sh [--small] GRAPH.h5
# Ranks run in one process, in turns. RANKS="1 3 9 27", EPOCHS=30, METHOD=hypergraph, OUT=FOLDER.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
graph=${graphs[0]}
ranks=${RANKS:-$(pick "1 3" "1 3 9 27")}
for p in $ranks; do
    hpgcn partition "$graph" -k "$p" --method "${METHOD:-hypergraph}" -o "$out/p$p.h5" --overwrite -q
    hpgcn train "$out/p$p.h5" --ranks "$p" --strategy p2p --epochs "${EPOCHS:-30}" --out "$out/P$p" --overwrite -q > /dev/null
done
show accuracy.py "$out" "$ranks"
