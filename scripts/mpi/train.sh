#!/usr/bin/env bash
# scripts/mpi/train.sh GRAPH.h5 RANKS [flags of hpgcn train]
# Trains on RANKS ranks under the mpiexec of MPICH or Open MPI. A graph without parts is partitioned first, and the
# parts are kept as GRAPH.pRANKS.h5. Ranks of a node take its GPUs in turn: with as many ranks as GPUs, one each.
#
#   HOSTFILE=FILE   nodes and ranks on each: scripts/mpi/hostfile.mpich or hostfile.openmpi (default: this machine)
#   CORES=N         cores of a node, which its ranks share (default: those of this machine)
#   BIND=none       do not bind ranks to cores (default: each rank to its own cores, if there are enough)
#   MPIEXEC, HPGCN  commands to use (default: mpiexec, hpgcn)
set -euo pipefail
if [ $# -lt 2 ] || ! [[ $2 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: scripts/mpi/train.sh GRAPH.h5 RANKS [flags of hpgcn train]" >&2
    exit 2
fi
graph=$1 ranks=$2
shift 2
mpiexec=${MPIEXEC:-mpiexec}
cores=${CORES:-$(nproc)}

# ranks on the fullest node, from lines `node:8` (MPICH) or `node slots=8` (Open MPI)
per_node=$ranks
if [ -n "${HOSTFILE:-}" ]; then
    per_node=$(awk -v ranks="$ranks" '
        { sub(/#.*/, "") }
        NF {
            slots = 1
            if (match($0, /(:|slots=)[0-9]+/)) {
                slots = substr($0, RSTART, RLENGTH)
                gsub(/[^0-9]/, "", slots)
            }
            nodes++
            total += slots
            if (slots + 0 > most) most = slots + 0
        }
        END {
            if (ranks > total) most = int((ranks + nodes - 1) / nodes)
            print (most < ranks ? most : ranks)
        }
    ' "$HOSTFILE")
fi

# threads of a rank: the kernels, OpenMP and BLAS of hpgcn follow --threads
threads=$((cores / per_node))
bind=${BIND:-cores}
if [ "$threads" -lt 1 ]; then
    threads=1 bind=none
fi

# hostfile and binding in the words of this MPI
case "$("$mpiexec" --version 2>&1)" in
*"Open MPI"* | *OpenRTE* | *PRRTE* | *prte*)
    options=(${HOSTFILE:+--hostfile "$HOSTFILE"})
    if [ "$bind" = none ]; then
        options+=(--map-by :OVERSUBSCRIBE --bind-to none)
    else
        options+=(--map-by "slot:PE=$threads" --bind-to core)
    fi
    ;;
*)
    options=(${HOSTFILE:+-f "$HOSTFILE"})
    if [ "$bind" = none ]; then
        options+=(-bind-to none)
    else
        options+=(-bind-to "core:$threads")
    fi
    ;;
esac

exec "$mpiexec" "${options[@]}" -n "$ranks" "${HPGCN:-hpgcn}" train "$graph" --threads "$threads" "$@"
