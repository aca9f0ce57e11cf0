#!/bin/sh
# The steps of an image, as root on Debian or Ubuntu: install the wheel beside this script into /opt/hpgcn, and compile
# the common kernels there for all users.
#   install.sh cpu | cuda12 | cuda13
set -eu
extras=mpi,mpich,partition,plot
case $1 in
    cpu) ;;
    cuda12 | cuda13) extras=$extras,$1 ;;
    *) echo "install.sh: expected cpu, cuda12 or cuda13, got $1" >&2; exit 2 ;;
esac

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends ca-certificates python3 python3-venv
rm -rf /var/lib/apt/lists/*

python3 -m venv /opt/hpgcn
for wheel in "$(dirname "$0")"/hpgcn-*.whl; do
    /opt/hpgcn/bin/pip install --no-cache-dir --disable-pip-version-check "$wheel[$extras]"
done

# kernels for the CPU of this machine; another model compiles its own, or compiles here as well
HPGCN_KERNELS=/opt/hpgcn/kernels /opt/hpgcn/bin/hpgcn doctor --compile
chmod -R go+rX /opt/hpgcn
