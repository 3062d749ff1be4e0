# Verbs devices, and the wire between them.
# shellcheck shell=sh

# The two ends of the wire.
NEAR=10.8.0.1
FAR=10.8.0.2

# load_modules KIND...: verbs, nfs, krb5, netem, disk, fuse
load_modules() {
    for _kind in "$@"; do
        case $_kind in
        verbs) modprobe -a rdma_rxe siw rdma_ucm ib_uverbs ib_umad veth dummy tcp_diag ;;
        nfs) modprobe -a sunrpc rpcrdma lockd nfsd nfs nfsv3 nfsv4 ;;
        krb5) modprobe -a rpcsec_gss_krb5 cts ;;
        netem) modprobe -a sch_netem ;;
        disk) modprobe -a loop ext4 ;;
        fuse) modprobe -a fuse ;;
        *)
            echo "no such modules: $_kind"
            return 1
            ;;
        esac
    done
}

# wire_up: a cable from va ($NEAR) to vb ($FAR) that traffic between the two really crosses, though
# both ends are in one network namespace: rxe and siw do not do namespaces. So each end's address is
# taken for local only when it comes in by the cable, and is routed into the cable otherwise.
wire_up() {
    ip link add va type veth peer name vb
    for _of in all default va vb; do
        echo 1 >/proc/sys/net/ipv4/conf/$_of/accept_local
        echo 0 >/proc/sys/net/ipv4/conf/$_of/rp_filter
    done
    ip address add $NEAR/24 dev va
    ip address add $FAR/24 dev vb
    ip rule add pref 1 iif va lookup local
    ip rule add pref 2 iif vb lookup local
    ip rule add pref 3 to $FAR iif lo lookup 100
    ip rule add pref 4 to $NEAR iif lo lookup 101
    # Everything local comes after that.
    ip rule add pref 10 lookup local
    ip rule del pref 0
    wire_mend
}

# wire_cut: pulls the cable. wire_mend plugs it in, with the routes and neighbours that went with it.
wire_cut() {
    ip link set va down
    ip link set vb down
}

wire_mend() {
    ip link set va up
    ip link set vb up
    ip route replace $FAR/32 dev va src $NEAR table 100
    ip route replace $NEAR/32 dev vb src $FAR table 101
    ip neighbour replace $FAR lladdr "$(cat /sys/class/net/vb/address)" dev va nud permanent
    ip neighbour replace $NEAR lladdr "$(cat /sys/class/net/va/address)" dev vb nud permanent
    until_true 10 ping -c 1 -W 1 $FAR
}

# wire_slow ARGUMENTS...: netem on both ends, for example `delay 1ms`. wire_fast ends it.
wire_slow() {
    for _end in va vb; do
        tc qdisc replace dev $_end root netem "$@"
    done
}

wire_fast() {
    for _end in va vb; do
        tc qdisc del dev $_end root
    done
}

# verbs_up rxe|siw: a device on each end of the wire.
verbs_up() {
    rdma link add "$1-near" type "$1" netdev va
    rdma link add "$1-far" type "$1" netdev vb
    until_true 10 verbs_active "$1-near"
    until_true 10 verbs_active "$1-far"
}

verbs_active() {
    rdma link show "$1/1" | grep -q 'state ACTIVE'
}

verbs_down() {
    rdma link delete "$1-near"
    rdma link delete "$1-far"
}

# verbs_resources: what is allocated on the devices, one line each.
verbs_resources() {
    rdma resource show | sed 's/^[0-9]*: //' | sort
}

# siw_set PARAMETER VALUE: mpa_crc_required, mpa_crc_strict, mpa_version, peer_to_peer. For
# connections from then on.
siw_set() {
    echo "$2" >"/sys/module/siw/parameters/$1"
}

# rping_across: librdmacm's ping with data, checked by both sides, and seen to cross the wire.
rping_across() {
    _near=$(cat /sys/class/net/va/statistics/tx_packets)
    _far=$(cat /sys/class/net/vb/statistics/tx_packets)
    rping -s -a $FAR -C 10 -V -v &
    _server=$!
    # It says nothing when it listens.
    sleep 0.5
    rping -c -a $FAR -C 10 -V
    wait $_server
    # Ten times a Send, an RDMA Read and an RDMA Write.
    [ $(($(cat /sys/class/net/va/statistics/tx_packets) - _near)) -ge 20 ]
    [ $(($(cat /sys/class/net/vb/statistics/tx_packets) - _far)) -ge 20 ]
}

# delay_shows: with 1 ms of delay at both ends, a round trip takes 2 ms and not much more.
delay_shows() {
    wire_slow delay 1ms
    _times=$(ping -q -c 20 -i 0.05 $FAR)
    wire_fast
    echo "$_times"
    # The last line: rtt min/avg/max/mdev = 2.1/...
    _least=${_times##* = }
    _least=${_least%%/*}
    echo "$_least" | awk '{ exit !($1 >= 2 && $1 < 4) }'
}
