#!/bin/sh
# shellcheck shell=sh
#: about    this project on the host against the guest's kernel, through siw
#: timeout  1140
#: copy     exercise
#: copy     rpcrdma
#: forward  20049
#: forward  20048
#: host     serve = {bin:rpcrdma} serve --export export={share}/export --handle-key {share}/key --port {port:rdma} --tcp-port {port:tcp} --crc {args}
#: host     list = {bin:exercise} list-tree {share}/export/tree
#: host     sum = {bin:exercise} sum {share}/export/fsx
#: host     check-written = {bin:exercise} check-written {share}/export/writers
#: host     check-ledger = {bin:exercise} check-ledger {share}/export/ledger {share}/ledger
#: host     make-tree = {bin:exercise} make-tree {share}/tree
#: host     list-back = {bin:exercise} list-tree {share}/back
#: host     rm-back = rm -r {share}/back
#: host     put = {bin:rpcrdma} put -r -o {args} -o mountproto=tcp,mountport={forward:20048} {share}/tree nfs://127.0.0.1:{forward:20049}/export/
#: host     get = {bin:rpcrdma} get -r -o suid,dev -o {args} -o mountproto=tcp,mountport={forward:20048} nfs://127.0.0.1:{forward:20049}/export/tree {share}/back
#: host     cat = {bin:rpcrdma} cat -o mountproto=tcp,mountport={forward:20048} nfs://127.0.0.1:{forward:20049}/export/tree/file11
#: host     decode = tshark -r {share}/out/wire.pcap -T fields -e tcp.srcport -e iwarp_rdma.opcode

lane() {
    need lab/modules 60 load_modules verbs nfs
    need lab/device 20 device_to_host
    need lab/tree 60 make_tree
    mkdir -p "$LAB/export"
    # CRC in software, on an emulated processor, is slow. What the random work finds, it finds with
    # either: most of it is done once.
    kernel_client kernel-client/crc-on on 5000
    kernel_client kernel-client/crc-off off 20000
    need lab/nfsd 60 nfsd_up
    for connections in 1 4; do
        check "knfsd/nconnect-$connections/put" 120 put_to_knfsd $connections
        check "knfsd/nconnect-$connections/get" 120 get_from_knfsd $connections
    done
    check knfsd/send-with-invalidate 60 knfsd_invalidates
    check kernel-log 10 quiet_but_for_restarts
}

# siw on the interface that leads to the host, where a user-space RNIC listens on plain TCP.
device_to_host() {
    rdma link add siw-host type siw netdev eth0
    until_true 10 verbs_active siw-host
}

# The same tree here and on the host, made from one seed.
make_tree() {
    exercise make-tree /tmp/tree
    exercise list-tree /tmp/tree >/tmp/tree.list
    wc -l /tmp/tree.list
    host run make-tree
}

# kernel_client NAME on|off OPERATIONS: Linux's client on our server, with CRC or without; fsx does so
# many operations.
kernel_client() {
    need "$1/serve" 40 host start serve "$2"
    need "$1/mount" 60 mount_ours
    check "$1/send-with-invalidate" 60 ours_invalidates
    check "$1/tree" 300 copy_tree
    check "$1/fsx" 400 random_work "$3"
    check "$1/names" 120 exercise names /mnt/names
    check "$1/writers" 120 eight_writers
    check "$1/restart" 180 restart_under_work "$2"
    check "$1/sync" 120 restart_after_sync "$2"
    check "$1/unmount" 60 unmount_ours
    check "$1/end" 40 host stop serve
    check "$1/kernel-log" 10 quiet_but_for_restarts
}

# Under a capture that shows the connection from its beginning.
mount_ours() {
    capture eth0 wire
    mount -t nfs -o "vers=3,proto=rdma,port=$PORT_rdma,mountport=$PORT_tcp,mountproto=tcp,nolock,hard" \
        "$HOST:/export" /mnt
    grep ' /mnt nfs.*proto=rdma' /proc/mounts
    # Small: tshark soon loses track of messages in a stream of data.
    for _file in 1 2 3; do
        head -c 10007 /dev/urandom >/tmp/source
        cp /tmp/source /mnt/first
        forget
        equal 'first file' "$(sum /mnt/first)" "$(sum /tmp/source)"
        rm /mnt/first
    done
    capture_end wire
}

