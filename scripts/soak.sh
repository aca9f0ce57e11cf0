#!/usr/bin/env bash
# What the suite does briefly, at length. KILLS=50: a training run on 3 ranks is killed (-9) at so many random moments, goes on
# each time, and must end with the bits of an undisturbed run. SEED repeats the choice of ranks and moments.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition,kahypar,demo,plot,test,dev
seed=${SEED:-$RANDOM}
echo "== ${KILLS:-50} kills, SEED=$seed"
HPGCN_KILLS=${KILLS:-50} HPGCN_SEED=$seed .venv/bin/python -m pytest -q tests/reliability/test_checkpoint_crash.py -k random_moments
