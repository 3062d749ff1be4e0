#!/bin/sh
# shellcheck shell=sh
#: about    Linux's client through gateways on rxe and siw to Linux's server, NFS 4.2: the server's outcome
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
    all_directly 4.2
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        through $device-2wg
        check $device-2wg/placed 10 placed
        all_restarted $device-2wg 4.2
        # Linux's client speaks version 1 itself to the only gateway, which leads to TCP.
        through $device-1
        all_restarted $device-1 4.2
        need lab/$device/down 30 verbs_down $device
    done
    check kernel-log 10 quiet_but_for_restarts
}

# scenarios VERSION
scenarios() {
    echo fsx renames writers delegation offload
}

# through SETUP
through() {
    need "$1/gateways" 60 gateways_up "$1"
    all_through "$1" 4.2
    check "$1/gateways-end" 60 gateways_end "$1"
}
