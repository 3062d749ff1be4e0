#!/bin/sh
# shellcheck shell=sh
#: about    Linux's client through gateways to Linux's server, NFS 3 to 4.2, which has the outcome of the server alone
#: timeout  2400
#: copy     exercise
#: copy     rpcrdma

# Each scenario works on a mount of knfsd's /export at /mnt and prints what came of it. It is run on knfsd directly,
# over TCP, and through gateways, and has to print the same.

lane() {
    need lab/modules 60 load_modules verbs nfs disk
    need lab/wire 20 wire_up
    need lab/nfsd 60 disk_exported
    for version in 4.2 4.1 4.0 3; do
        for scenario in $(scenarios $version); do
            need lab/directly/nfs$version/$scenario 180 directly $version $scenario
        done
    done
    # Stock clients over TCP, with both forms of version 2 between the gateways.
    through iwarp-2 4.2 4.1 4.0 3
    through iwarp-2wg 4.2
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        through $device-2wg 4.2
        # Linux's own version 1 to one gateway, which leads to TCP.
        through $device-1 4.2
        need lab/$device/down 30 verbs_down $device
    done
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

# through SETUP VERSION...: DEVICE-RPCRDMA, where 1 is Linux's client on the only gateway.
through() {
    _setup=$1
    shift
    need "$_setup/gateways" 60 gateways_up "$_setup"
    for _version in "$@"; do
        for _scenario in $(scenarios "$_version"); do
            check "$_setup/nfs$_version/$_scenario" 240 alike "$_setup" "$_version" "$_scenario"
        done
    done
    check "$_setup/gateways-end" 60 gateways_end "$_setup"
    for _version in "$@"; do
        need "$_setup/nfs$_version/gateways" 60 gateways_up "$_setup"
        check "$_setup/nfs$_version/restarts" 300 restarts "$_setup" "$_version"
        need "$_setup/nfs$_version/gateways-killed" 60 gateways_killed
    done
}

# disk_exported: knfsd exports a file system that has holes and extended attributes.
disk_exported() {
    truncate -s 256M /tmp/disk.img
    mke2fs -q -F -t ext4 -b 4096 -O ^has_journal /tmp/disk.img
    mount -o loop /tmp/disk.img /export
    rmdir /export/lost+found
    # nfsdcld remembers which clients may reclaim their state after a restart.
    mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
    nfsdcld
    # While lockd is in its grace period, knfsd gives no delegations; by default that is 50 s.
    echo 5 >/proc/sys/fs/nfs/nlm_grace_period
    nfsd_up
}

# gateways_end SETUP: each answered all calls, and the first had the version that it should have and placed data.
gateways_end() {
    for _which in near far; do
        [ -e /run/$_which.pid ] || continue
        gateway_ends $_which TERM
        rm /run/$_which.pid
        cat "$OUT/$_which.log"
        grep 'passed on .* failed=0 misplaced=0 ' "$OUT/$_which.log"
    done
    case $1 in
    *-1) return ;;
    *-2wg) grep 'decision=version 2wg' "$OUT/near.log" ;;
    *-2) grep 'decision=version 2:' "$OUT/near.log" ;;
    esac
    grep -E '^explained: .* WRITE.*item [0-9]+ placed' "$OUT/near.log"
    # READ_PLUS, which Linux's client uses in 4.2, has no data that may be apart; READ has.
    if grep -E '^explained: .* READ[ :].* and 0 apart$' "$OUT/near.log"; then
        return 1
    fi
}

# mounted SETUP|direct VERSION
mounted() {
    _options=vers=$2,hard
    case $1 in
    direct) _options=$_options,proto=tcp,port=$NFS_PORT _server=127.0.0.1 ;;
    *-1) _options=$_options,proto=rdma,port=$FAR_PORT _server=$FAR ;;
    *) _options=$_options,proto=tcp,port=$NEAR_PORT _server=127.0.0.1 ;;
    esac
    # MOUNT passes by the gateways.
    [ "$2" != 3 ] || _options=$_options,nolock,mountproto=tcp,mountport=$MOUNT_PORT,mountaddr=$FAR
    mount -t nfs -o "$_options" $_server:/export /mnt
    grep " /mnt nfs.*vers=$2," /proc/mounts
}

# outcome SCENARIO FILE: into it. In a shell of its own, in which the first command that fails ends the scenario.
outcome() {
    if ! sh "$LAB/guest/step.sh" "$1" >"$2"; then
        cat "$2"
        return 1
    fi
}