unmount_ours() {
    umount /mnt
    equal 'left on the server' "$(ls -A "$LAB/export")" ''
}

# What is cached is written, and given up.
forget() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}

# invalidations PORT: how many messages that were sent from this port invalidate what the peer has
# registered: Send with Invalidate, and the same with Solicited Event.
invalidations() {
    host run decode >/tmp/opcodes
    # One line for each segment of TCP, with the opcodes of all messages that end in it.
    awk -v port="$1" '
        $1 == port { sends += gsub(/0x03|0x05/, "&", $2); ours += gsub(/0x04|0x06/, "&", $2) }
        END { print ours + 0; print sends + 0 " other Sends" >"/dev/stderr" }' /tmp/opcodes
}

ours_invalidates() {
    [ "$(invalidations "$PORT_rdma")" -ge 2 ]
}

copy_tree() {
    cp -a /tmp/tree /mnt/tree
    forget
    echo "copied at $(now)"
    host run list >/tmp/list
    diff /tmp/tree.list /tmp/list
    cp -a /mnt/tree /tmp/back
    echo "copied back at $(now)"
    exercise list-tree /tmp/back >/tmp/list
    diff /tmp/tree.list /tmp/list
    rm -r /mnt/tree /tmp/back
    echo "removed at $(now)"
}

# random_work OPERATIONS
random_work() {
    _wanted=$(exercise fsx /mnt/fsx --direct --count "$1")
    sync
    equal 'on the server' "$(host run sum)" "$_wanted"
    rm /mnt/fsx
}

eight_writers() {
    exercise write /mnt/writers
    exercise check-written /mnt/writers
    host run check-written
    forget
    exercise check-written /mnt/writers
    rm -r /mnt/writers
}

# restart_under_work CRC: the server dies twice under a writer. What was promised then is on its disk,
# and in the end everything is.
restart_under_work() {
    mkdir /mnt/ledger
    # That of an earlier round would be taken for this one's.
    rm -f /tmp/ledger
    exercise ledger /mnt/ledger /tmp/ledger --count 300 --pause 20 &
    _writer=$!
    for _lines in 100 300; do
        until_true 60 has_lines /tmp/ledger $_lines
        host kill serve
        promised_on_server
        host start serve "$1"
        echo "restarted at $(now)"
    done
    wait $_writer
    forget
    exercise check-ledger /mnt/ledger /tmp/ledger
    promised_on_server
    rm -r /mnt/ledger
}

# Of a server that is dead for a while a hard mount says so, and that it is back.
quiet_but_for_restarts() {
    kernel_log_clean -e 'nfs: server [^ ]+ (not responding, still trying|OK)$'
}

promised_on_server() {
    cp /tmp/ledger "$LAB/ledger"
    host run check-ledger
}

# restart_after_sync CRC: what sync(1) has returned from is on the disk of a server that dies then.
restart_after_sync() {
    exercise make-tree /mnt/tree --count 100
    sync
    exercise list-tree /mnt/tree >/tmp/small.list
    host kill serve
    host run list >/tmp/list
    diff /tmp/small.list /tmp/list
    host start serve "$1"
    echo 3 >/proc/sys/vm/drop_caches
    exercise list-tree /mnt/tree >/tmp/list
    diff /tmp/small.list /tmp/list
    rm -r /mnt/tree
}

# put_to_knfsd CONNECTIONS: the host's own client on the guest's server.
put_to_knfsd() {
    rm -rf /export/tree
    host run put "nconnect=$1"
    exercise list-tree /export/tree >/tmp/list
    diff /tmp/tree.list /tmp/list
}

get_from_knfsd() {
    host run get "nconnect=$1"
    host run list-back >/tmp/list
    host run rm-back
    diff /tmp/tree.list /tmp/list
}

knfsd_invalidates() {
    capture eth0 wire
    equal 'as the host read it' "$(host run cat | sha256sum)" "$(sum /tmp/tree/file11)"
    capture_end wire
    # One READ, one reply.
    [ "$(invalidations $NFS_RDMA_PORT)" -ge 1 ]
}
