#!/usr/bin/env bash
# Seconds of an epoch and speed-up of hypergraph (HP), graph (GP) and random parts (RP) and of 1d, 1.5d, 2d, 3d:
# measured on one thread per rank up to the cores, forecast beyond (demirci-2022, Figure 3; cagnet-2020, Figure 1).
#     scripts/papers/scaling.sh [--small] GRAPH.h5
# RANKS="1 2" to measure, FORECAST="16 64 256" to forecast, LAYERS, HIDDEN, EPOCHS, OUT; CASES="HP GP RP 1d 1.5d 2d 3d".
# NETWORK=1Gb,50us delays messages as such a network would, and forecasts for it. MACHINE=FILE of hpgcn bench machine.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
begin "$@"
graph=${graphs[0]}
cases=${CASES:-$(pick "HP 1d" "HP GP RP 1d 1.5d 2d 3d")}
ranks=${RANKS:-$(for ((p = 1; p <= $(nproc); p *= 2)); do echo "$p"; done)}
forecast=${FORECAST:-$(pick 16 "16 32 64 128 256 512")}
model=(--layers "${LAYERS:-3}" --hidden "${HIDDEN:-$(pick 16 128)}")
epochs=${EPOCHS:-$(pick 2 8)}
export HPGCN_NETWORK=${NETWORK:-}
declare -A method=([HP]=hypergraph [GP]=graph [RP]=random)

# parts for every number of ranks
for p in $ranks $forecast; do
    for case in $cases; do
        [ -z "${method[$case]:-}" ] || hpgcn partition "$graph" -k "$p" --method "${method[$case]}" \
            -o "$out/$case.p$p.h5" --overwrite -q
    done
done

# runs take turns, twice over, so that a slow minute of the machine does not fall on one of them alone
for turn in 1 $([ $small = 1 ] || echo 2); do
    for case in $cases; do
        for p in $ranks; do
            file=$graph strategy=$case
            [ -z "${method[$case]:-}" ] || { file=$out/$case.p$p.h5 strategy=p2p; }
            on "$p" train "$file" --strategy "$strategy" "${model[@]}" --epochs "$epochs" --eval-every 0 --threads 1 \
                --out "$out/$case-P$p-$turn" --overwrite -q > /dev/null
        done
    done
done

# forecasts, with the rates of this machine
machine=${MACHINE:-$out/machine.json}
[ -e "$machine" ] || [ $small = 1 ] || on 2 bench machine --json > "$machine"
show scaling.py machine "$machine" "$HPGCN_NETWORK" "$out/network.json"
widths=$(show scaling.py widths "$graph" "${model[@]}")
plan() { # graph, ranks: the forecast of all strategies, as JSON
    hpgcn plan "$1" -k "$2" --widths "$widths" --machine "$out/network.json" --json
}
for case in $cases; do
    for p in $ranks $forecast; do
        [ -z "${method[$case]:-}" ] || plan "$out/$case.p$p.h5" "$p" > "$out/$case-P$p.plan.json"
    done
done
all=$(echo $ranks $forecast)
plan "$graph" "${all// /,}" > "$out/graph.plan.json"  # of all strategies that take no parts
show scaling.py table "$out" "$cases" "$ranks" "$forecast"
