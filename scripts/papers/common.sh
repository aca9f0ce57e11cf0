# Sourced by the scripts of this folder. `begin "$@"` reads [--small] [GRAPH.h5 ...] and sets
#   small   1 for a made-up small graph and few epochs
#   graphs  absolute paths of the graphs
#   out     folder of all results: $OUT, or a new temporary folder; NAME.sh writes its numbers to NAME.json there
#   here    this folder
# HPGCN is a command; `on RANKS ...` runs it on ranks of MPI. It is installed into .venv unless it is on the PATH.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

begin() {
    small=0 graphs=()
    [ "${1:-}" = --small ] && { small=1; shift; }
    for graph in "$@"; do
        [ -f "$graph" ] || { echo "$graph: no such file; expected GRAPH.h5, as hpgcn convert writes" >&2; exit 66; }
        graphs+=("$(realpath "$graph")")
    done
    if [ $small = 0 ] && [ ${#graphs[@]} = 0 ]; then
        sed -n '2,/^source/s/^# \?//p' "$0" >&2
        exit 2
    fi
    out=$(realpath -m "${OUT:-$(mktemp -d)}")
    mkdir -p "$out"
    export RESULTS=$out/$(basename "$0" .sh).json  # written by results.py
    rm -f "$RESULTS"
    if ! command -v hpgcn > /dev/null; then
        source "$here/../setup.sh"
        setup mpi,mpich,partition,kahypar,plot
        PATH=$PWD/.venv/bin:$PATH
    fi
    if [ $small = 1 ] && [ ${#graphs[@]} = 0 ]; then
        hpgcn generate sbm "$out/small.h5" --scale 9 --edge-factor 8 --features 16 --classes 4 --overwrite -q
        graphs=("$out/small.h5")
    fi
}

pick() { # value with --small, value without
    if [ $small = 1 ]; then echo "$1"; else echo "$2"; fi
}

on() { # ranks, arguments of hpgcn
    local ranks=$1
    shift
    MPIR_CVAR_ENABLE_HEAVY_YIELD=1 mpiexec -n "$ranks" hpgcn "$@"
}

show() { # file of this folder, its arguments: print the table and draw the picture
    PYTHONPATH=$here python "$here/$1" "${@:2}"
}
