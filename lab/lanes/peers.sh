#!/bin/sh
# shellcheck shell=sh
#: about    this project on the host against the guest's kernel, through siw
#: timeout  600
#: capture
#: forward  20049
#: forward  20048
#: host     serve-crc = {bin:rpcrdma} serve --export export={share}/export --handle-key {share}/key --port {port:rdma_crc} --tcp-port {port:tcp_crc}
#: host     serve = {bin:rpcrdma} serve --export export={share}/export --handle-key {share}/key --crc off --port {port:rdma} --tcp-port {port:tcp}
#: host     put = {bin:rpcrdma} put -r -o mountproto=tcp,mountport={forward:20048} {share}/tree nfs://127.0.0.1:{forward:20049}/export/
#: host     get = {bin:rpcrdma} get -r -o mountproto=tcp,mountport={forward:20048} nfs://127.0.0.1:{forward:20049}/export/tree {share}/back

lane() {
    need lab/modules 60 load_modules verbs nfs
    need lab/device 20 device_to_host
    need lab/tree 60 make_tree /tmp/tree
    mkdir -p "$LAB/export"
    for crc in crc no-crc; do
        case $crc in
        crc) server=serve-crc rdma=$PORT_rdma_crc tcp=$PORT_tcp_crc ;;
        no-crc) server=serve rdma=$PORT_rdma tcp=$PORT_tcp ;;
        esac
        need "kernel-client/$crc/serve" 40 host start $server
        check "kernel-client/$crc/tree" 120 tree_on_our_server "$rdma" "$tcp"
        check "kernel-client/$crc/end" 40 host stop $server
    done
    need lab/nfsd 60 nfsd_up
    check knfsd/put 120 put_to_knfsd
    check knfsd/get 120 get_from_knfsd
    check kernel-log 10 kernel_log_clean
}

# siw on the interface that leads to the host, where a user-space RNIC listens on plain TCP.
device_to_host() {
    rdma link add siw-host type siw netdev eth0
    until_true 10 verbs_active siw-host
}

# make_tree FOLDER: files of sizes around all limits, folders, a link, a name with a blank.
make_tree() {
    mkdir -p "$1/empty" "$1/a b/c"
    head -c 3000011 /dev/urandom >"$1/large"
    for file in $(seq 60); do
        head -c $((file * file * 37)) "$1/large" >"$1/a b/c/$file"
    done
    ln -s large "$1/link"
}

# tree_sum FOLDER: every name, kind and content.
tree_sum() {
    (
        cd "$1"
        find . -type f -exec sha256sum {} + | sort -k 2
        find . -type d | sort
        find . -type l -exec readlink {} +
    ) | sha256sum
}

# tree_on_our_server RDMA-PORT TCP-PORT
tree_on_our_server() {
    mount -t nfs -o "vers=3,proto=rdma,port=$1,mountport=$2,mountproto=tcp,nolock" \
        "$HOST:/export" /mnt
    trap 'umount --lazy /mnt' EXIT
    grep ' /mnt nfs.*proto=rdma' /proc/mounts
    cp -a /tmp/tree /mnt/tree
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "copied at $(now)"
    equal 'tree on the server' "$(tree_sum "$LAB/export/tree")" "$(tree_sum /tmp/tree)"
    cp -a /mnt/tree /tmp/back
    echo "copied back at $(now)"
    equal 'tree copied back' "$(tree_sum /tmp/back)" "$(tree_sum /tmp/tree)"
    rm -r /mnt/tree /tmp/back
    equal 'left on the server' "$(ls -A "$LAB/export")" ''
    trap - EXIT
    umount /mnt
}

# The host's own client on the guest's server.
put_to_knfsd() {
    cp -a /tmp/tree "$LAB/tree"
    host run put
    equal 'tree on the server' "$(tree_sum /export/tree)" "$(tree_sum /tmp/tree)"
}

get_from_knfsd() {
    host run get
    equal 'tree copied back' "$(tree_sum "$LAB/back")" "$(tree_sum /tmp/tree)"
}
