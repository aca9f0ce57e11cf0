#!/usr/bin/env bash
# Aggregation by blocks of x (distgnn-2021, Table 3 and Figures 3 and 4): time, rows read and written, and reuse for
# 1 to 64 blocks; then dynamic scheduling, blocks and loop reordering, one added after the other.
#     scripts/papers/distgnn-blocks.sh [--small] GRAPH.h5
# WIDTH=128 (columns of x), REPEATS=5, THREADS=0 (all cores) and OUT, a folder for blocks.json and distgnn-blocks.png.
set -euo pipefail
small=0
[ "${1:-}" = --small ] && { small=1; shift; }
[ $# = 1 ] || [ $small = 1 ] || { sed -n '2,/^set/s/^# \?//p' "$0" >&2; exit 2; }
graph=()
[ $# = 1 ] && graph=("$(realpath "$1")")
out=$(realpath -m "${OUT:-$(mktemp -d)}")
mkdir -p "$out"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! command -v hpgcn > /dev/null; then
    source scripts/setup.sh
    setup plot
    PATH=$PWD/.venv/bin:$PATH
fi
[ ${#graph[@]} = 1 ] || graph=(--graphs dense --scale-down 1024)
python scripts/benchmarks/run.py aggregate "${graph[@]}" --widths "${WIDTH:-128}" --threads "${THREADS:-0}" \
    --repeats "${REPEATS:-$([ $small = 1 ] && echo 1 || echo 5)}" --json > "$out/blocks.json"
python scripts/papers/distgnn_blocks.py "$out"
