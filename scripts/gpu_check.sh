#!/usr/bin/env bash
# On a machine with a GPU: the tests of the CUDA kernels and of training, the kernels' times against cuSPARSE and torch,
# then training epochs against the CPU's, as one JSON file and tables.
#
#     scripts/gpu_check.sh [FILE (default: gpu_check.json) [flags of `run.py cuda`]]
#
# The flags --scale-down, --repeats, --threads and --seed also apply to the epochs.
# Needs CuPy, Numba and h5py in PYTHON (default: .venv's, else python3); hpgcn need not be installed: this source tree
# is measured. Exit status: 0; 69 without a GPU; else the status of the part that failed.
set -uo pipefail
out=$(realpath -m -- "${1:-gpu_check.json}")
python=${PYTHON:-}
[[ $python == */* ]] && python=$(realpath -s -- "$python")
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
[ -n "$python" ] || python=$([ -x .venv/bin/python ] && echo "$PWD/.venv/bin/python" || echo python3)

fail() {
    echo "gpu_check: $2" >&2
    exit "$1"
}
[ -d "$(dirname "$out")" ] || fail 73 "cannot write $out: there is no such folder"
[ ! -d "$out" ] || fail 73 "cannot write $out: it is a folder"

# only these two packages: names of other folders here belong to other packages
folder=$(mktemp -d) || exit
trap 'rm -rf "$folder"' EXIT
ln -s "$PWD/hpgcn" "$PWD/scripts/benchmarks" "$folder/"
export PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} PYTHONSAFEPATH=1

"$python" - <<'PYTHON' || exit
import sys

try:
    from benchmarks.gpu import Gpu
    from hpgcn.errors import HpgcnError
except ImportError as error:
    sys.exit(print(f"gpu_check: {sys.executable}: {error}", file=sys.stderr) or 69)
try:
    Gpu()
except HpgcnError as error:
    print("gpu_check:", *str(error).split(), file=sys.stderr)
    sys.exit(error.code)
PYTHON

status=0 tests=null
if "$python" -c "import pytest" 2> "$folder/why"; then
    echo "== tests of the CUDA kernels and of training"
    "$python" -m pytest -q -p no:cacheprovider tests/kernels/test_cuda.py tests/training/test_trainer_cuda.py | tee "$folder/tests"
    tests=${PIPESTATUS[0]}
    [ "$tests" -eq 0 ] || status=$tests
else
    echo "gpu_check: the tests are skipped: $(tail -n 1 "$folder/why")" >&2
fi

echo "== times"
"$python" -m benchmarks.run cuda --json "${@:2}" > "$folder/bench"
bench=$?
[ "$status" -ne 0 ] || status=$bench

both=()
for ((i = 2; i < $#; i++)); do
    case "${!i}" in --scale-down | --repeats | --threads | --seed) next=$((i + 1)) both+=("${!i}" "${!next}") ;; esac
done
echo "== epochs"
"$python" -m benchmarks.run cuda-epoch --json "${both[@]}" > "$folder/epochs"
epochs=$?
[ "$status" -ne 0 ] || status=$epochs

"$python" - "$folder" "$out" "$tests" "$bench" "$epochs" <<'PYTHON' || exit
import json
import sys
from pathlib import Path

from benchmarks.run import format_report

folder, out, tests, *codes = Path(sys.argv[1]), Path(sys.argv[2]), *map(json.loads, sys.argv[3:])
report, epochs = (json.loads((folder / name).read_text()) if code == 0 else None
                  for name, code in zip(("bench", "epochs"), codes))
said = (folder / "tests").read_text().splitlines()[-1:] if tests is not None else []
out.write_text(json.dumps({"tests": {"exit_code": tests, "summary": "".join(said)}, "bench_exit_code": codes[0],
                           "bench": report, "epochs_exit_code": codes[1], "epochs": epochs}, indent=1) + "\n")
for found in filter(None, (report, epochs)):
    print(format_report(found))
PYTHON
echo "wrote $out"
[ "$status" -eq 0 ] || echo "gpu_check: failed: tests $tests, bench $bench, epochs $epochs" >&2
exit "$status"
