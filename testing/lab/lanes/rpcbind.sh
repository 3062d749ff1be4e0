#!/bin/sh
# shellcheck shell=sh
#: about    Linux's client mounts this project's server without ports: rpcbind and the stock tools
#: timeout  400
#: copy     rpcrdma

lane() {
    need lab/modules 60 load_modules verbs nfs
    need lab/wire 20 wire_up
    need lab/rpcbind 20 rpcbind_up
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        need $device/serve 40 registered_server
        check $device/rpcinfo 20 tools_list_it
        check $device/showmount 20 exports_are_shown
        check $device/mount-rdma 90 mounted_without_ports rdma,nolock proto=rdma
        # What the page of a user says who found that it works.
        check $device/mount-rdma-mountvers 90 mounted_without_ports rdma,mountvers=3,nolock proto=rdma
        check $device/mount-tcp 90 mounted_without_ports nolock proto=tcp
        check $device/end 30 nothing_is_registered
        need lab/$device/down 30 verbs_down $device
    done
    check kernel-log 10 kernel_log_clean
}

rpcbind_up() {
    mkdir -p /run/rpcbind /run/sendsigs.omit.d
    rpcbind -w
    until_true 10 rpcinfo -p
}

# The standard ports, which clients look at.
registered_server() {
    mkdir -p /tmp/served
    # shellcheck disable=SC2016  # for the inner shell
    sh -c 'echo $$ >/run/serve.pid; exec rpcrdma serve "$@"' serve \
        --device verbs --listen $FAR --export export=/tmp/served:no_root_squash,insecure \
        --handle-key /tmp/handle-key >"$OUT/serve.log" 2>&1 </dev/null &
    until_true 20 grep 'listening tcp' "$OUT/serve.log"
    until_true 20 grep 'registered tcp rdma with rpcbind' "$OUT/serve.log"
}

tools_list_it() {
    rpcinfo -p $FAR
    rpcinfo -p $FAR | grep -E '100003 +3 +tcp +2049'
    rpcinfo -p $FAR | grep -E '100005 +3 +tcp +2049'
    rpcinfo | grep -E '100003 +3 +rdma +10\.8\.0\.2\.78\.81'
    rpcinfo -t $FAR 100003 3
}

exports_are_shown() {
    showmount -e $FAR | grep '^/export '
}

# mounted_without_ports OPTIONS EXPECTED: no version, no port. What is written arrives, and is read again.
mounted_without_ports() {
    mount -v -t nfs -o "$1" $FAR:/export /mnt
    trap 'umount --lazy /mnt' EXIT
    grep " /mnt nfs .*vers=3.*$2" /proc/mounts
    head -c 300001 /dev/urandom >/tmp/source
    cp /tmp/source /mnt/file
    sync /mnt/file
    equal 'file on the server' "$(sum /tmp/served/file)" "$(sum /tmp/source)"
    echo 3 >/proc/sys/vm/drop_caches
    equal 'file as read' "$(sum /mnt/file)" "$(sum /tmp/source)"
    rm /mnt/file
    trap - EXIT
    umount /mnt
}

nothing_is_registered() {
    serve_end TERM
    grep 'unregistered tcp rdma with rpcbind' "$OUT/serve.log"
    ! rpcinfo -p $FAR | grep -E '100003|100005'
}
