#!/usr/bin/env bash
# The main job on built-in data, from nothing: convert, partition in 4, train on 4 ranks. Results in demo/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition,demo
mkdir -p demo
bin=${VENV:-.venv}/bin
hpgcn() { "$bin/hpgcn" "$@"; }

echo "== handwritten digits as a graph: 10 nearest neighbors of each digit, 20 labels per class"
hpgcn convert digits demo/digits.h5 --overwrite
echo "== 4 parts: who owns which vertex"
hpgcn partition demo/digits.h5 -k 4 -o demo/digits.p4.h5 --overwrite
echo "== training on 4 ranks"
"$bin/mpiexec" -n 4 "$bin/hpgcn" train demo/digits.p4.h5 --hidden 32 --out demo/run --overwrite
"$bin/mpiexec" -n 4 "$bin/hpgcn" predict demo/run -o demo/run/predictions.h5 --overwrite -q
