#!/bin/sh
# Run a command in a memory control group of its own, where the page cache counts as well:
#     scripts/limit_memory.sh BYTES COMMAND [ARGUMENT ...]
# Afterwards print the peak, and how often the system killed a process, to standard error.
# Exits with the code of the command; with 77 if this user may not make control groups.
set -u
bytes=$1
shift
root=/sys/fs/cgroup
if [ -d "$root/memory" ]; then # version 1
    group=$root/memory/hpgcn-$$ limit=memory.limit_in_bytes peak=memory.max_usage_in_bytes
    killed=memory.oom_control
else
    group=$root/hpgcn-$$ limit=memory.max peak=memory.peak killed=memory.events
fi
mkdir "$group" 2>/dev/null && echo "$bytes" 2>/dev/null >"$group/$limit" || {
    rmdir "$group" 2>/dev/null
    echo "limit_memory.sh: cannot make $group" >&2
    exit 77
}
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
code=$?
echo "peak $(cat "$group/$peak" 2>/dev/null) of $bytes bytes, killed $(
    sed -n 's/^oom_kill //p' "$group/$killed")" >&2
rmdir "$group"
exit $code
