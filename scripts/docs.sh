#!/usr/bin/env bash
# Build the documentation site into build/site (or the given folder); a warning is an error.
# No network is needed once the environment exists. Open build/site/index.html in a browser.
#   --no-execute  do not run the notebooks
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup mpi,mpich,partition,demo,plot,pyg,docs
exec "${VENV:-.venv}/bin/python" scripts/build_site.py "$@"
