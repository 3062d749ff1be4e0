#!/bin/sh
# shellcheck shell=sh
#: about    this project on verbs devices, rxe and then siw, with Linux's peers and with itself
#: timeout  2700
#: copy     exercise
#: copy     rpcrdma
#: tests    rpcrdma
#: tests    rdma-iwarp
#: host     decode = tshark -r {share}/out/wire.pcap -T fields -e ip.src -e infiniband.bth.opcode -e iwarp_rdma.opcode

lane() {
    need lab/modules 60 load_modules verbs nfs netem disk
    need lab/wire 20 wire_up
    need lab/tree 60 make_tree
    need lab/nfsd 60 nfsd_up
    check identity 120 identities
    for device in rxe siw; do
        need lab/$device 60 device_up $device
        check $device/devices 20 devices_are_listed $device
        # What the lists below are made of: without them, checks would be missing and none would fail.
        need $device/strategies 20 strategies_are_listed $device
        on_device $device
        # After it was down under traffic, rxe's own connection manager is deaf: to rping, too.
        need lab/$device/mended 60 device_up $device
        for registration in $(registrations $device-near); do
            check $device/model/$registration 300 device_tests $registration
        done
        if [ $device = rxe ]; then
            check $device/model/windows-as-on-adapters 300 adapter_tests
        fi
        check $device/model/leaks-nothing 60 resources_are idle
        [ $device != rxe ] || check $device/round-trips 240 round_trips /tmp/costs-$device
        # What costs are written to is empty until they are known.
        [ -s /tmp/costs-$device ] || check $device/costs 120 costs_are_measured /tmp/costs-$device
        for suite in commands copy bad_input compare surplus; do
            check $device/end-to-end/$suite 700 end_to_end $device $suite
        done
        if [ $device = siw ]; then
            skip siw/end-to-end/a-port-where-something-else-answers it kills the guest\'s kernel: a bug of siw
        fi
        check $device/end-to-end/leaks-nothing 60 resources_are idle
        check $device/device-removed 90 removed_under_work $device
        check $device/kernel-log 10 quiet_but_for_refusals
        need lab/$device/again 60 device_up $device
        need lab/$device/down 60 verbs_down $device
    done
}

# The peers of one device.
on_device() {
    check "$1/knfsd/tree" 180 tree_on_knfsd
    check "$1/knfsd/send-with-invalidate" 60 knfsd_invalidates "$1"
    need "$1/serve" 40 serve_up
    verbs_resources | sed 's/ mr [0-9]*//' >/tmp/serving
    check "$1/kernel-client/mount" 60 mount_ours
    check "$1/kernel-client/tree" 180 copy_tree
    check "$1/kernel-client/fsx" 180 random_work
    check "$1/kernel-client/names" 120 exercise names /mnt/names
    check "$1/kernel-client/writers" 120 eight_writers
    check "$1/kernel-client/unmount" 60 unmount_ours
    for registration in $(registrations "$1-near"); do
        check "$1/ours/$registration" 120 tree_on_ours "registration=$registration"
    done
    for version in $(our_values rpcrdma); do
        check "$1/ours/rpcrdma-$version" 120 tree_on_ours "rpcrdma=$version"
    done
    check "$1/ours/send-with-invalidate" 60 ours_invalidates
    [ "$1" != siw ] || check siw/taken-ports 120 connects_beside_taken_ports
    check "$1/threads" 60 both_threads_serve
    check "$1/clients-killed" 120 clients_killed
    check "$1/clients-killed/leak-nothing" 60 resources_are serving
    check "$1/link-silent" 180 link_silent
    # On RoCE silent peers are asked after 20 to 40 s, and some retries later are given up.
    check "$1/link-silent/leaks-nothing" 150 until_true 120 same_resources serving
    check "$1/vanished" 180 client_vanished
    check "$1/power-lost" 180 power_lost
    check "$1/serve-1" 40 fresh_server --rpcrdma 1
    for version in 1 auto; do
        check "$1/serve-1/rpcrdma-$version" 120 tree_on_ours "rpcrdma=$version"
    done
    for serves in none ddp cont ddp+cont; do
        check "$1/serve-$serves" 40 fresh_server --features "$serves"
        for version in 2 2wg; do
            for wants in none ddp cont ddp+cont; do
                check "$1/serve-$serves/rpcrdma-$version-$wants" 120 \
                    tree_on_ours "rpcrdma=$version,features=$wants"
            done
        done
    done
    check "$1/server-killed" 120 server_killed
    check "$1/server-killed/leaks-nothing" 60 resources_are idle
    check "$1/server-ends" 60 server_ends
    check "$1/server-ends/leaks-nothing" 60 resources_are idle
    check "$1/link-down" 180 link_down
    check "$1/link-down/leaks-nothing" 60 resources_are idle
}

