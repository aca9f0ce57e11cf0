#!/usr/bin/env bash
# A long version of two tests: a training run on 3 ranks is killed (-9) at KILLS random moments and resumed each time; it
# must end with the bits of an undisturbed run; then FILES damaged files of each group are read. SEED repeats all choices.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition,kahypar,kaminpar,demo,plot,test,dev
seed=${SEED:-$RANDOM}
echo "== ${KILLS:-50} kills, SEED=$seed"
HPGCN_KILLS=${KILLS:-50} HPGCN_SEED=$seed .venv/bin/python -m pytest -q tests/reliability/test_checkpoint_crash.py -k random_moments
echo "== ${FILES:-2000} damaged files of each group, SEED=$seed"
.venv/bin/python scripts/soak_fuzz.py --count "${FILES:-2000}" --seed "$seed"