# directly VERSION SCENARIO
directly() {
    mounted direct "$1"
    trap 'umount --force --lazy /mnt' EXIT
    outcome "$2" "/tmp/outcome.$1.$2"
    cat "/tmp/outcome.$1.$2"
    trap - EXIT
    umount /mnt
}

# alike SETUP VERSION SCENARIO
alike() {
    mounted "$1" "$2"
    trap 'umount --force --lazy /mnt' EXIT
    outcome "$3" /tmp/outcome
    diff "/tmp/outcome.$2.$3" /tmp/outcome
    trap - EXIT
    umount /mnt
}

fsx() {
    exercise fsx /mnt/fsx --count 400 --seed 48 --direct
    sync /mnt/fsx
    exercise sum /export/fsx
    rm /mnt/fsx
}

writers() {
    exercise write /mnt/writers --size 500000
    exercise check-written /export/writers --size 500000
    echo 3 >/proc/sys/vm/drop_caches
    exercise check-written /mnt/writers --size 500000
    rm -r /mnt/writers
}

# rename OLD NEW: the system call alone.
rename() {
    perl -e 'rename($ARGV[0], $ARGV[1]) or die("$!\n")' "$1" "$2"
}

renames() {
    exercise names /mnt/names
    mkdir /mnt/r /mnt/r/empty /mnt/r/full /mnt/r/other
    for _name in a b c full/f; do
        echo $_name >/mnt/r/$_name
    done
    ln /mnt/r/c /mnt/r/link
    tried 'a file over a file' rename /mnt/r/a /mnt/r/b
    cat /mnt/r/b
    tried 'a file that is gone' rename /mnt/r/a /mnt/r/x
    tried 'a file over a folder' rename /mnt/r/b /mnt/r/empty
    tried 'a folder over a file' rename /mnt/r/empty /mnt/r/b
    tried 'a folder over an empty one' rename /mnt/r/other /mnt/r/empty
    tried 'a folder over a full one' rename /mnt/r/empty /mnt/r/full
    tried 'a folder into itself' rename /mnt/r/full /mnt/r/full/inner
    tried 'a name over another one of the same file' rename /mnt/r/link /mnt/r/c
    tried 'into another folder' rename /mnt/r/b /mnt/r/full/b
    tried 'a folder into another one' rename /mnt/r/empty /mnt/r/full/empty
    tried 'a name that is too long' rename /mnt/r/c "/mnt/r/$(head -c 256 /dev/zero | tr '\0' n)"
    # An open file stays when another one gets its name.
    exec 8</mnt/r/full/f
    tried 'over an open file' rename /mnt/r/c /mnt/r/full/f
    cat <&8
    exec 8<&-
    # The client removes the open file, which it had renamed to .nfs..., in the background.
    until_true 10 none_left
    (cd /mnt/r && find . | sort)
    (cd /export/r && find . -type f -printf '%p %s %n\n' | sort)
    rm -r /mnt/r
}

none_left() {
    [ -z "$(find /export/r -name '.nfs*')" ]
}

# A delegation that knfsd gives, by which the client has a file open, and that it recalls when somebody else opens it
# for writing. It recalls no file twice within half a minute, so each time it is another file.
delegation() {
    _file=delegated-$(now)
    echo before >"/export/$_file"
    # Only once the backchannel is known to work.
    until_true 30 is_delegated "$_file"
    echo 'given'
    _returned=$(returned)
    # The open waits until the recall is answered or the lease ends.
    timeout 60 sh -c "echo after >>/export/$_file"
    if grep "deleg.*$_file" /proc/fs/nfsd/clients/*/states; then
        return 1
    fi
    [ "$(returned)" -gt "$_returned" ]
    echo 'recalled, and returned'
    cat "/mnt/$_file"
}

is_delegated() {
    cat "/mnt/$1" >/dev/null
    grep -q "type: deleg.*$1" /proc/fs/nfsd/clients/*/states
}

# returned: how many delegations the client has returned.
returned() {
    awk '/ mounted on / { on = / mounted on \/mnt / } on && $1 == "DELEGRETURN:" { print $2; exit }' /proc/self/mountstats
}

# Holes, copies and extended attributes of 4.2, by its own operations.
OFFLOAD='
import os
source, copy, holes = "/mnt/source", "/mnt/copy", "/mnt/holes"
with open("/export/source", "wb") as file:
    file.write(os.urandom(3000001))
