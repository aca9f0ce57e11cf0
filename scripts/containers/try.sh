#!/usr/bin/env bash
# Take the steps of an image in a minimal root of Debian, without Docker; then use it as a user would. Needs root,
# debootstrap and a package index. Keeps the root in $ROOT if this is given.
#   try.sh [SUITE]       such as trixie, the default
# Tried are: another user, a read-only /opt/hpgcn, a new home, two ranks, ranks of a launcher outside, and an MPI that
# is bound in from outside, which replaces that of the image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ "$(id -u)" = 0 ] || { echo "try.sh: needs root, to make a root of Debian" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "try.sh: needs debootstrap" >&2; exit 69; }
suite=${1:-trixie} mirror=${MIRROR:-http://deb.debian.org/debian}

# each process below sees mounts of its own, which end with it
if [ -z "${TRYING:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    TRYING=$work unshare --mount --fork "$BASH" "$0" "$suite"
    exit
fi
root=${ROOT:-$TRYING/root}
here=$PWD

echo "== a minimal root of Debian $suite"
[ -e "$root/bin/sh" ] || debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$TRYING/log" \
    || { tail "$TRYING/log" >&2; exit 1; }
for folder in proc dev sys; do mount --rbind "/$folder" "$root/$folder"; done
cp /etc/resolv.conf "$root/etc/"

echo "== the steps of scripts/containers/Dockerfile"
[ -n "$(ls dist/hpgcn-*.whl 2>/dev/null)" ] || { echo "try.sh: no wheel in dist; run scripts/release.sh --build" >&2; exit 66; }
mkdir -p "$root/tmp/hpgcn"
cp dist/hpgcn-*.whl scripts/containers/install.sh "$root/tmp/hpgcn/"
site=()  # certificates of this machine, where a site has an authority of its own
if [ -n "${SSL_CERT_FILE:-}" ]; then
    cp "$SSL_CERT_FILE" "$root/tmp/hpgcn/site.pem"
    site=(SSL_CERT_FILE=/tmp/hpgcn/site.pem PIP_CERT=/tmp/hpgcn/site.pem)
fi
[ -e "$root/opt/hpgcn/kernels" ] || env "${site[@]}" chroot "$root" sh /tmp/hpgcn/install.sh cpu
rm -r "$root/tmp/hpgcn"

echo "== as another user, with read-only code and a new home"
mount --bind "$root/opt/hpgcn" "$root/opt/hpgcn"
mount -o remount,bind,ro "$root/opt/hpgcn"
home=$(mktemp -d -p "$root/tmp")
chown 4321:4321 "$home"
chroot=$(command -v chroot)
as_user() {
    env -i HOME="${home#"$root"}" PATH=/opt/hpgcn/bin:/usr/bin:/bin HPGCN_KERNELS=/opt/hpgcn/kernels "${extra[@]}" \
        "$chroot" --userspec=4321:4321 "$root" sh -c 'cd && exec "$@"' sh "$@"
}
extra=(LANG=C.UTF-8)
if as_user touch /opt/hpgcn/written 2>/dev/null; then echo "try.sh: the code is not read-only" >&2; exit 1; fi
as_user hpgcn doctor
as_user hpgcn generate sbm g.h5 --scale 10 -q
as_user mpiexec -n 2 hpgcn train g.h5 --epochs 5 --out run -q
as_user mpiexec -n 2 hpgcn predict run -o labels.csv -q
own=$(find "$home" -name '*.nbc' | wc -l)
echo "kernels that these runs compiled: $own, besides $(find "$root/opt/hpgcn/kernels" -name '*.nbc' | wc -l) of the image"

launcher=$(command -v mpiexec || true)
[ -n "$launcher" ] || launcher=$(ls "$here"/.venv/bin/mpiexec 2>/dev/null || true)
if [ -n "$launcher" ]; then
    echo "== ranks of a launcher outside: $launcher"
    cat >"$TRYING/rank" <<RANK
#!/bin/sh
exec env HOME=${home#"$root"} PATH=/opt/hpgcn/bin:/usr/bin:/bin HPGCN_KERNELS=/opt/hpgcn/kernels \
    $chroot --userspec=4321:4321 $root sh -c 'cd && exec "\$@"' sh "\$@"
RANK
    chmod +x "$TRYING/rank"
    "$launcher" -n 2 "$TRYING/rank" hpgcn train g.h5 --epochs 5 --out outside -q

    echo "== the MPI of the launcher, bound in"
    library=$(find "$(dirname "$launcher")/.." -name 'libmpi.so*' -size +9k | head -1)
    mkdir -p "$root/opt/mpi"
    mount --bind "$(dirname "$(realpath "$library")")" "$root/opt/mpi"
    sed -i "s|HPGCN_KERNELS=|MPI4PY_LIBMPI=/opt/mpi/$(basename "$library") &|" "$TRYING/rank"
    "$launcher" -n 2 "$TRYING/rank" python -c "
from mpi4py import MPI
libraries = {line.split()[-1] for line in open('/proc/self/maps') if 'libmpi.so' in line}
assert all(each.startswith('/opt/mpi') for each in libraries), libraries
print(MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size, 'with', *libraries)"
    "$launcher" -n 2 "$TRYING/rank" hpgcn train g.h5 --epochs 5 --out bound -q
fi
echo "== the container works"
