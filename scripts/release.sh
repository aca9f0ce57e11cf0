#!/usr/bin/env bash
# Build the sdist and the wheel of the last commit into dist/, check them, and use both outside of the clone.
#   scripts/release.sh [PYTHON ...]    such as python3.11 python3.14; python3 without arguments
# With each Python, the demo, a training and the quick tests run on what is installed, from an unpacked sdist
# whose own packages are not on the path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "== $*"; }

say "building"
mkdir "$work/source"
git archive HEAD | tar -x -C "$work/source"  # without build/ and other files of this folder
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install -q --disable-pip-version-check build twine check-wheel-contents
rm -rf dist
"$work/tools/bin/python" -m build -o dist "$work/source" >"$work/build.log" || { cat "$work/build.log"; exit 1; }

say "checking"
"$work/tools/bin/twine" check --strict dist/*
"$work/tools/bin/check-wheel-contents" dist/*.whl
wheel=$(echo "$PWD"/dist/*.whl) sdist=$(echo "$PWD"/dist/*.tar.gz)

# package, Python: install into an environment, and use it
try() {
    local venv=$work/venv tree=$work/tree
    say "$(basename "$1") with $("$2" --version)"
    rm -rf "$venv" "$tree"
    mkdir "$tree"
    tar -x -C "$tree" --strip-components=1 -f "$sdist"
    "$2" -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check "$1[mpi,mpich,partition,kahypar,kaminpar,demo,plot,test]"
    (
        cd "$tree"
        export PYTHONSAFEPATH=1 VENV=$venv INSTALLED=1  # Python does not look into the folder where it starts
        "$venv/bin/python" -c "import hpgcn; path, = hpgcn.__path__; assert path.startswith('$venv'), path"
        "$venv/bin/hpgcn" doctor
        scripts/demo.sh
        "$venv/bin/python" -m pytest -q -n 2 tests --ignore=tests/{docs,mpi,scripts,structure}
    )
}

for python in "${@:-python3}"; do
    try "$wheel" "$python"
done
try "$sdist" "${1:-python3}"
say "checked: dist/"
ls -l dist
