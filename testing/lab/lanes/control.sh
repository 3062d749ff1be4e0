#!/bin/sh
# shellcheck shell=sh
#: about    Linux's NFS client and server over rxe and siw, both in the guest
#: control
#: timeout  400

lane() {
    need modules 60 load_modules verbs nfs netem
    need wire 20 wire_up
    check wire/delay 20 delay_shows
    need nfsd 60 nfsd_up
    for device in rxe siw; do
        need $device/up 30 verbs_up $device
        check $device/rping 30 rping_across
        for version in 3 4.0 4.1 4.2; do
            check $device/nfs$version 90 nfs_round $version
        done
        if [ $device = siw ]; then
            check siw/crc/nfs4.1 90 nfs_round_with_crc 4.1
        fi
        check $device/down 30 verbs_down $device
    done
    check kernel-log 10 kernel_log_clean
}

# siw leaves CRC out unless told otherwise.
nfs_round_with_crc() {
    siw_set mpa_crc_required Y
    nfs_round "$1"
    siw_set mpa_crc_required N
}
