#!/bin/sh
# shellcheck shell=sh
#: about    Linux's client over TCP through two gateways to Linux's server, NFS 3 to 4.2: the server's outcome
#: timeout  2400
#: copy     exercise
#: copy     rpcrdma

. "$LAB/guest/alike.sh"
. "$LAB/guest/restarts.sh"
. "$LAB/guest/scenarios.sh"

lane() {
    need lab/modules 60 load_modules verbs nfs disk
    need lab/wire 20 wire_up
    need lab/nfsd 60 disk_exported
    all_directly 4.2 4.1 4.0 3
    # Both forms of version 2 between the gateways, over iwarp.
    through iwarp-2 4.2 4.1 4.0 3
    through iwarp-2wg 4.2
    check kernel-log 10 quiet_but_for_restarts
}

# scenarios VERSION
scenarios() {
    echo fsx renames writers
    case $1 in
    4.1) echo delegation ;;
    4.2) echo delegation offload ;;
    esac
}

# through SETUP VERSION...
through() {
    need "$1/gateways" 60 gateways_up "$1"
    all_through "$@"
    check "$1/gateways-end" 60 gateways_end "$1"
    check "$1/placed" 10 placed
    all_restarted "$@"
}
