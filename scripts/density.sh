#!/usr/bin/env bash
# Speed-up against density, as Figure 9 of MG-GCN (2021): BTER graphs like GRAPH.h5, of its vertices and X times its edges,
# are trained on 1 and on more ranks of one thread each; two layers, 512 features and 40 random classes, as section 6.1 says.
#     scripts/density.sh GRAPH.h5
# FACTORS="1 2 4 8 16 32 64 128", RANKS="1 2 4" (the first is what others are compared with), HIDDEN, FEATURES, CLASSES, EPOCHS,
# METHOD of partition, SEED and OUT likewise. Runs of all ranks take turns, twice over; the faster turn counts. A table is printed
# at the end: entries a vertex, then seconds of an epoch (median) and speed-up for each number of ranks.
set -euo pipefail
[ $# = 1 ] || { echo "usage: scripts/density.sh GRAPH.h5" >&2; exit 2; }
like=$(realpath "$1")
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
factors=${FACTORS:-1 2 4 8 16 32}
ranks=${RANKS:-1 2}
hpgcn=(.venv/bin/python -m hpgcn)
for factor in $factors; do
    echo "x$factor:" >&2
    "${hpgcn[@]}" generate bter "$out/x$factor.h5" --like "$like" --scale-edges "$factor" --features "${FEATURES:-512}" \
        --classes "${CLASSES:-40}" --seed "${SEED:-0}" --overwrite >&2
    for k in $ranks; do
        "${hpgcn[@]}" partition "$out/x$factor.h5" -k "$k" --method "${METHOD:-random}" -o "$out/x$factor.p$k.h5" --overwrite -q
    done
    for turn in 1 2; do
        for k in $ranks; do
            .venv/bin/mpiexec -n "$k" "${hpgcn[@]}" train "$out/x$factor.p$k.h5" --strategy p2p --layers 2 \
                --hidden "${HIDDEN:-512}" --epochs "${EPOCHS:-8}" --eval-every 0 --threads 1 --out "$out/x$factor-P$k-$turn" \
                --overwrite > /dev/null
        done
    done
done
.venv/bin/python - "$out" "$factors" "$ranks" << 'END'
import json
import sys
from pathlib import Path

import hpgcn

out, factors, ranks = Path(sys.argv[1]), sys.argv[2].split(), sys.argv[3].split()
print("factor", "entries/vertex", *(f"s/epoch P={k}  speed-up" for k in ranks), sep="  ")
for factor in factors:
    header = hpgcn.load(out / f"x{factor}.h5").header
    seconds = [min(json.loads((out / f"x{factor}-P{k}-{turn}" / "summary.json").read_text())["epoch_s_median"]
                   for turn in (1, 2)) for k in ranks]
    cells = [f"{second:11.4f}  {seconds[0] / second:8.2f}" for second in seconds]
    print(f"{factor:>6}", f"{header.num_edges / header.num_nodes:14.1f}", *cells, sep="  ")
END
