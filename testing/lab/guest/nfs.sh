# Linux's NFS server and client over RDMA.
# shellcheck shell=sh

NFS_RDMA_PORT=20049 # IANA's nfsrdma
MOUNT_PORT=20048    # where MOUNT is registered, too

# nfsd_up: exports /export, on TCP and on every verbs device that there is or will be.
nfsd_up() {
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mountpoint -q /var/lib/nfs/rpc_pipefs ||
        mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
    echo '/export *(rw,no_root_squash,no_subtree_check,insecure,sync,fsid=1)' >/etc/exports
    mkdir -p /run/rpcbind /run/sendsigs.omit.d
    rpcbind -w
    exportfs -ra
    # No client of an earlier boot comes back.
    echo 10 >/proc/fs/nfsd/nfsv4leasetime
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd --no-udp 4
    echo "rdma $NFS_RDMA_PORT" >/proc/fs/nfsd/portlist
    rpc.mountd --port $MOUNT_PORT
    # With nfsdcld the server knows that it has no client to wait for.
    pgrep nfsdcld >/dev/null || echo Y >/proc/fs/nfsd/v4_end_grace
    cat /proc/fs/nfsd/portlist /proc/fs/nfsd/versions
}

# nfs_mount VERSION SERVER PATH FOLDER [OPTIONS]: over RDMA. NFSv3 asks MOUNT over TCP; its locks
# would need statd.
nfs_mount() {
    _options=vers=$1,proto=rdma,port=$NFS_RDMA_PORT${5:+,$5}
    [ "$1" != 3 ] || _options=$_options,nolock,mountproto=tcp
    mount -t nfs -o "$_options" "$2:$3" "$4"
    grep " $4 nfs.*proto=rdma" /proc/mounts
}

# nfs_round VERSION: mounts /export from the wire's far end, works on it, compares checksums with
# the server's own files, and leaves nothing behind.
nfs_round() {
    nfs_mount "$1" "$FAR" /export /mnt
    trap 'umount --lazy /mnt' EXIT
    # More than a chunk, and not a multiple of anything.
    head -c 4000037 /dev/urandom >/tmp/source
    cp /tmp/source /mnt/large
    sync /mnt/large
    equal 'large file on the server' "$(sum /export/large)" "$(sum /tmp/source)"
    # The client has the pages; it is to ask for them again.
    echo 3 >/proc/sys/vm/drop_caches
    equal 'large file as read' "$(sum /mnt/large)" "$(sum /tmp/source)"
    mkdir /mnt/folder
    for _size in 0 1 3 1000 4096 70001; do
        head -c $_size /tmp/source >/mnt/folder/$_size
        equal "file of $_size" "$(sum /export/folder/$_size)" "$(sum /mnt/folder/$_size)"
    done
    equal 'names' "$(ls /mnt/folder)" "$(ls /export/folder)"
    mv /mnt/folder/3 /mnt/three
    ln -s three /mnt/link
    equal 'through a link' "$(sum /mnt/link)" "$(sum /export/three)"
    truncate -s 2 /mnt/three
    equal 'truncated size' "$(stat -c %s /export/three)" 2
    rm -r /mnt/large /mnt/folder /mnt/three /mnt/link
    equal 'left on the server' "$(ls -A /export)" ''
    trap - EXIT
    umount /mnt
}
