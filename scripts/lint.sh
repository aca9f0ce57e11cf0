#!/usr/bin/env bash
# Check what needs no run: style, types, prose and the lines of code of each room; all are checked, whatever fails.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition,kahypar,kaminpar,demo,plot,test,docs,dev
python=${VENV:-.venv}/bin/python
failed=()

check() { # name, arguments of Python: go on if it fails
    echo "== $1"
    "$python" "${@:2}" || failed+=("$1")
}

check style -m ruff check .
check types -m mypy
check prose scripts/check_prose.py
check "lines of code" scripts/measure_code.py --check
[ ${#failed[@]} = 0 ] || { IFS=,; echo "failed: ${failed[*]}" >&2; exit 1; }
