#!/usr/bin/env bash
# scripts/convert.sh INPUT GRAPH.h5 PARTS [flags of hpgcn convert]
# Converts any input that hpgcn reads (a file, the folder of a data set, digits, karate), then partitions it: GRAPH.h5
# and GRAPH.pPARTS.h5. Files of these names are replaced.
#
#   METHOD=cover    partition method (default: that of `hpgcn partition`)
#   HPGCN           command to use (default: hpgcn)
set -euo pipefail
if [ $# -lt 3 ] || ! [[ $3 =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: scripts/convert.sh INPUT GRAPH.h5 PARTS [flags of hpgcn convert]" >&2
    exit 2
fi
input=$1 graph=$2 parts=$3
shift 3
hpgcn=${HPGCN:-hpgcn}

"$hpgcn" convert "$input" "$graph" --overwrite "$@"
"$hpgcn" partition "$graph" -k "$parts" ${METHOD:+--method "$METHOD"} --overwrite
