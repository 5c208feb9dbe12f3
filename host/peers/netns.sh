#!/usr/bin/env bash
# Test hosts peer0, peer1, ... as network namespaces on one bridge, each link limited both ways.
# Needs root and iproute2.
#   netns.sh 200 200 200 50     four hosts, Mbit/s each; host i has the address 10.99.0.(i+1) on e0
#   netns.sh clean              removes them
# Then for example, with D an empty folder:
#   for r in 0 1 2 3; do IFACE=e0 RANK=$r SIZE=4 STORE=$D ip netns exec peer$r ./gloo ring & done; wait
set -euo pipefail
[ $# -ge 1 ] || { sed -n 2,8p "$0"; exit 2; }
bridge=br-peers
ip link del $bridge 2>/dev/null || true
for ns in $(ip netns list | awk '{print $1}' | grep -xE 'peer[0-9]+' || true); do
    # A namespace takes its links along some time later, and their names would still be taken.
    ip link del "br-$ns" 2>/dev/null || true
    ip netns del "$ns"
done
[ "$1" != clean ] || exit 0
ip link add $bridge type bridge
ip link set $bridge up
i=0
for rate in "$@"; do
    ns=peer$i near=br-peer$i limit="tbf rate ${rate}mbit burst 64kb latency 100ms"
    ip netns add $ns
    ip link add $near type veth peer name e0 netns $ns
    ip link set $near master $bridge up
    ip -n $ns addr add 10.99.0.$((i + 1))/24 dev e0
    ip -n $ns link set e0 up
    ip -n $ns link set lo up
    # shellcheck disable=SC2086 # words of its own
    tc qdisc add dev $near root $limit
    # shellcheck disable=SC2086
    ip netns exec $ns tc qdisc add dev e0 root $limit
    i=$((i + 1))
done
