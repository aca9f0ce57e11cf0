#!/usr/bin/env bash
# Run a command under mpiexec on a cluster that this machine imitates: its nodes are network namespaces, joined by a
# switch. Each node has its own host name (node1, node2, ...), address, /dev/shm and share of the cores.
#
#     scripts/cluster.sh [--nodes 2] [--ranks-per-node 2 | 2,3] [--rate 1gbit] [--delay 0] COMMAND [ARGUMENTS]
#
#   --nodes N             number of nodes
#   --ranks-per-node N,N  ranks of each node, or one number for all
#   --rate RATE           rate of each node's link in each direction, such as 100mbit; 0: unlimited
#   --delay TIME          time of a packet from node to node, such as 50us, on a kernel with netem; 0: none
#   MPIEXEC=FILE          MPICH's mpiexec (default: .venv's, else that of PATH)
#
# Without root it needs user namespaces. The network of this machine stays as it is. What is made here belongs to
# processes and ends with them, also after kill -9. Exit status: that of mpiexec; 69 without rights, ip, tc or MPICH.
set -uo pipefail
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
    echo "cluster: $2" >&2
    exit "$1"
}

run() {  # "-" or "", command: run it, pass signals on to its process group or to it, and exit with its status
    local child='' signaled='' status
    trap "signaled=1; kill -INT -- $1\$child" INT
    trap "signaled=1; kill -TERM -- $1\$child" TERM HUP
    set -m
    "${@:2}" <&0 &
    child=$!
    while wait "$child"; status=$?; [ -n "$signaled" ]; do signaled=''; done
    exit "$status"
}

usage() {
    echo "usage: scripts/cluster.sh [--nodes N] [--ranks-per-node N,N] [--rate RATE] [--delay TIME] COMMAND" >&2
    fail 2 "$1"
}

nodes=2 ranks=2 rate=1gbit delay=0 words=("$@")
while [[ ${1:-} == --* ]]; do
    [ $# -ge 2 ] || usage "$1: expected a value and a command"
    case $1 in
        --nodes) nodes=$2 ;;
        --ranks-per-node) ranks=$2 ;;
        --rate) rate=$2 ;;
        --delay) delay=$2 ;;
        *) usage "$1: unknown flag" ;;
    esac
    shift 2
