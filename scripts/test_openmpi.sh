#!/usr/bin/env bash
# Run the tests that depend on the MPI library on Open MPI: faults, doctor, the MPI tests on 2 and 3 ranks. Makes .venv-openmpi;
# tests/reliability then find it there and try both libraries. Arguments go to pytest; --product runs every case.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
VENV=.venv-openmpi setup mpi,openmpi,partition,demo,test
python=.venv-openmpi/bin/python
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

.venv-openmpi/bin/hpgcn doctor
"$python" -m pytest -q tests/reliability "$@"
for ranks in 2 3; do
    echo "== $ranks ranks"
    .venv-openmpi/bin/mpiexec -n "$ranks" "$python" -m pytest -q tests/mpi --ignore=tests/mpi/test_memory.py "$@"
done
echo "all tests passed on Open MPI"
