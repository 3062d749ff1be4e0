#!/bin/sh
# shellcheck shell=sh
#: about    this project's server next to Linux's, through Linux's client, on the same directories
#: timeout  900
#: copy     rpcrdma

# Each scenario works through a mount of $MNT and prints what came of it. It is run on Linux's server
# and on ours, over the same file system made anew, and has to print the same.
SERVED=/disk/served # the directory that is exported
MNT=/mnt
USERS='1000 1001 1002' # the owner, a member of its group 2000, a stranger

lane() {
    need lab/modules 60 load_modules nfs disk
    need lab/network 20 ip link set lo up
    check authority/acl 120 alike ext4 access_lists
    check authority/modes 120 alike ext4 modes_of_open_files
    check authority/owners 120 alike ext4 owners_and_set_id
    check authority/immutable 120 alike ext4 immutable_files
    check authority/reserve 180 alike ext4 reserved_blocks
    check authority/quota 180 alike ext4 quotas
    check identity/flock 120 alike ext4 locks_of_two_names
    check identity/depth 180 alike ext4 deep_files
    check identity/other-key 120 alike ext4 another_key
    check identity/gone 240 gone_files
    check identity/overlay 120 alike overlay removed_and_new
    check identity/ext4 120 alike ext4 removed_and_new
    check kernel-log 10 kernel_log_clean -e 'NFSD: .*' -e 'nfsd: .*' -e 'loop[0-9]+: .*'
}

# alike FILE-SYSTEM SCENARIO: both servers have the same outcome.
alike() {
    for _server in knfsd ours; do
        made "$1"
        served_by $_server
        "$2" $_server >"/tmp/outcome.$_server" 2>&1 || echo "status $?" >>"/tmp/outcome.$_server"
        gone $_server
    done
    cat /tmp/outcome.knfsd
    diff /tmp/outcome.knfsd /tmp/outcome.ours
}

# made ext4|overlay: a new file system at /disk.
made() {
    mkdir -p /disk
    truncate -s 64M /tmp/disk.img
    mke2fs -q -F -t ext4 -m 20 -O quota -E quotatype=usrquota /tmp/disk.img
    mount -o loop /tmp/disk.img /disk
    mkdir $SERVED
    if [ "$1" = overlay ]; then
        modprobe overlay
        mkdir /disk/lower /disk/upper /disk/aside
        # What Linux's server needs of an overlay; ours does without.
        mount -t overlay -o index=on,nfs_export=on,lowerdir=/disk/lower,upperdir=/disk/upper,workdir=/disk/aside \
            overlay $SERVED
    fi
    chmod 1777 $SERVED
}

# served_by knfsd|ours: exported and mounted over TCP.
served_by() {
    server_begins "$1"
    case $1 in
    knfsd) _ports=port=2049,mountport=$MOUNT_PORT _path=$SERVED ;;
    ours) _ports=port=$((OUR_PORT + 1)),mountport=$((OUR_PORT + 1)) _path=/served ;;
    esac
    mount -t nfs -o "vers=3,proto=tcp,mountproto=tcp,nolock,hard,noac,$_ports" 127.0.0.1:$_path $MNT
}

server_begins() {
    case $1 in
    knfsd)
        # Its daemons go on; a new rpcbind beside what the kernel remembers of the last one is deaf at times.
        if pgrep rpc.mountd >/dev/null; then
            rpc.nfsd --no-udp 4
        else
            nfsd_up >/dev/null
        fi
        echo "$SERVED *(rw,no_root_squash,no_subtree_check,insecure,sync,fsid=${FSID:-7})" >/etc/exports
        exportfs -ra
        ;;
    ours)
        # Without the scenario's open file, which is on the server's own mount.
        rpcrdma serve --port $OUR_PORT --tcp-port $((OUR_PORT + 1)) --handle-key "${KEY:-/tmp/key}" \
            --export served=$SERVED:no_root_squash >"$OUT/serve.log" 2>&1 </dev/null 8>&- &
        echo $! >/run/serve.pid
        until_true 20 grep 'listening tcp' "$OUT/serve.log"
        ;;
    esac
}

server_dies() {
    case $1 in
    knfsd)
        rpc.nfsd 0
        exportfs -ua
        exportfs -f
        ;;
    ours) serve_end KILL ;;
    esac
}

# restarted SERVER: nothing that it knew is left.
restarted() {
    server_dies "$1"
    echo 3 >/proc/sys/vm/drop_caches
    server_begins "$1"
}

# gone SERVER: everything that `made` and `served_by` did is undone.
gone() {
    umount --force --lazy $MNT
    server_dies "$1"
    until_true 20 umount --recursive /disk
}

# as USER COMMAND...: of group USER + 1000; 1001 is in 1000's group as well.
as() {
    _user=$1
    shift
    _groups=--clear-groups
    [ "$_user" != 1001 ] || _groups=--groups=2000
    setpriv --reuid "$_user" --regid $((_user + 1000)) $_groups "$@"
}

