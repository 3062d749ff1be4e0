#!/bin/sh
# shellcheck shell=sh
#: about    programs on a mount of this project's, over rxe and then siw
#: timeout  2400
#: copy     exercise
#: copy     pjdfstest
#: copy     rpcrdma

lane() {
    need lab/modules 60 load_modules verbs nfs fuse
    need lab/wire 20 wire_up
    need lab/nfsd 60 nfsd_up
    need lab/repository 60 make_repository
    for device in rxe siw; do
        need lab/$device 60 verbs_up $device
        # The same suite over version 1 and both forms of version 2.
        for options in rpcrdma=1 rpcrdma=2 rpcrdma=2wg,features=ddp+cont; do
            on_mount "$device/$(echo $options | tr ',=' '--')" $options
        done
        check $device/calls-of-git-status 300 calls_of_git_status
        check $device/kernel-log 10 kernel_log_clean
        need lab/$device/down 60 verbs_down $device
    done
}

# on_mount NAME OPTIONS: the suite on a mount with these options.
on_mount() {
    need "$1/serve" 40 serve_up -v
    need "$1/mount" 60 mount_fuse "$OUR_URL" "port=$OUR_PORT,$2"
    check "$1/fsx" 180 exercise fsx /mnt/fsx --count 1000
    check "$1/fsx-direct" 180 exercise fsx /mnt/direct --count 500 --direct
    check "$1/names" 120 exercise names /mnt/names
    check "$1/writers" 120 eight_writers
    check "$1/fio" 240 verified
    check "$1/sqlite3" 180 databases
    check "$1/git" 240 cloned
    check "$1/pjdfstest" 600 posix
    check "$1/unmount" 60 unmount_fuse
    check "$1/server-ends" 60 serve_end TERM
}

# mount_fuse URL OPTIONS
mount_fuse() {
    rpcrdma mount -o "device=verbs,allow_other,$2" --log "$OUT/mount.log" "$1" /mnt
    grep ' /mnt fuse' /proc/mounts
    rdma resource show srq
}

unmount_fuse() {
    rpcrdma umount /mnt
    cat "$OUT/mount.log"
    rm -r /tmp/served
}

eight_writers() {
    exercise write /mnt/writers
    exercise check-written /tmp/served/writers
    exercise check-written /mnt/writers
}

# Data that fio knows again: written in order, in any order, beside reads, past the page cache and in
# mappings.
verified() {
    _run='fio --directory=/mnt --size=2m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --minimal --output=/tmp/fio'
    $_run --name=sequential --rw=write --bs=128k --end_fsync=1
    $_run --name=random --rw=randwrite --bs=4k --fsync=64
    $_run --name=mixed --rw=randrw --bs=16k --numjobs=2
    $_run --name=direct --rw=randrw --bs=4k --direct=1
    $_run --name=mapped --rw=randrw --bs=4k --ioengine=mmap
}

databases() {
    for _mode in delete truncate persist wal; do
        sqlite3 /mnt/db "pragma journal_mode=$_mode; create table t(a integer primary key, b blob)"
        for _ in 1 2; do
            sqlite3 /mnt/db "begin; insert into t(b) with recursive c(x) as (select 1 union all
                select x + 1 from c where x < 300) select randomblob(300) from c;
                update t set b = randomblob(500) where a % 7 = 0; delete from t where a % 11 = 0; commit"
        done
        equal "integrity with $_mode" "$(sqlite3 /mnt/db 'pragma integrity_check')" ok
        rm -f /mnt/db*
    done
}

cloned() {
    git clone -q /tmp/repository /mnt/clone
    git -C /mnt/clone fsck --no-dangling
    equal 'changes in the clone' "$(git -C /mnt/clone status --short)" ''
    # Compares the served files with the original, without the mount and without the clone's index. `diff -r` would
    # report the empty directories and pipes of the original, which git does not keep.
    equal 'changes at the server' \
        "$(git --git-dir=/tmp/repository/.git --work-tree=/tmp/served/clone status --short)" ''
}

# posix: pjdfstest, of which only utimensat::y2038 may fail: NFS version 3 has no times after 2106.
posix() {
    printf '[features.%s]\n' utimensat utime_now rename_ctime >/tmp/pjdfstest.toml
    printf '%s\n' '[settings]' 'naptime = 0.05' 'allow_remount = false' '[dummy_auth]' \
        'entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]' >>/tmp/pjdfstest.toml
    mkdir /mnt/pjd
    pjdfstest -c /tmp/pjdfstest.toml -p /mnt/pjd >/tmp/pjdfstest.out 2>&1 || true
    grep '^Summary' /tmp/pjdfstest.out
    if grep -E ' FAILED$' /tmp/pjdfstest.out | grep -v '^utimensat::y2038 '; then
        return 1
    fi
}

# nfs_calls: the calls that Linux's server has answered, without NULL. Its line is: proc3, the number of
# counters, NULL's and so on.
nfs_calls() {
    awk '$1 == "proc3" { for (at = 4; at <= NF; at++) sum += $at; print sum + 0 }' /proc/net/rpc/nfsd
}

# calls_of_git_status: `git status` in a clone whose cache is warm takes no more calls on our mount than
# on Linux's, of the same server and with the same options.
calls_of_git_status() {
    rm -rf /export/clone
    git clone -q /tmp/repository /export/clone
    nfs_mount 3 $FAR /export /mnt actimeo=60
    status_counted
    _kernel=$_calls
    umount /mnt
    mount_fuse nfs://$FAR:$NFS_RDMA_PORT/export \
        port=$NFS_RDMA_PORT,mountproto=tcp,mountport=$MOUNT_PORT,actimeo=60
    status_counted
    rpcrdma umount /mnt
    echo "calls of git status: Linux's client $_kernel, rpcrdma mount $_calls"
    [ "$_calls" -le "$_kernel" ]
}

# status_counted: runs `git status` three times, and leaves the NFS calls of the third in $_calls. The first
# writes git's index, which the pause makes more than a second old; the second fills the caches.
status_counted() {
    git -C /mnt/clone status --short
    sleep 3
    git -C /mnt/clone status --short
    _before=$(nfs_calls)
    git -C /mnt/clone status --short
    _calls=$(($(nfs_calls) - _before))
}
