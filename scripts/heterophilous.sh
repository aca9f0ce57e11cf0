#!/usr/bin/env bash
# The baselines of Platonov et al. (2023, arXiv 2302.11640) on one of their graphs, only with flags:
#     scripts/heterophilous.sh tolokers.npz [gcn|sage|gat] [flags of hpgcn train that go before these]
# Ten splits, a run each, in the folder tolokers-gcn; the table at the end has mean and standard
# deviation. LAYERS (5) is the number of blocks, which the paper chooses among 1 to 5 by the
# validation result; RANKS (1) is the number of ranks. It needs hpgcn on PATH.
set -euo pipefail
graph=$1 model=${2:-gcn}
name=$(basename "$graph" .npz)
case $name in
    minesweeper | tolokers | questions) metric=roc-auc ;;  # of two classes
    *) metric=accuracy ;;
esac
heads=()
[ "$model" != gat ] || heads=(--heads 8)
start=()
[ "${RANKS:-1}" = 1 ] || start=(mpiexec -n "$RANKS")

[ -e "$name.h5" ] || hpgcn convert "$graph" "$name.h5"
# linear to width 512, dropout, GELU; blocks H + FFN(aggregate(norm(H))); layer norm, linear; Adam
"${start[@]}" hpgcn train "$name.h5" --model "$model" "${heads[@]}" --layers "${LAYERS:-5}" \
    --hidden 512 --input-layer --output-layer --residual --norm layer --activation gelu --ffn \
    --dropout 0.2 --lr 3e-5 --weight-decay 0 --epochs 1000 --metric "$metric" --splits all \
    --out "$name-$model" "${@:3}"
