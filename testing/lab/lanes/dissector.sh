#!/bin/sh
# shellcheck shell=sh
#: about    the Wireshark dissector on captures of rxe: Linux's peers by each version of NFS, and this project
#: timeout  900
#: copy     rpcrdma
#: host     shown = {bin:wire-check} --read {share}/out/wire.pcap

lane() {
    need lab/modules 60 load_modules verbs nfs
    need lab/wire 20 wire_up
    need lab/nfsd 60 nfsd_up
    need lab/rxe 60 verbs_up rxe
    for version in 3 4.0 4.1 4.2; do
        check linux/nfs$version 120 linux_shown $version
    done
    for features in none ddp cont ddp+cont; do
        check ours/$features 120 ours_shown 2 $features
    done
    check ours/version-1 120 ours_shown 1 none
}

# work FOLDER: reads and writes of each transfer mode, and names.
work() {
    head -c 70001 /dev/urandom >/tmp/source
    for _size in 0 3 1000 5001 70001; do
        head -c $_size /tmp/source >"$1/$_size"
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    for _size in 0 3 1000 5001 70001; do
        head -c $_size /tmp/source | cmp - "$1/$_size"
    done
    mkdir "$1/folder"
    ln -s 1000 "$1/link"
    equal 'a link' "$(readlink "$1/link")" 1000
    ls -l "$1"
    rm -r "$1"/*
}

# linux_shown VERSION: Linux's client and server.
linux_shown() {
    capture va wire
    nfs_mount "$1" "$FAR" /export /mnt
    trap 'umount --lazy /mnt' EXIT
    work /mnt
    trap - EXIT
    umount /mnt
    settled wire
    capture_end wire
    shown "linux-$1"
}

# shown NAME: what the last capture shows, which is kept under this name.
shown() {
    cp "$OUT/wire.pcap" "$OUT/$1.pcap"
    host run shown
}

# ours_shown VERSION FEATURES: this project's client and server.
ours_shown() {
    serve_up --features "$2"
    trap 'serve_end KILL' EXIT
    mkdir -p /tmp/tree
    head -c 70001 /dev/urandom >/tmp/tree/long
    head -c 5001 /tmp/tree/long >/tmp/tree/middle
    head -c 100 /tmp/tree/long >/tmp/tree/short
    capture va wire
    _options=rpcrdma=$1
    [ "$1" = 1 ] || _options=$_options,features=$2
    ours 'put -r' "$_options" /tmp/tree "$OUR_URL/"
    ours 'get -r' "$_options" "$OUR_URL/tree" /tmp/back
    settled wire
    capture_end wire
    diff -r /tmp/tree /tmp/back
    rm -r /tmp/back /tmp/served/tree
    trap - EXIT
    serve_end TERM
    shown "ours-$1-$2"
}