device_up() {
    wire_mend
    rdma link show "$1-near/1" >/dev/null 2>&1 && rdma link delete "$1-near"
    rdma link show "$1-far/1" >/dev/null 2>&1 && rdma link delete "$1-far"
    verbs_up "$1"
    # The kernel's own server takes what it needs of a new device.
    sleep 1
    verbs_resources >/tmp/idle
    cat /tmp/idle
}

devices_are_listed() {
    rpcrdma devices
    rpcrdma devices | grep -E "verbs:$1-near .*ACTIVE.*ready"
    rpcrdma devices | grep -E "verbs:$1-far .*ACTIVE.*ready"
}

# registrations DEVICE: the ways to offer memory that the command says it has.
registrations() {
    rpcrdma devices | awk -F '  +' -v device="verbs:$1" '$1 == device { gsub(",", " ", $6); print $6 }'
}

strategies_are_listed() {
    case $1 in
    rxe) equal 'ways to offer memory' "$(echo $(registrations rxe-near))" \
        'windows per-call persistent-unsafe' ;;
    siw) registrations siw-near | grep -w per-call ;;
    esac
    our_values rpcrdma | grep -w 1
}

make_tree() {
    exercise make-tree /tmp/tree --count 120
    exercise list-tree /tmp/tree >/tmp/tree.list
    head -c 100000000 /dev/zero >/tmp/large
}

# same_tree FOLDER: as the one that was made.
same_tree() {
    exercise list-tree "$1" >/tmp/list
    diff /tmp/tree.list /tmp/list
}

# resources_are idle|serving: what the devices hold is what they held then. The kernel frees some of
# it a while after it was let go.
resources_are() {
    until_true 40 same_resources "$1"
}

# What a server keeps registered is its pool of memory, which grows with its work.
same_resources() {
    case $1 in
    serving) verbs_resources | sed 's/ mr [0-9]*//' | diff "/tmp/$1" - ;;
    *) verbs_resources | diff "/tmp/$1" - ;;
    esac
}

tree_on_knfsd() {
    _url=nfs://$FAR:$NFS_RDMA_PORT/export
    for _connections in 1 4; do
        _options=nconnect=$_connections,mountproto=tcp,mountport=$MOUNT_PORT
        ours 'put -r' $_options /tmp/tree "$_url/"
        same_tree /export/tree
        ours 'get -r' "$_options,suid,dev" "$_url/tree" /tmp/back
        same_tree /tmp/back
        rm -r /export/tree /tmp/back
    done
}

# invalidations ADDRESS: how many messages from there invalidate what the peer has registered. RoCE
# (InfiniBand specification, table 38): SEND Last, SEND Only with Invalidate; RDMAP: Send with
# Invalidate, and with Solicited Event.
invalidations() {
    host run decode >/tmp/opcodes
    awk -F '\t' -v from="$1" '
        $1 == from {
            for (field = 2; field <= 3; field++) {
                count = split($field, codes, ",")
                for (at = 1; at <= count; at++) {
                    seen[codes[at]]++
                    if (field == 2 && (codes[at] == 22 || codes[at] == 23)) sum++
                    if (field == 3 && (codes[at] == "0x04" || codes[at] == "0x06")) sum++
                }
            }
        }
        END {
            for (code in seen) print "opcode " code ": " seen[code] >"/dev/stderr"
            print sum + 0
        }' /tmp/opcodes
}

