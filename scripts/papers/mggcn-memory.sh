#!/usr/bin/env bash
# GB of a rank by number of layers, with buffers shared by the layers as here and with buffers of their own
# (mg-gcn-2021, section 4.2: L + 3 big buffers; a framework that keeps HW and AHW of each layer has more).
#     scripts/papers/mggcn-memory.sh [--small] GRAPH.h5
# LAYERS="2 3 5 10", HIDDEN=512, RANKS=1, OUT=FOLDER. Memory is forecast, and measured for MEASURE="2 3".
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
graph=${graphs[0]}
layers=${LAYERS:-$(pick "2 4" "2 3 5 10")}
measure=${MEASURE:-2}
model=(--hidden "${HIDDEN:-$(pick 16 512)}" --ranks "${RANKS:-1}")
for count in $layers; do
    hpgcn train "$graph" --layers "$count" "${model[@]}" --dry-run --json > "$out/layers$count.json"
done
for count in $measure; do
    hpgcn train "$graph" --layers "$count" "${model[@]}" --epochs 2 --eval-every 0 --out "$out/layers$count" \
        --overwrite -q > /dev/null
done
show mggcn_memory.py "$out" "$layers"
