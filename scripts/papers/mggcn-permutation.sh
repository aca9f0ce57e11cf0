#!/usr/bin/env bash
# Imbalance and timeline of 1d's stages in the order of the file and permuted at random, with overlap and without
# (mg-gcn-2021, Figures 6 to 8: products of Products take 50 ms, permuted 38 ms, and 30 ms with overlap).
#     scripts/papers/mggcn-permutation.sh [--small] GRAPH.h5
# RANKS=2, HIDDEN=512, EPOCHS, OUT=FOLDER; NETWORK=1Gb,50us delays messages as such a network would.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
ranks=${RANKS:-2}
export HPGCN_NETWORK=${NETWORK:-}
for order in block random; do
    hpgcn partition "${graphs[0]}" -k "$ranks" --method $order --no-rcm -o "$out/$order.h5" --overwrite -q
    for overlap in 1 0; do
        HPGCN_OVERLAP=$overlap on "$ranks" train "$out/$order.h5" --strategy 1d --layers 2 --trace --threads 1 \
            --hidden "${HIDDEN:-$(pick 16 512)}" --eval-every 0 \
            --epochs "${EPOCHS:-$(pick 2 8)}" --out "$out/$order-$overlap" --overwrite -q > /dev/null
    done
done
show mggcn_permutation.py "$out"
