#!/bin/sh
# shellcheck shell=sh
#: about    Linux's NFS client and server over rxe and siw, both in the guest
#: control
#: timeout  400

lane() {
    need modules 60 load_modules verbs nfs
    need wire 20 wire_up
    need nfsd 60 nfsd_up
    for device in rxe siw; do
        need $device/up 30 verbs_up $device
        check $device/rping 30 rping_across
        for version in 3 4.0 4.1 4.2; do
            check $device/nfs$version 90 nfs_round $version
        done
        check $device/down 30 verbs_down $device
    done
    check kernel-log 10 kernel_log_clean
}
