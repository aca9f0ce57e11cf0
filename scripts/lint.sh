#!/usr/bin/env bash
# Check what needs no run: style, types, prose and the lines of code of each room.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition,kahypar,kaminpar,demo,plot,test,docs,dev
python=${VENV:-.venv}/bin/python
"$python" -m ruff check .
"$python" -m mypy
"$python" scripts/check_prose.py
"$python" scripts/measure_code.py --check
