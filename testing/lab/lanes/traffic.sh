#!/bin/sh
# shellcheck shell=sh
#: about    lint and ladders of Linux's own traffic, over rxe and siw, against what its client counts (mountstats)
#: timeout  900
#: copy     rpcrdma

# Bytes of each READ and WRITE, and their number: too many for a message, and one RDMA operation.
EACH=8192
CALLS=16
# Names in the folder: more than fit into an inline reply.
NAMES=300

lane() {
    need lab/modules 60 load_modules verbs nfs
    need lab/wire 20 wire_up
    need lab/nfsd 60 nfsd_up
    need lab/lease 30 no_renewals
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        for version in 3 4.2; do
            for work in write read list; do
                check $device/nfs$version/$work 120 counted $device $version $work
            done
        done
        need lab/$device/down 30 verbs_down $device
    done
    check kernel-log 10 kernel_log_clean
}

# A client that renews its lease between two counts would spoil them.
no_renewals() {
    rpc.nfsd 0
    echo 90 >/proc/fs/nfsd/nfsv4leasetime
    rpc.nfsd --no-udp 4
    echo "rdma $NFS_RDMA_PORT" >/proc/fs/nfsd/portlist
    echo Y >/proc/fs/nfsd/v4_end_grace
}

# Past the page cache, one call after the other.
do_write() {
    dd if=/tmp/source of=/mnt/file bs=$EACH count=$CALLS oflag=direct conv=notrunc
}

do_read() {
    dd if=/mnt/file of=/dev/null bs=$EACH count=$CALLS iflag=direct
}

# One step, as `set -e` does not hold in it (captured).
do_list() {
    ls /mnt >/tmp/names && has_lines /tmp/names $NAMES
}

# counted DEVICE VERSION WORK: in a capture of the connection from its beginning, lint counts what the client has
# counted.
counted() {
    head -c $((EACH * CALLS)) /dev/urandom >/tmp/source
    cp /tmp/source /export/file
    for _name in $(seq $NAMES); do
        : >"/export/a-name-that-is-rather-long-$_name"
    done
    _attempt=1
    until captured "$1-nfs$2-$3" "$2" "$3"; do
        [ $_attempt -lt 3 ]
        _attempt=$((_attempt + 1))
    done

    echo "the client: calls $calls, segments of read chunks $reads, of write chunks $writes, of reply chunks $longs"
    equal calls "$(counts calls)" "$calls"
    # A new connection can lack registrations while the client encodes its first calls. It counts the segments of
    # each try, of which one for a long reply has up to three.
    _surplus=$((reads + writes + longs - $(counts registrations)))
    echo "encoded again: $again calls; segments of these: $_surplus"
    [ $_surplus -ge 0 ]
    [ $_surplus -le $((3 * again)) ]
    # A call with a read chunk waits once more, and no other does.
    equal 'round trips' "$(counts round_trips)" $((calls + reads))
    # Reply chunks are for the worst case, and can stay unused.
    _operations=$(counts operations)
    [ "$_operations" -ge $((reads + writes)) ]
    [ "$_operations" -le $((reads + writes + longs)) ]
    case $3 in
    read) equal 'segments of write chunks' "$writes" $CALLS ;;
    write) equal 'segments of read chunks' "$reads" $CALLS ;;
    list) [ "$longs" -ge 1 ] ;;
    esac
    # The client counts operations of NFSv4, and the capture has COMPOUNDs.
    case $2-$3 in
    3-read) same READ ;;
    3-write) same WRITE ;;
    3-list) same READDIRPLUS ;;
    esac
    rpcrdma ladder --count 1 --slowest "$OUT/traffic.pcap"
}

# captured NAME VERSION WORK: does the work under a capture, and leaves lint's report and the client's counts.
# It returns 1, to be repeated, only where these cannot be the same: tcpdump has lost packets, or siw the first message
# of the connection (README.md). As a condition of `until` it runs without `set -e`; a step that fails ends the check.
captured() {
    capture va traffic || exit 1
    nfs_mount "$2" "$FAR" /export /mnt "rsize=$EACH,wsize=$EACH" || exit 1
    # A mount that a failed step leaves behind would be counted by the next check.
    trap 'umount --lazy /mnt' EXIT
    "do_$3" || exit 1
    settled traffic || exit 1
    capture_end traffic || exit 1
    cp /proc/self/mountstats /tmp/mountstats || exit 1
    umount /mnt || exit 1
    trap - EXIT
    cp "$OUT/traffic.pcap" "$OUT/$1.pcap" || exit 1
    grep -A 200 'mounted on /mnt ' /tmp/mountstats >/tmp/counts || exit 1
    cp /tmp/counts "$OUT/$1.mountstats" || exit 1
    # Rules that Linux breaks would be news.
    _clean=0
    rpcrdma lint --json "$OUT/traffic.pcap" >/tmp/lint || _clean=$?
    if [ ! -s /tmp/lint ]; then
        echo "lint ended with status $_clean and without a report"
        exit 1
    fi
    # Of `xprt: rdma`, from its third field on: port, binds, connects, connect time, idle time, sends, receives,
    # unknown XIDs, requests in use, backlog, segments of read, write and reply chunks; and the 21st, calls that
    # could not be encoded at once.
    # shellcheck disable=SC2046  # words
    set -- $(awk '$1 == "xprt:" && $2 == "rdma" { print $8, $9, $13, $14, $15, $21; exit }' /tmp/counts)
    calls=$1 replies=$2 reads=$3 writes=$4 longs=$5 again=$6
    if [ "$(counts lost)" != 0 ] || [ "$calls" != "$replies" ]; then
        echo "not comparable: $(counts lost) gaps in the capture, $calls calls, $replies replies"
        return 1
    fi
    equal 'unanswered calls' "$(counts unanswered)" 0 || exit 1
    if [ $_clean != 0 ]; then
        rpcrdma lint "$OUT/traffic.pcap"
        exit 1
    fi
}

# counts NAME: a number of lint's report.
counts() {
    # What other transfer modes would have cost comes before the counts of this one.
    awk -v name="\"$1\":" '$1 == name { found = $2 + 0 } END { print found }' /tmp/lint
}

# same PROCEDURE: the capture has as many calls of it as the client has counted.
same() {
    rpcrdma ladder --count 100 --procedure "$1" "$OUT/traffic.pcap" >/tmp/ladders
    _drawn=$(grep -oE 'XID 0x[0-9a-f]{8}' /tmp/ladders | sort -u | wc -l)
    equal "$1" "$_drawn" "$(awk -v name="$1:" '$1 == name { print $2; exit }' /tmp/counts)"
}
