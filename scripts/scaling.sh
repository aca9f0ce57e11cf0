#!/usr/bin/env bash
# Strong scaling: every strategy on 1 and on more ranks of one thread each, on an R-MAT graph of 2^17 vertices and about
# 20 M nonzeros, three layers, width 128. RANKS="1 2 4" where there are as many cores; STRATEGIES, SCALE, EDGES, EPOCHS and OUT
# likewise. Runs take turns, twice over, so that a slow minute of the machine does not fall on one of them alone.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition
out=${OUT:-$(mktemp -d)}
hpgcn=(.venv/bin/python -m hpgcn)
"${hpgcn[@]}" generate rmat "$out/rmat.h5" --scale "${SCALE:-17}" --edge-factor "${EDGES:-106}" --features 128 --classes 40 --overwrite -q
for ranks in ${RANKS:-1 2}; do
    "${hpgcn[@]}" partition "$out/rmat.h5" -k "$ranks" --method "${METHOD:-random}" -o "$out/rmat.p$ranks.h5" --overwrite -q
done
runs=()
for turn in 1 2; do
    for strategy in ${STRATEGIES:-p2p cover vertex-cut 1d 1.5d 2d 3d mop}; do
        for ranks in ${RANKS:-1 2}; do
            graph=$out/rmat.h5
            [[ $strategy =~ ^(p2p|cover|vertex-cut|1d)$ ]] && graph=$out/rmat.p$ranks.h5
            run=$out/$strategy-P$ranks-$turn
            .venv/bin/mpiexec -n "$ranks" "${hpgcn[@]}" train "$graph" --strategy "$strategy" --layers 3 --hidden 128 \
                --epochs "${EPOCHS:-8}" --eval-every 0 --threads 1 --out "$run" --overwrite > /dev/null
            runs+=("$run")
        done
    done
done
.venv/bin/python -m hpgcn report "${runs[@]}"
