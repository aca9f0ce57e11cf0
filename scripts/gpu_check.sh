#!/usr/bin/env bash
# On a machine with a GPU: the tests of the CUDA kernels, of batches and of training; steps of all models against PyG's
# layers, and products against cuSPARSE; times of kernels; training epochs against the CPU's. One JSON file and tables.
#
#     scripts/gpu_check.sh [--quick] [FILE (default: gpu_check.json) [flags of `run.py cuda`]]
#
# It ends after six minutes (SECONDS_LEFT=360), and leaves out what does not fit. --quick takes two minutes: tests of
# batches, and steps on small graphs. The flags --scale-down, --repeats, --threads and --seed apply to all parts.
# Needs CuPy, Numba and h5py in PYTHON (default: .venv's, else python3), but no network; hpgcn need not be installed:
# this source tree is measured. Without torch and PyG the table has no times of them.
# Exit status: 0; 69 without a GPU; else the status of the part that failed.
set -uo pipefail
quick=()
if [ "${1:-}" = --quick ]; then
    quick=(--quick)
    shift
fi
limit=${SECONDS_LEFT:-$([ ${#quick[@]} -eq 0 ] && echo 360 || echo 120)}
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
export PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} PYTHONSAFEPATH=1 COLUMNS=${COLUMNS:-120}

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

both=()
for ((i = 2; i < $#; i++)); do
    case "${!i}" in --scale-down | --repeats | --threads | --seed) next=$((i + 1)) both+=("${!i}" "${!next}") ;; esac
done
checked=(tests/sampling/test_batches_on_gpu.py)
[ ${#quick[@]} -ne 0 ] || checked+=(tests/kernels/test_cuda.py tests/training/test_trainer_cuda.py)

# run a part in the time that is left, write its output to a file, and keep its status in `codes`
status=0
declare -A codes
part() {
    local name=$1 left=$((limit - SECONDS))
    shift
    echo "== $name"
    if [ "$left" -le 0 ]; then
        codes[$name]=124
    else
        timeout -k 5 "$left" "$python" -m "$@" > "$folder/$name"
        codes[$name]=$?
    fi
    case ${codes[$name]} in
        0) ;;
        124) echo "gpu_check: $name: left out, after $limit s" >&2 ;;
        *) [ "$status" -ne 0 ] || status=${codes[$name]} ;;
    esac
}

part models benchmarks.run cuda-models --json "${quick[@]}" --seconds "$((limit / 2))" "${both[@]}"
if "$python" -c "import pytest" 2> "$folder/why"; then
    part tests pytest -q -p no:cacheprovider "${checked[@]}"
    tail -n 15 "$folder/tests"
else
    echo "gpu_check: the tests are skipped: $(tail -n 1 "$folder/why")" >&2
fi
if [ ${#quick[@]} -eq 0 ]; then
    part bench benchmarks.run cuda --json "${@:2}"
    part epochs benchmarks.run cuda-epoch --json "${both[@]}"
fi

ended=()
for name in "${!codes[@]}"; do ended+=("$name=${codes[$name]}"); done
"$python" - "$folder" "$out" "${ended[@]}" <<'PYTHON' || exit
import json
import sys
from pathlib import Path

from benchmarks.run import format_report

folder, out = map(Path, sys.argv[1:3])
codes = {name: int(code) for name, code in (word.split("=") for word in sys.argv[3:])}
said = (folder / "tests").read_text().splitlines()[-1:] if (folder / "tests").exists() else []
found = {"tests": {"exit_code": codes.get("tests"), "summary": "".join(said)}}
for name in ("models", "bench", "epochs"):
    text = (folder / name).read_text() if codes.get(name) == 0 else "null"
    found |= {f"{name}_exit_code": codes.get(name), name: json.loads(text)}
    if found[name]:
        print(format_report(found[name]))
out.write_text(json.dumps(found, indent=1) + "\n")
PYTHON
echo "wrote $out"
[ "$status" -eq 0 ] || echo "gpu_check: failed: ${ended[*]}" >&2
exit "$status"