access_lists() {
    for _name in denied admitted; do
        echo content >$SERVED/$_name
        chown 1000:2000 $SERVED/$_name
        chmod 660 $SERVED/$_name
    done
    # A member of the group is refused, a stranger admitted.
    setfacl -m g::---,m::rw-,o::--- $SERVED/denied
    setfacl -m g::---,u:1002:rw-,m::rw-,o::--- $SERVED/admitted
    mkdir -m 770 $SERVED/folder
    chown 1000:2000 $SERVED/folder
    setfacl -m g::---,u:1002:rwx,m::rwx $SERVED/folder
    for _of in $USERS; do
        for _name in denied admitted; do
            tried "$_of reads $_name" as "$_of" cat $MNT/$_name
            tried "$_of writes $_name" as "$_of" sh -c "echo more >>$MNT/$_name"
            tried "$_of may read $_name" as "$_of" test -r $MNT/$_name
        done
        tried "$_of lists folder" as "$_of" ls $MNT/folder
        tried "$_of makes an entry" as "$_of" mkdir "$MNT/folder/$_of"
    done
    setfacl -d -m u:1002:r-x $SERVED/folder
    tried 'an entry where there is a default list' as 1000 sh -c "umask 0; mkdir $MNT/folder/new; : >$MNT/folder/file"
    getfacl --numeric --omit-header $SERVED/folder/new $SERVED/folder/file 2>&1
}

modes_of_open_files() {
    tried 'a file is written that is made read-only' as 1000 sh -c "umask 222; echo text >$MNT/object"
    stat -c '%a %u %g' $SERVED/object
    tried 'what may be executed is read' as 1000 sh -c "install -m 711 /bin/true $MNT/program"
    tried 'by a stranger' as 1002 $MNT/program
    tried 'but not by cat' as 1002 cat $MNT/program
    tried 'a file that its owner may not read' as 1000 sh -c ": >$MNT/none; chmod 0 $MNT/none; cat $MNT/none"
    tried 'written by a descriptor that is open already' as 1000 \
        sh -c "exec 8>$MNT/later; chmod 0 $MNT/later; echo text >&8; sync $MNT/later"
    stat -c '%s' $SERVED/later
}

owners_and_set_id() {
    tried 'a file with set-id bits' as 1000 sh -c ": >$MNT/f; chmod 6755 $MNT/f"
    for _of in 1001 1002; do
        tried "$_of names the present owner" as $_of chown 1000 $MNT/f
        tried "$_of names the present group" as $_of chgrp 2000 $MNT/f
        tried "$_of changes the mode" as $_of chmod 777 $MNT/f
        tried "$_of cuts it" as $_of truncate -s 0 $MNT/f
        stat -c '%a %u %g %s' $SERVED/f
    done
    tried 'the owner gives it away' as 1000 chown 1001 $MNT/f
    tried 'the owner gives it to a foreign group' as 1000 chgrp 5 $MNT/f
    stat -c '%a %u %g' $SERVED/f
    chmod 6777 $SERVED/f
    tried 'a stranger writes' as 1002 sh -c "echo x >>$MNT/f"
    stat -c '%a %u %g' $SERVED/f
    tried 'root gives it away' chown 1002:5 $MNT/f
    stat -c '%a %u %g' $SERVED/f
    tried 'a link to another ones file' as 1001 ln $MNT/f $MNT/link
    tried 'a file of another one is removed' as 1001 rm -f $MNT/f
    tried 'a device' as 1000 mknod $MNT/device c 1 3
    tried 'a device of root' mknod $MNT/device c 1 3
    stat -c '%F %t %T' $SERVED/device
}

immutable_files() {
    : >$SERVED/still
    : >$SERVED/log
    chattr +i $SERVED/still
    chattr +a $SERVED/log
    for _name in still log; do
        tried "root writes to $_name" sh -c "echo x >>$MNT/$_name"
        tried "root removes $_name" rm -f $MNT/$_name
        tried "root links to $_name" ln $MNT/$_name $MNT/other-$_name
        tried "root changes the mode of $_name" chmod 777 $MNT/$_name
        tried "root cuts $_name" truncate -s 0 $MNT/$_name
    done
    chattr -i $SERVED/still
    chattr -a $SERVED/log
}

# blocks: free ones, and free ones for everybody.
left() {
    sync
    stat -f -c '%f %a' /disk | {
        read -r _free _available
        [ "$_available" -le 8 ] && echo 'everything is taken' || echo 'there is room'
        [ "$_free" -gt 1000 ] && echo 'but for the reserve' || echo 'and the reserve, too'
    }
}

