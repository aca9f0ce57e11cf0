# Sourced by the other scripts: `setup EXTRAS` makes .venv (or $VENV) with hpgcn (editable) and its extras, once per
# setup.cfg and setup.py. With INSTALLED=1 it takes $VENV as it is.
setup() {
    local extras=$1 python=${PYTHON:-python3} venv=${VENV:-.venv} stamp
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    [ -z "${INSTALLED:-}" ] || return 0
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "hpgcn needs Python 3.11 or later, but $python is $("$python" --version 2>&1); set PYTHON" >&2
        return 69
    }
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || {
        echo "could not make $venv (on Debian: apt-get install python3-venv)" >&2
        return 69
    }
    stamp=$venv/.hpgcn-$(cat setup.cfg setup.py pyproject.toml <(echo "$extras") | sha256sum | cut -c1-16)
    if [ ! -e "$stamp" ]; then
        echo "installing hpgcn[$extras] into $venv" >&2
        "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile -q -e ".[$extras]"
        touch "$stamp"
    fi
}
