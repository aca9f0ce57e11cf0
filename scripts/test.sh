#!/usr/bin/env bash
# The tests in about ten minutes: each value of each parameter once, and what is left out is said.
#   --all       everything, before a change is published: about an hour on two cores
#   --coverage  measure which lines run, and print their share; add --all for the share of all tests
# Other arguments go to the serial pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

all=() measure=() rest=()
for argument; do
    case $argument in
        --all) all=(--all) ;;
        --coverage) measure=(-m coverage run) ;;
        *) rest+=("$argument") ;;
    esac
done
setup mpi,mpich,partition,kahypar,demo,plot,test,dev
python=.venv/bin/python
[ ${#measure[@]} -eq 0 ] || "$python" -m coverage erase

on_ranks() {  # number of ranks, arguments of pytest
    echo "== $1 ranks"
    # more ranks than cores: MPICH's waiting ranks must give way to those that compute
    MPIR_CVAR_ENABLE_HEAVY_YIELD=1 .venv/bin/mpiexec -n "$1" \
        "$python" "${measure[@]}" -m pytest -q "${all[@]}" "${@:2}"
}

"$python" "${measure[@]}" -m pytest -q -n 2 --dist loadfile --max-worker-restart=0 "${all[@]}" \
    tests --ignore=tests/mpi "${rest[@]}"
if [ ${#all[@]} -gt 0 ]; then
    # the long files run where they show most: what a grid of 2 could get wrong, those of 3 and 4 get wrong as well
    on_ranks 2 tests/mpi --ignore=tests/mpi/test_memory.py --ignore=tests/mpi/test_models.py \
        --ignore=tests/mpi/test_stacks_of_ranks.py --ignore-glob="*/test_strategy_*"
    on_ranks 3 tests/mpi --ignore=tests/mpi/test_memory.py
    on_ranks 4 tests/mpi
    on_ranks 7 tests/mpi/test_contract.py  # the number of ranks changes nothing
else
    grids="1.5d or 15d or 2d or 3d or summa"  # whose smallest grid of several rows and columns has 4 ranks
    on_ranks 3 tests/mpi --ignore=tests/mpi/test_memory.py -k "not ($grids)"
    on_ranks 4 tests/mpi --ignore=tests/mpi/test_memory.py -k "$grids"
fi

if [ ${#measure[@]} -gt 0 ]; then
    "$python" -m coverage combine -q
    "$python" -m coverage report --skip-covered --sort=cover
fi
echo "all tests passed"