reserved_blocks() {
    tried 'a user fills it' as 1000 dd if=/dev/zero of=$MNT/large bs=64k count=2000 conv=fsync status=none
    left
    tried 'root goes on' dd if=/dev/zero of=$MNT/more bs=64k count=100 conv=fsync status=none
    left
}

quotas() {
    quotaon /disk 2>/dev/null || true
    setquota -u 1000 0 1000 0 20 /disk
    tried 'a user writes more than its quota' as 1000 \
        dd if=/dev/zero of=$MNT/large bs=64k count=40 conv=fsync status=none
    [ "$(stat -c %s $SERVED/large)" -lt 1100000 ] && echo 'and got as far as that'
    tried 'a user makes more files than its quota' as 1000 \
        sh -c "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do : >$MNT/\$n || exit 1; done"
    tried 'another user writes' as 1001 dd if=/dev/zero of=$MNT/other bs=64k count=40 conv=fsync status=none
    tried 'root writes to the file' dd if=/dev/zero of=$MNT/large bs=64k count=40 conv=fsync status=none
}

# One file with two names has one handle, whichever is looked up first after a restart: otherwise both
# of two locks are granted.
locks_of_two_names() {
    mkdir $SERVED/a $SERVED/b
    echo content >$SERVED/a/f
    ln $SERVED/a/f $SERVED/b/f
    exec 8<>$MNT/a/f
    tried 'the first lock' flock --exclusive --nonblock 8
    restarted "$1"
    tried 'the second name is seen first' cat $MNT/b/f
    flock --exclusive --nonblock $MNT/b/f true && echo 'both locks are granted' || echo 'one lock is granted'
    equal 'inode numbers' "$(stat -c %i $MNT/b/f)" "$(stat -c %i $MNT/a/f)" && echo 'one inode'
    mv $SERVED/a/f $SERVED/b/moved
    restarted "$1"
    tried 'after a move on the server' cat $MNT/b/moved
    cat <&8
    exec 8>&-
}

deep_files() {
    _path=.
    for _n in $(seq 200); do
        _path=$_path/$_n
    done
    mkdir -p "$SERVED/$_path"
    echo deep >"$SERVED/$_path/f"
    exec 8<"$MNT/$_path/f"
    restarted "$1"
    cat <&8
    tried 'by its path' cat "$MNT/$_path/f"
    exec 8>&-
}

# A handle of a server that was set up anew is stale, and not a "bad" one, which programs cannot read.
another_key() {
    echo content >$SERVED/f
    exec 8<$MNT/f
    FSID=8 KEY=/tmp/other-key
    restarted "$1"
    tried 'the open file' cat <&8
    cat <&8 2>&1 | sed 's/.*: //'
    FSID=7 KEY=/tmp/key
    exec 8>&-
}

# Opens the files in a folder, and when /tmp/go is there reads each, and says how many of the handles
# were stale and in how many milliseconds.
HOLDER='
    use Errno qw(ESTALE);
    use Time::HiRes qw(time sleep);
    my @files = map { open(my $file, "<", $_) or die "$_: $!"; $file } glob("$ARGV[0]/*");
    open(my $ready, ">", "/tmp/ready") or die $!;
    sleep(0.02) until -e "/tmp/go";
    my ($begun, $stale) = (time, 0);
    for my $file (@files) {
        $stale++ unless defined(sysread($file, my $data, 1)) or $! != ESTALE;
    }
    printf("%d %d\n", $stale, (time - $begun) * 1000);
'

# gone_files: how long handles of what is gone take to be stale, after a restart.
gone_files() {
    for _server in knfsd ours; do
        made ext4
        served_by $_server
        mkdir $SERVED/gone
        for _n in $(seq 20); do
            : >"$SERVED/gone/$_n"
        done
        rm -f /tmp/go /tmp/ready
        perl -e "$HOLDER" $MNT/gone >/tmp/stale 2>&1 &
        _holder=$!
        until_true 20 test -e /tmp/ready
        rm -r $SERVED/gone
        restarted $_server
        # The client is connected again after this.
        stat $MNT >/dev/null
        : >/tmp/go
        until_true 150 ended $_holder
        read -r _count _took </tmp/stale
        echo "$_server: $_count stale handles in $_took ms"
        equal 'stale handles' "$_count" 20
        echo "$_took" >/tmp/took.$_server
        gone $_server
    done
    # A tenth of a second for each.
    [ "$(cat /tmp/took.ours)" -le $(($(cat /tmp/took.knfsd) + 20 * 100)) ]
}

# removed_and_new: inode numbers are used again; the handle of a removed file is none of the next.
removed_and_new() {
    for _n in $(seq 20); do
        echo "old $_n" >$SERVED/f
        exec 8<$MNT/f
        rm $SERVED/f
        echo "new $_n" >$SERVED/f
        cat <&8 2>&1 | sed 's/.*: //'
        exec 8>&-
        rm $SERVED/f
    done | sort | uniq -c
}