# knfsd_invalidates DEVICE: where we have windows. Plain registrations cannot be invalidated by the
# peer, so it must not be told that it may.
knfsd_invalidates() {
    cp /tmp/tree/file11 /export/
    capture va wire
    equal 'as it was read' "$(ours cat mountproto=tcp,mountport=$MOUNT_PORT \
        nfs://$FAR:$NFS_RDMA_PORT/export/file11 | sha256sum)" "$(sum /tmp/tree/file11)"
    capture_end wire
    rm /export/file11
    _seen=$(invalidations $FAR)
    case " $(echo $(registrations "$1-near")) " in
    *' windows '*) [ "$_seen" -ge 1 ] ;;
    *) equal 'messages that invalidate' "$_seen" 0 ;;
    esac
}

# A peer's memory can be invalidated by us where the kernel registered it, and by a device that can.
ours_invalidates() {
    cp /tmp/tree/file11 /tmp/served/
    capture va wire
    mount_ours
    equal 'as it was read' "$(sum /mnt/file11)" "$(sum /tmp/tree/file11)"
    capture_end wire
    rm /mnt/file11
    unmount_ours
    [ "$(invalidations $FAR)" -ge 1 ]
}

# mount_ours [EXPORT]
mount_ours() {
    mount -t nfs -o "vers=3,proto=rdma,port=$OUR_PORT,mountport=$((OUR_PORT + 1)),mountproto=tcp,nolock,hard" \
        "$FAR:/${1:-served}" /mnt
    grep ' /mnt nfs.*proto=rdma' /proc/mounts
}

unmount_ours() {
    umount /mnt
    equal 'left on the server' "$(ls -A /tmp/served)" ''
}

copy_tree() {
    cp -a /tmp/tree /mnt/tree
    sync
    same_tree /tmp/served/tree
    echo 3 >/proc/sys/vm/drop_caches
    cp -a /mnt/tree /tmp/back
    same_tree /tmp/back
    rm -r /mnt/tree /tmp/back
}

random_work() {
    _wanted=$(exercise fsx /mnt/fsx --direct --count 1000)
    sync
    equal 'on the server' "$(exercise sum /tmp/served/fsx)" "$_wanted"
    rm /mnt/fsx
}

eight_writers() {
    exercise write /mnt/writers
    exercise check-written /tmp/served/writers
    echo 3 >/proc/sys/vm/drop_caches
    exercise check-written /mnt/writers
    rm -r /mnt/writers
}

# without_loss COMMAND...: runs a client, and fails if its standard error reports that a connection was lost. The
# client reconnects by itself, so its exit status does not show the loss.
without_loss() {
    _result=0
    RUST_LOG=info "$@" 2>"$OUT/client.log" || _result=$?
    cat "$OUT/client.log"
    if grep -q 'no connection' "$OUT/client.log"; then
        _result=1
    fi
    return $_result
}

# tree_on_ours [OPTIONS]: our client on our server.
tree_on_ours() {
    without_loss ours 'put -r' "${1:-}" /tmp/tree "$OUR_URL/"
    same_tree /tmp/served/tree
    without_loss ours 'get -r' "${1:+$1,}suid,dev" "$OUR_URL/tree" /tmp/back
    same_tree /tmp/back
    rm -r /tmp/served/tree /tmp/back
}

# connects_beside_taken_ports: siw binds a TCP socket to the port that the connection manager has chosen, though other
# sockets may have it; here they have a quarter of all that can be chosen.
connects_beside_taken_ports() {
    _file=/proc/sys/net/ipv4/ip_local_port_range
    _range=$(cat $_file)
    _result=0
    echo '52000 52999' >$_file
    python3 -c "$BESIDE_TAKEN_PORTS" rpcrdma ping -o device=verbs -c 1 "$OUR_URL" || _result=$?
    echo "$_range" >$_file
    return $_result
}
BESIDE_TAKEN_PORTS='import socket, subprocess, sys
held = [socket.create_server(("", port)) for port in range(52000, 53000, 4)]
for _ in range(20):
    subprocess.run(sys.argv[1:], check=True)'

# put_under_way: a client at work on a large file, that has begun; $_client is its process.
put_under_way() {
    rm -f /tmp/served/large
    # A function in the background would be a shell between us and it.
    rpcrdma put -v -o device=verbs /tmp/large "$OUR_URL/large" >"$OUT/put.log" 2>&1 &
    _client=$!
    until_true 20 test -s /tmp/served/large
}

