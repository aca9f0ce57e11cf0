#!/usr/bin/env bash
# Seconds and MB of an epoch by purpose: dense broadcast, sparse broadcast, reduction, local (cagnet-2020, Figures 1 and 3)
# of 1d, of 1.5d with 2 copies, of 2d and of 3d.
#     scripts/papers/cagnet-breakdown.sh [--small] GRAPH.h5
# RANKS=4, HIDDEN=16 (the paper's), EPOCHS, OUT=FOLDER; NETWORK=1Gb,50us delays messages as such a network would.
# GRID=RxCxL of 3d: A is broadcast along C and sums are reduced along L, so both are 2 by default.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
graph=${graphs[0]}
export HPGCN_NETWORK=${NETWORK:-}
cases=()
for p in ${RANKS:-4}; do
    declare -A words=([1.5d]=:2 [3d]=":${GRID:-$((p / 4))x2x2}")
    for case in 1d 1.5d 2d 3d; do
        on "$p" train "$graph" --strategy "$case${words[$case]:-}" --layers 3 --hidden "${HIDDEN:-16}" --threads 1 \
            --trace --epochs "${EPOCHS:-$(pick 2 8)}" --eval-every 0 --out "$out/$case-P$p" --overwrite -q > /dev/null
        cases+=("$case-P$p")
    done
done
show cagnet_breakdown.py "$out" "${cases[@]}"