done
[ $# -gt 0 ] || usage "expected a command"
[[ $nodes =~ ^[1-9][0-9]?$ ]] || usage "--nodes $nodes: expected a number from 1 to 99"
[[ $ranks =~ ^[1-9][0-9]{0,2}(,[1-9][0-9]{0,2})*$ ]] || usage "--ranks-per-node $ranks: expected such as 2 or 2,3"
[[ $rate =~ ^(0|[1-9][0-9]{0,5}[kmg]bit)$ ]] || usage "--rate $rate: expected a rate such as 100mbit, or 0"
[[ $delay =~ ^(0|[1-9][0-9]{0,5}(us|ms))$ ]] || usage "--delay $delay: expected a time such as 50us, or 0"
IFS=, read -ra counts <<< "$ranks"
if [ ${#counts[@]} -eq 1 ]; then
    for ((i = 1; i < nodes; i++)); do counts+=("$ranks"); done
fi
[ ${#counts[@]} -eq "$nodes" ] || usage "--ranks-per-node $ranks: ${#counts[@]} numbers for $nodes nodes"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ ! -d "$here/.venv/bin" ] || PATH=$here/.venv/bin:$PATH
mpiexec=${MPIEXEC:-mpiexec}

# the first call starts this script again as the first process of new namespaces, and passes signals on
if [ -z "${HPGCN_CLUSTER:-}" ]; then
    for tool in ip tc unshare nsenter setpriv taskset hostname "$mpiexec"; do
        command -v "$tool" > /dev/null || fail 69 "$tool: not found"
    done
    [[ $("$mpiexec" --version 2>&1) == *HYDRA* ]] || fail 69 "$mpiexec is not the mpiexec of MPICH"
    new=(unshare --mount --net --uts --ipc --pid --fork --mount-proc --kill-child)
    "${new[@]}" true 2> /dev/null || new+=(--user --map-root-user)
    why=$("${new[@]}" true 2>&1) || fail 69 "no right to make namespaces: $why"
    [ ! -t 0 ] || exec < /dev/null  # a process in the background must not read from a terminal

    export HPGCN_CLUSTER=1
    run - setpriv --pdeathsig KILL "${new[@]}" bash "${BASH_SOURCE[0]}" "${words[@]}"
fi
unset HPGCN_CLUSTER
set -e

# names, and a launcher in place of ssh: LAUNCHER NODE COMMAND runs the command on a node
mount -t tmpfs tmpfs /dev/shm
hostname switch
echo 127.0.0.1 localhost > /dev/shm/hosts
for ((node = 1; node <= nodes; node++)); do echo "10.0.0.$node node$node" >> /dev/shm/hosts; done
mount --bind /dev/shm/hosts /etc/hosts
cat > /dev/shm/launcher <<'LAUNCHER'
#!/usr/bin/env bash
read -r process cores < "/dev/shm/$1"
exec nsenter --target "$process" --mount --net --uts --ipc taskset -c "$cores" bash -c "${*:2}"
LAUNCHER
chmod +x /dev/shm/launcher

# cores of this machine, to divide among the nodes; nodes share them if there are fewer cores
cores=()
for range in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
    for ((core = ${range%-*}; core <= ${range#*-}; core++)); do cores+=("$core"); done
done
cores_of() {  # number of a node, from 0
    local first=$(($1 * ${#cores[@]} / nodes)) end=$((($1 + 1) * ${#cores[@]} / nodes))
    [ ${#cores[@]} -ge "$nodes" ] || first=$(($1 % ${#cores[@]})) end=$((first + 1))
    local IFS=,
    echo "${cores[*]:first:end-first}"
}

# bytes that a link sends at once: 250 us of its rate, and more than its largest packet with the headers of all segments
number=${rate%?bit}
case $rate in *kbit) number=1 ;; *gbit) number=$((number * 1000)) ;; esac
burst=$((number * 250 / 8))
burst=$((burst < 4000 ? 4000 : burst > 80000 ? 80000 : burst))
packet=$((burst * 3 / 4))

# the switch, then the nodes: a process holds the namespaces of each
ip link add switch type bridge
[ "$delay" = 0 ] || tc qdisc add dev switch root netem 2> /dev/null || fail 69 "--delay: this kernel has no netem"
ip address add 10.0.0.254/24 dev switch
ip link set switch up
hosts=() total=0
for ((node = 1; node <= nodes; node++)); do
    exec {ready}< <(exec unshare --mount --net --uts --ipc bash -c '
        hostname "$0" && mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo "$0" && exec sleep infinity
        ' "node$node")
    process=$!
    read -r -u "$ready" _ || fail 69 "cannot make node$node"
    ip link add "port$node" type veth peer name eth0 netns "$process"
    ip link set "port$node" master switch up
    inside=(nsenter --target "$process" --net)
    "${inside[@]}" ip address add "10.0.0.$node/24" dev eth0
    "${inside[@]}" ip link set eth0 up

    # what a node sends waits in its own link, and what it receives waits in the switch
    link=(tbf rate "$rate" burst "$burst" limit 100mb)
    port=("${link[@]}")
    if [ "$rate" != 0 ]; then
        "${inside[@]}" ip link set eth0 gso_max_size "$packet"
        "${inside[@]}" tc qdisc add dev eth0 root "${link[@]}"
        [ "$delay" = 0 ] || port=(netem rate "$rate" delay "$delay" limit 100000)
    else
        port=(netem delay "$delay" limit 100000)
    fi
    [ "$rate $delay" = "0 0" ] || tc qdisc add dev "port$node" root "${port[@]}"

    echo "$process $(cores_of $((node - 1)))" > "/dev/shm/node$node"
    hosts+=("node$node:${counts[node - 1]}") total=$((total + counts[node - 1]))
done

# ranks share cores: those that wait must give way to those that compute
export MPIR_CVAR_ENABLE_HEAVY_YIELD=${MPIR_CVAR_ENABLE_HEAVY_YIELD-1}
# UCX, MPICH's default, sometimes loses the first message to a node over TCP
export MPIR_CVAR_CH4_NETMOD=${MPIR_CVAR_CH4_NETMOD-ofi}
set +e
list=$(IFS=,; echo "${hosts[*]}")
run '' "$mpiexec" -launcher rsh -launcher-exec /dev/shm/launcher -iface switch -hosts "$list" -n "$total" "$@"
