#!/bin/sh
# The guest's first process: mounts, the network to the host, the lane; then the machine ends.
# Says on the lane's serial line when user space is reached, and how the lane ended.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
line=/dev/ttyS1

off() {
    sync
    busybox reboot -f
}

mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
# What the kernel NFS server exports: memory, so that no disk's speed shows.
mount -t tmpfs -o mode=755 tmpfs /export
modprobe 9pnet_virtio
# Without the host's folder there is no lane: the host boots this machine again.
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 lab /lab || off
ip link set lo up
modprobe virtio_net
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
hostname guest
ulimit -l unlimited

stty -F $line -opost
read -r up _ </proc/uptime
echo "::lab up $up" >$line
cd /root || off
setsid --ctty --wait sh /lab/guest/run.sh <$line >$line 2>&1
status=$?
dmesg >/lab/out/dmesg.txt
read -r up _ </proc/uptime
echo "::lab end $status $up" >$line
# The line is slow; what is in it when the machine ends is lost.
stty -F $line -opost
sleep 0.2
umount /lab
off
