#!/usr/bin/env bash
# Table 2 of demirci-2022: rows and messages that hypergraph (HP) and graph parts (GP) send, over those of
# random parts (RP), raw and refined, with geometric means. The paper has 512 parts.
#     scripts/papers/demirci-table2.sh [--small] GRAPH.h5 ...
# PARTS=512, SEED=0, OUT=FOLDER.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
parts=${PARTS:-$(pick 8 512)}
for graph in "${graphs[@]}"; do
    name=$(basename "$graph" .h5)
    echo "$name: $parts parts" >&2
    for refined in raw refined; do
        flags=()
        [ $refined = raw ] && flags=(--no-refine)
        hpgcn partition "$graph" -k "$parts" --compare hypergraph,graph,random --seed "${SEED:-0}" "${flags[@]}" --json \
            > "$out/$name.$refined.json"
    done
done
show demirci_table2.py "$out" "$parts"
