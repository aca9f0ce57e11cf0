#!/usr/bin/env bash
# Speed-up against density (mg-gcn-2021, Figure 9): BTER graphs like GRAPH.h5, of its vertices and X times its edges,
# on 1 and on more ranks of one thread each; two layers, 512 features and 40 random classes, as section 6.1 says.
#     scripts/papers/mggcn-density.sh [--small] GRAPH.h5
# FACTORS="1 2 4 8 16 32", RANKS="1 2" (the first is what others are compared with), HIDDEN, FEATURES, CLASSES, EPOCHS,
# METHOD of partition, SEED and OUT. Runs of all ranks take turns, twice over; the faster turn counts.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
factors=${FACTORS:-$(pick "1 2" "1 2 4 8 16 32")}
ranks=${RANKS:-1 2}
for factor in $factors; do
    hpgcn generate bter "$out/x$factor.h5" --like "${graphs[0]}" --scale-edges "$factor" \
        --features "${FEATURES:-$(pick 16 512)}" --classes "${CLASSES:-40}" --seed "${SEED:-0}" --overwrite -q
    for p in $ranks; do
        hpgcn partition "$out/x$factor.h5" -k "$p" --method "${METHOD:-random}" -o "$out/x$factor.p$p.h5" --overwrite -q
    done
    for turn in 1 $([ $small = 1 ] || echo 2); do
        for p in $ranks; do
            on "$p" train "$out/x$factor.p$p.h5" --strategy p2p --layers 2 --hidden "${HIDDEN:-$(pick 16 512)}" \
                --epochs "${EPOCHS:-$(pick 2 8)}" --eval-every 0 --threads 1 \
                --out "$out/x$factor-P$p-$turn" --overwrite -q > /dev/null
        done
    done
done
show mggcn_density.py "$out" "$factors" "$ranks"
