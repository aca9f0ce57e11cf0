#!/usr/bin/env bash
# Aggregation by blocks of x (distgnn-2021, Table 3 and Figures 3 and 4): time, rows read and written, and reuse for
# 1 to 64 blocks; then dynamic scheduling, blocks and loop reordering, one added after the other.
#     scripts/papers/distgnn-blocks.sh [--small] GRAPH.h5
# WIDTH=128 (columns of x), REPEATS=5, THREADS=0 (all cores), OUT=FOLDER.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
python "$here/../benchmarks/run.py" aggregate "${graphs[0]}" --widths "${WIDTH:-128}" --threads "${THREADS:-0}" \
    --repeats "${REPEATS:-$(pick 1 5)}" --json > "$out/blocks.json"
show distgnn_blocks.py "$out"
