# Scenarios (scenarios.sh, or functions of the lane) on a mount of knfsd's /export at /mnt, which print what came of
# them. They run on knfsd directly, over TCP, and through gateways, and have to print the same. The lane's function
# `scenarios MOUNT` says which there are for a kind of mount (`mounted`).
# shellcheck shell=sh

# all_directly MOUNT...
all_directly() {
    for _mount in "$@"; do
        for _scenario in $(scenarios "$_mount"); do
            need "lab/directly/nfs$_mount/$_scenario" 180 directly "$_mount" "$_scenario"
        done
    done
}

# all_through SETUP MOUNT...: by gateways that are running.
all_through() {
    _setup=$1
    shift
    for _mount in "$@"; do
        for _scenario in $(scenarios "$_mount"); do
            check "$_setup/nfs$_mount/$_scenario" 240 alike "$_setup" "$_mount" "$_scenario"
        done
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

# outcome SCENARIO FILE: into it. In a shell of its own, in which the first command that fails ends the scenario.
outcome() {
    if ! sh "$LAB/guest/step.sh" "$1" >"$2"; then
        cat "$2"
        return 1
    fi
}

# directly MOUNT SCENARIO
directly() {
    mounted direct "$1"
    trap 'umount --force --lazy /mnt' EXIT
    outcome "$2" "/tmp/outcome.$1.$2"
    cat "/tmp/outcome.$1.$2"
    trap - EXIT
    umount /mnt
}

# alike SETUP MOUNT SCENARIO
alike() {
    mounted "$1" "$2"
    trap 'umount --force --lazy /mnt' EXIT
    outcome "$3" /tmp/outcome
    diff "/tmp/outcome.$2.$3" /tmp/outcome
    trap - EXIT
    umount /mnt
}
