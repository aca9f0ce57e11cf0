#!/usr/bin/env bash
# Converts an edge list larger than its memory; options of `hpgcn convert` may follow. SCALE=23 EDGE_FACTOR=13 MEMORY=1G FOLDER=.
set -euo pipefail
folder=$(mktemp -d "${FOLDER:-.}/convert.XXXXXX")
trap 'rm -rf "$folder"' EXIT
hpgcn=${HPGCN:-.venv/bin/hpgcn}
"$hpgcn" generate rmat "$folder/big.txt" --scale "${SCALE:-23}" --edge-factor "${EDGE_FACTOR:-13}" --overwrite
ls -l "$folder/big.txt"
/usr/bin/time -f "%e s, %U s user, %S s system, peak %M KiB" \
    "$hpgcn" convert "$folder/big.txt" "$folder/big.h5" --memory "${MEMORY:-1G}" "$@"
"$hpgcn" inspect "$folder/big.h5" --verify