with open(source, "rb") as one, open(copy, "wb") as other:
    left = 3000001
    while left:
        copied = os.copy_file_range(one.fileno(), other.fileno(), left)
        assert copied > 0
        left -= copied
with open("/export/source", "rb") as one, open("/export/copy", "rb") as other:
    print("the copy is right:", one.read() == other.read())
with open(holes, "w+b") as file:
    at = file.fileno()
    os.pwrite(at, b"x" * 65536, 1 << 20)
    os.ftruncate(at, 4 << 20)
    os.fsync(at)
    print("data:", os.lseek(at, 0, os.SEEK_DATA), "hole:", os.lseek(at, 1 << 20, os.SEEK_HOLE))
    try:
        print(os.lseek(at, 2 << 20, os.SEEK_DATA))
    except OSError as error:
        print("no data after that:", error.strerror)
    os.posix_fallocate(at, 2 << 20, 1 << 20)
    print("blocks of 512 bytes, with room of 1 MiB:", os.stat("/export/holes").st_blocks >= 2048)
long = os.urandom(2000)
os.setxattr(copy, "user.short", b"text")
os.setxattr(copy, "user.long", long)
print(sorted(os.listxattr(copy)), os.getxattr(copy, "user.short"), os.getxattr(copy, "user.long") == long)
print("on the server:", os.getxattr("/export/copy", "user.long") == long)
# The cache of the client does not have this one.
os.setxattr("/export/source", "user.server", b"there")
print(os.getxattr(source, "user.server"))
os.removexattr(copy, "user.short")
try:
    os.setxattr(copy, "user.short", b"text", os.XATTR_REPLACE)
except OSError as error:
    print("replaced what is not there:", error.strerror)
print(sorted(os.listxattr("/export/copy")))
'

# The outcome includes the operations that the server has had: otherwise work of the client itself would not show.
offload() {
    operations >/tmp/before
    python3 -c "$OFFLOAD"
    # Makes a hole where there was room.
    fallocate --punch-hole --offset 1M --length 64K /mnt/holes
    rm /mnt/source /mnt/copy /mnt/holes
    operations >/tmp/after
    paste /tmp/before /tmp/after | awk '$4 > $2 { print $1 }'
}

# operations: how often knfsd has had those of 4.2 (RFC 7862, 15; RFC 8276, 8). Its line is: proc4ops, the number of
# counters, that of operation 0, and so on.
operations() {
    awk '$1 == "proc4ops" {
        split("ALLOCATE 59 COPY 60 DEALLOCATE 62 SEEK 69 GETXATTR 72 SETXATTR 73 LISTXATTRS 74 REMOVEXATTR 75", of)
        for (at = 1; at in of; at += 2) print of[at], $(of[at + 1] + 3)
    }' /proc/net/rpc/nfsd
}

# restarts SETUP VERSION: each gateway is killed under a writer, and then knfsd is restarted. What was promised is on
# its disk each time, and in the end everything is.
restarts() {
    mounted "$1" "$2"
    trap 'umount --force --lazy /mnt' EXIT
    mkdir /mnt/ledger
    rm -f /tmp/ledger
    exercise ledger /mnt/ledger /tmp/ledger --count 240 --pause 20 &
    _writer=$!
    _lines=0
    for _of in near far knfsd; do
        [ $_of = knfsd ] || [ -e /run/$_of.pid ] || continue
        _lines=$((_lines + 80))
        until_true 120 has_lines /tmp/ledger $_lines
        case $_of in
        knfsd) rpc.nfsd 0 ;;
        *) gateway_ends $_of KILL ;;
        esac
        exercise check-ledger /export/ledger /tmp/ledger
        case $_of in
        knfsd) rpc.nfsd --no-udp 4 ;;
        *) ${_of}_up "$1" ;;
        esac
        echo "$_of restarted at $(now)"
    done
    wait $_writer
    exercise check-ledger /export/ledger /tmp/ledger
    echo 3 >/proc/sys/vm/drop_caches
    exercise check-ledger /mnt/ledger /tmp/ledger
    rm -r /mnt/ledger
    trap - EXIT
    umount /mnt
}

# Expected in the log: the client says that a server does not respond, and is back; all of knfsd and of loop devices.
quiet_but_for_restarts() {
    kernel_log_clean -e 'nfs: server [^ ]+ (not responding, still trying|OK)$' -e 'NFSD: .*' -e 'nfsd: .*' \
        -e 'loop[0-9]+: .*'
}
