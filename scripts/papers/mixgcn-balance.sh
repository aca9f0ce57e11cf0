#!/usr/bin/env bash
# Operations of the busiest rank over the mean, by strategy and ranks (mixgcn, Figure 11: mop is balanced, graph parts
# are less so the more ranks there are).
#     scripts/papers/mixgcn-balance.sh [--small] GRAPH.h5
# RANKS="4 8 16 32", HIDDEN=128, OUT=FOLDER. All ranks are counted in one process.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
show mixgcn_balance.py "${graphs[0]}" "${RANKS:-$(pick 4 "4 8 16 32")}" "${HIDDEN:-128}"
