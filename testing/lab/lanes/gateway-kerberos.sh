#!/bin/sh
# shellcheck shell=sh
#: about    Linux's client with krb5, krb5i and krb5p through gateways to Linux's server: the server's outcome
#: timeout  1800
#: copy     exercise
#: copy     rpcrdma

. "$LAB/guest/alike.sh"
. "$LAB/guest/kerberos.sh"
. "$LAB/guest/scenarios.sh"

lane() {
    need lab/modules 60 load_modules verbs nfs disk krb5
    need lab/wire 20 wire_up
    need lab/kdc 60 kdc_up
    need lab/nfsd 60 disk_exported
    need lab/gss 60 gss_up
    need lab/siw 60 verbs_up siw
    check auth-sys-is-refused 60 refused
    for security in krb5 krb5i krb5p; do
        mounts="4.2-$security 4.1-$security 3-$security"
        # shellcheck disable=SC2086  # words
        all_directly $mounts
        # Both forms of version 2 between the gateways, and Linux's own version 1 to one that leads to TCP.
        for setup in iwarp-2 iwarp-2wg siw-1; do
            need $setup/$security/gateways 60 gateways_up $setup
            # shellcheck disable=SC2086  # words
            all_through $setup $mounts
            check $setup/$security/gateways-end 60 gateways_end $setup
            check $setup/$security/reduced 10 reduced_as_permitted $setup $security
        done
    done
    check kernel-log 10 kernel_log_clean -e 'NFSD: .*' -e 'loop[0-9]+: .*'
}

# scenarios VERSION-SECURITY
scenarios() {
    echo fsx
    case $1 in
    4.2-*) echo copies ;;
    4.1-*) echo delegation ;;
    esac
}

# copies: four at once. With krb5i over RDMA, the writers of scenarios.sh can get an input/output error, from knfsd
# without a gateway as well (in one of four runs): presumably as they change pages that Linux's client is sending.
copies() {
    mkdir /mnt/copies
    _pids=
    for _of in 1 2 3 4; do
        cp /usr/bin/bash /mnt/copies/$_of &
        _pids="$_pids $!"
    done
    for _pid in $_pids; do
        wait "$_pid"
    done
    echo 3 >/proc/sys/vm/drop_caches
    for _of in 1 2 3 4; do
        equal 'at the server' "$(sum /export/copies/$_of)" "$(sum /usr/bin/bash)"
        equal 'as read' "$(sum /mnt/copies/$_of)" "$(sum /usr/bin/bash)"
    done
    rm -r /mnt/copies
}

# refused: without a ticket nobody gets in, so that what works later works by Kerberos.
refused() {
    if mount -t nfs -o vers=4.2,proto=tcp,sec=sys,port=$NFS_PORT,retry=0 127.0.0.1:/export /mnt; then
        umount /mnt
        return 1
    fi
}

# reduced_as_permitted SETUP SECURITY: with integrity or privacy, nothing of a call or a reply is apart from its message
# (RFC 8166, section 8.2.2), though it is long. With authentication alone, the data of READ and WRITE is. In 4.2, Linux
# uses READ_PLUS, of which nothing may be apart.
reduced_as_permitted() {
    _logs=$OUT/far.log
    case $1 in
    *-1) ;;
    *) _logs="$OUT/near.log $_logs" ;;
    esac
    for _log in $_logs; do
        echo "$_log"
        grep '^explained: ' "$_log" >/tmp/kinds
        grep -E '( apart \[|, and [1-9][0-9]* apart$)' /tmp/kinds >/tmp/apart || true
        grep -F ': whole (protected by RPCSEC_GSS), ' /tmp/kinds >/tmp/whole
        case $2 in
        krb5)
            for _version in NFSv4.1 NFSv3; do
                grep -E "^explained: .* $_version (.* )?WRITE[: ].* apart \[[0-9]+\]" /tmp/apart
                grep -E "^explained: .* $_version (.* )?READ[: ].*, and [1-9][0-9]* apart$" /tmp/apart
            done
            # Linux's client protects the operations on its state all the same.
            if grep -E ' (READ|READ_PLUS|WRITE)[: ]' /tmp/whole; then
                return 1
            fi
            ;;
        krb5i)
            equal 'kinds with an item apart' "$(cat /tmp/apart)" ''
            for _version in NFSv4.2 NFSv4.1 NFSv3; do
                grep -E " $_version (.* )?WRITE[: ].*whole \(protected by RPCSEC_GSS\), [0-9]{5,} bytes" /tmp/whole
                grep -E " $_version (.* )?READ(_PLUS)?[: ].*; longest reply [0-9]{5,} bytes with its header" /tmp/whole
            done
            ;;
        krb5p)
            # Which operations a COMPOUND has cannot be seen.
            equal 'kinds with an item apart' "$(cat /tmp/apart)" ''
            grep -E ' program 100003 v4 procedure 1: .*; longest reply [0-9]{5,} bytes with its header' /tmp/whole
            grep -E ' NFSv3 WRITE: whole \(protected by RPCSEC_GSS\), [0-9]{5,} bytes' /tmp/whole
            grep -E ' NFSv3 READ: .*; longest reply [0-9]{5,} bytes with its header' /tmp/whole
            ;;
        esac
    done
}