# both_threads_serve: each of the server's threads serves two of four connections. A thread without any
# never wakes, so its count of voluntary context switches stays the same.
both_threads_serve() {
    without_loss ours ping nconnect=4 -c 200 --op getattr "$OUR_URL"
    read -r _served </run/serve.pid
    for _thread in rpcrdma loop-1; do
        _switches=$(thread_switches "$_served" $_thread)
        without_loss ours ping nconnect=4 -c 200 --op getattr "$OUR_URL"
        [ $(($(thread_switches "$_served" $_thread) - _switches)) -ge 50 ]
    done
}

# thread_switches PID NAME: how often that thread has gone to sleep.
thread_switches() {
    for _task in "/proc/$1/task"/*; do
        if [ "$(cat "$_task/comm")" = "$2" ]; then
            awk '$1 == "voluntary_ctxt_switches:" { print $2 }' "$_task/status"
            return
        fi
    done
    echo "there is no thread $2" >&2
    return 1
}

clients_killed() {
    for _ in 1 2 3; do
        put_under_way
        kill -9 $_client
        until_true 10 ended $_client
    done
    rm /tmp/served/large
    tree_on_ours
}

# Nothing arrives for a while: the work goes on then.
link_silent() {
    put_under_way
    wire_slow loss 100%
    sleep 4
    wire_fast
    until_true 120 ended $_client
    cat "$OUT/put.log"
    equal 'on the server' "$(sum /tmp/served/large)" "$(sum /tmp/large)"
    rm /tmp/served/large
}

# A client that is idle is gone, and no word of that arrives on rxe, whose connection manager says it
# once. The server asks after it, by RDMA Writes of nothing. (On siw, TCP goes on saying it.)
client_vanished() {
    rpcrdma ping --interval 10s -o device=verbs $FAR:$OUR_PORT >"$OUT/ping.log" 2>&1 &
    _client=$!
    until_true 20 more_than_serving
    wire_slow loss 100%
    trap wire_fast EXIT
    kill -9 $_client
    until_true 20 ended $_client
    sleep 1
    trap - EXIT
    wire_fast
    until_true 120 same_resources serving
}

more_than_serving() {
    if same_resources serving >/dev/null; then
        return 1
    fi
}

# A disk that loses what is not synchronised when its power is cut: ext4's shutdown without its log.
# disk_up mounts it, disk_power_lost cuts the power and mounts it again.
disk_up() {
    truncate -s 100M /tmp/disk.img
    mke2fs -q -t ext4 /tmp/disk.img
    mkdir -p /tmp/disk
    mount -o loop /tmp/disk.img /tmp/disk
    mkdir /tmp/disk/files
    sync
}

disk_power_lost() {
    # EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH.
    # shellcheck disable=SC2016  # for perl
    perl -e 'my $how = pack("L", 2);
        open(my $disk, "<", $ARGV[0]) or die $!;
        ioctl($disk, 0x8004587d, $how) or die $!' /tmp/disk
    umount /tmp/disk
    mount -o loop /tmp/disk.img /tmp/disk
}

# power_lost: server and disk fail twice under a writer. What was promised then is on the disk, and in
# the end everything is.
power_lost() {
    disk_up
    serve_end KILL
    serve_up --export disk=/tmp/disk/files:no_root_squash
    mount_ours disk
    rm -f /tmp/ledger
    exercise ledger /mnt /tmp/ledger --count 300 --pause 20 &
    _writer=$!
    for _lines in 100 300; do
        until_true 60 has_lines /tmp/ledger $_lines
        serve_end KILL
        disk_power_lost
        exercise check-ledger /tmp/disk/files /tmp/ledger
        serve_up --export disk=/tmp/disk/files:no_root_squash
        echo "restarted at $(now)"
    done
    wait $_writer
    umount /mnt
    serve_end KILL
    disk_power_lost
    exercise check-ledger /tmp/disk/files /tmp/ledger
    umount /tmp/disk
    rm /tmp/disk.img
    serve_up
}

# The link goes down: that much is an event of the device. Both sides can be ended in order then.
link_down() {
    fresh_server
    put_under_way
    wire_cut
    sleep 5
    wire_mend
    sleep 5
    tail "$OUT/put.log"
    end_client
    serve_end TERM
    cat "$OUT/serve.log"
    no_word_of panic
}

server_killed() {
    fresh_server
    put_under_way
    serve_end KILL
    sleep 1
    # It may wait for the server to come back.
    end_client
}

end_client() {
    kill $_client 2>/dev/null || cat "$OUT/put.log"
    until_true 20 ended $_client
}

# fresh_server [OPTION...]: a server that an earlier check has not spoilt.
fresh_server() {
    serve_end KILL || true
    serve_up -v "$@"
}

# no_word_of PATTERN: in what the server said. (A failure of `! grep` ends nothing under `set -e`.)
no_word_of() {
    if grep -iE "$1" "$OUT/serve.log"; then
        return 1
    fi
}

# SIGTERM with a client at work: both end, and the server in order.
server_ends() {
    fresh_server
    put_under_way
    serve_end TERM
    end_client
    cat "$OUT/serve.log"
    no_word_of 'panic|error'
}

# removed_under_work DEVICE: its link is deleted, with a client and a server at work on it. The kernel
# waits for them to let go of it.
removed_under_work() {
    fresh_server
    put_under_way
    rdma link delete "$1-far" &
    _deletion=$!
    # The server is told, and ends; the client, which has its device still, waits for another.
    until_true 20 ended "$(cat /run/serve.pid)" || _stays=1
    end_client
    serve_end TERM || true
    until_true 20 ended $_deletion
    cat "$OUT/serve.log"
    [ -z "${_stays:-}" ]
    no_word_of panic
    grep 'was removed' "$OUT/serve.log"
    rm /tmp/served/large
    rdma link delete "$1-near"
    equal 'devices left' "$(rdma link)" ''
}

# device_tests REGISTRATION: what every device has to do, in tests of the device model.
device_tests() {
    _reach=reaching
    [ "$1" = persistent-unsafe ] || _reach=none
    # That one promises no bounds, which is why it is called unsafe.
    VERBS_MODEL=$NEAR,$FAR VERBS_MODEL_REGISTRATION=$1 "$LAB/tests/rdma-iwarp/model" --skip "$_reach::"
}

# Windows of the pool's own registrations, invalidated by requests: the way of all devices but rxe,
# which checks no bounds of such windows.
adapter_tests() {
    VERBS_MODEL=$NEAR,$FAR VERBS_MODEL_REGISTRATION=windows VERBS_MODEL_AS_ADAPTER=1 \
        "$LAB/tests/rdma-iwarp/model" --skip past_the_end --skip before_the_beginning
}

# end_to_end DEVICE TEST: tests of the command, with servers on the wire's far end. One at a time: four
# together take twice as long where two processors are emulated. Time itself is measured in round_trips,
# with nothing else going on, and what everything costs there or in costs_are_measured. Simulations are
# the same on every machine, and what goes over TCP alone has nothing of the device.
end_to_end() {
    _device=$1
    _suite=$2
    set -- --test-threads 1 --skip takes_the_time_of \
        --skip in_the_simulation --skip over_tcp --skip remote_invalidation_saves_an_interrupt
    # Answered with what is not MPA, siw and iw_cm follow a null pointer, and the guest's kernel is of
    # no use afterwards.
    [ "$_device" = rxe ] || set -- "$@" --skip a_port_where_something_else_answers
    set -- env RPCRDMA_TEST_BIN="$(command -v rpcrdma)" RPCRDMA_TEST_SERVER=$FAR \
        RPCRDMA_TEST_DEVICE=verbs:$_device-near RPCRDMA_TEST_SERVER_DEVICE=verbs:$_device-far \
        RPCRDMA_TEST_PATIENCE=480 RPCRDMA_TEST_COSTS=/tmp/costs-$_device "$LAB/tests/rpcrdma/$_suite" "$@"
    if [ "$_device" = rxe ]; then
        "$@"
        return
    fi
    for _try in 1 2 3; do
        _status=0
        "$@" >/tmp/suite.log 2>&1 || _status=$?
        cat /tmp/suite.log
        if [ $_status = 0 ] || ! first_message_lost /tmp/suite.log; then
            break
        fi
        echo "siw has lost the first message of a connection (lab/README.md): try $_try of 3"
    done
    return $_status
}

# first_message_lost LOG: every test that failed did so because a new connection was silent.
first_message_lost() {
    _failed=$(grep -c 'panicked at' "$1") || return 1
    [ "$_failed" = "$(grep -cE 'stderr: .*(did not answer a version 2 message|silent for [0-9]+s)' "$1")" ]
}

# Users of the guest who claim to be others, over TCP and the iwarp device: this kernel shows user 0 as the
# owner of a socket that was closed, which those from 6.16 on do not.
identities() {
    RPCRDMA_TEST_BIN=$(command -v rpcrdma) RPCRDMA_TEST_PATIENCE=240 \
        "$LAB/tests/rpcrdma/identity" --test-threads 1
}

# costs_are_measured FILE: what everything costs, which `compare` would measure before each comparison.
costs_are_measured() {
    rpcrdma compare --device verbs --address $FAR --ops write --sizes 8k --via v1,v2 --count 5 --time 5ms \
        --no-trips --save-costs "$1"
}

# Round trips, counted from time alone over a wire of 1 ms each way, are those that the simulation
# counts exactly, in every way of carrying NFS that there is. With more than 8 KiB, emulation takes ten
# times as long as the wire. FILE: as for costs_are_measured.
round_trips() {
    _costs=$1
    _ways=$(transfer_modes | grep -vx tcp | tr '\n' ,)
    set -- --ops null,read,write --sizes 8k --via "${_ways%,}"
    rpcrdma compare --device sim "$@" --json /tmp/exact.json
    mkdir -p "$OUT/results"
    ! has_html || set -- "$@" --html "$OUT/results/compare.html"
    # shellcheck disable=SC2016  # `$1` is for the command
    rpcrdma compare --device verbs --address $FAR --time 50ms "$@" --json "$OUT/results/compare.json" \
        --save-costs "$_costs" --set-delay 'for end in va vb; do tc qdisc replace dev $end root netem delay $1; done'
    wire_fast
    trips /tmp/exact.json >/tmp/exact
    trips "$OUT/results/compare.json" >/tmp/measured
    awk 'NR == FNR { exact[$1 " " $2] = $3; wanted++; next }
        ($1 " " $2) in exact {
            seen++
            off = $3 - exact[$1 " " $2]
            print $0 " for " exact[$1 " " $2]
            if (off > 0.15 || off < -0.15) wrong = 1
        }
        END { exit wrong || !wanted || seen != wanted }' /tmp/exact /tmp/measured
}

has_html() {
    rpcrdma compare --help | grep -q -e --html
}

# transfer_modes: what `compare --via` takes, as its help says it.
transfer_modes() {
    rpcrdma compare --help | awk '/^ *--via/ { on = 1; next } /^ *--/ { on = 0 }
        on && $1 == "-" { sub(":", "", $2); print $2 }'
}

# trips FILE: operation, transfer mode and round trips of each of compare's rows that have them, of which
# every key has a line of its own.
trips() {
    sed -nE 's/^ *"(op|transfer_mode|mode|round_trips)": "?([^",]*)"?,?$/\1 \2/p' "$1" | awk '
        { row[$1] = $2 }
        $1 == "round_trips" && $2 != "null" && row["mode"] == "blocking" {
            print row["op"], row["transfer_mode"], $2
        }'
}

# The drivers log each access that they refuse, and the tests ask for many. rxe does so when it is to
# deregister what a window is of, in the wrong order, as it cleans up after a process that was killed.
# siw's TERMINATE of layer 1, type 0, code 0 comes from a process that is killed while a message is on its
# way to it (README.md), and that of layer 0, type 0, code 255 from one that is killed while it sends.
# A disk that is cut off says so, and that it comes back; and so does a server.
quiet_but_for_refusals() {
    kernel_log_clean \
        -e 'rxe_dereg_mr: returned err = -22$' \
        -e 'EXT4-fs \(loop0\): (shut down requested \(2\)|.*recovery complete)$' \
        -e 'Aborting journal on device loop0-[0-9]+\.$' \
        -e 'nfs: server [^ ]+ (not responding, still trying|OK)$' \
        -e 'rxe-(near|far): qp#[0-9]+ (make_send_cqe|do_complete): non-flush error status = [0-9]+$' \
        -e '(make_send_cqe|do_complete): [0-9]+ callbacks suppressed$' \
        -e 'siw: got TERMINATE\. layer [01], type [12], code [0-9]+$' \
        -e 'siw: got TERMINATE\. layer 1, type 0, code 0$' \
        -e 'siw: got TERMINATE\. layer 0, type 0, code 255$'
}
