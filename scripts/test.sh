#!/usr/bin/env bash
# Run the tests: each value of each parameter once, and print what is left out.
#   --full      long tests too, each pair of values once, also on 2 and 4 ranks of MPI (there without
#               the long tests, on 2 ranks only messages, on 4 what grids change): what .ci/run runs
#   --product   long tests and every combination of values, before a release
#   --coverage  measure which lines run and print their share, of the tests that the other flags choose;
#               from Python 3.12 on at little cost: PYTHON=python3.13 VENV=.venv-3.13 scripts/test.sh
# Other arguments go to the serial pytest. A part that fails does not keep the next from running.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

tier=() sides=() measure=() rest=()
for argument; do
    case $argument in
        --full) tier=(--full --durations=25) ;;
        --product) tier=(--product --durations=25) sides=(--product) ;;
        --coverage) measure=(-m coverage run) ;;
        *) rest+=("$argument") ;;
    esac
done
setup mpi,mpich,partition,kahypar,kaminpar,demo,plot,test,docs,dev
venv=${VENV:-.venv}
python=$venv/bin/python
unset PYTHONDONTWRITEBYTECODE  # each of hundreds of processes would compile all modules again
if [ ${#measure[@]} -gt 0 ]; then
    "$python" -m coverage erase
    # code that makes kernels runs only where they are not compiled yet
    export NUMBA_CACHE_DIR=$PWD/.coverage-kernels
    rm -rf "$NUMBA_CACHE_DIR"
fi

parts=() status=0
part() {  # name, command: run it; keep its time and whether it failed
    local began=$SECONDS result=passed
    echo "== $1"
    "${@:2}" || { result="FAILED ($?)"; status=1; }
    parts+=("$(printf '%-8s %5d s  %s' "$1" $((SECONDS - began)) "$result")")
}

serial() {
    # a process that has finished its share takes tests from the end of the other's
    "$python" "${measure[@]}" -m pytest -q -n 2 --dist worksteal --max-worker-restart=0 \
        "${tier[@]}" tests --ignore=tests/mpi "${rest[@]}"
}

on_ranks() {  # number of ranks, arguments of pytest
    # more ranks than cores: MPICH's waiting ranks must give way to those that compute
    MPIR_CVAR_ENABLE_HEAVY_YIELD=1 "$venv/bin/mpiexec" -n "$1" \
        "$python" "${measure[@]}" -m pytest -q "${@:2}"
}

part serial serial
if [ ${#tier[@]} -gt 0 ]; then
    # order of messages and sums; whole runs take the same calls on 3 ranks
    messages=(tests/mpi/test_{co,device_messages,equal}*.py -k "not test_a_run")
    # grids and groups of 2 x 2 ranks; 3 ranks show the rest
    pairs=(tests/mpi/test_{co[lm],cuda,device,equal,memory}*.py
           -k "not (delayed or p2p and (cuda or equal) or mop and (cuda or equal))")
    if [ ${#sides[@]} -gt 0 ]; then
        messages=(tests/mpi --ignore=tests/mpi/test_memory.py)
        pairs=(tests/mpi)
    fi
    part "2 ranks" on_ranks 2 "${sides[@]}" "${messages[@]}"
    part "3 ranks" on_ranks 3 "${tier[@]}" tests/mpi --ignore=tests/mpi/test_memory.py
    part "4 ranks" on_ranks 4 "${sides[@]}" "${pairs[@]}"
else
    # on 3 ranks 3d makes the calls of 2d
    part "3 ranks" on_ranks 3 tests/mpi --ignore=tests/mpi/test_memory.py -k "not 3d"
fi

if [ ${#measure[@]} -gt 0 ]; then
    "$python" -m coverage combine -q
    "$python" -m coverage report --skip-covered --sort=cover
fi
printf '%s\n' "${parts[@]}"
[ $status = 0 ] && echo "all tests passed in $SECONDS s"
exit $status
