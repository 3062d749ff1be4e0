#!/bin/sh
# Mounts the root file system and hands over to its first process.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
modprobe virtio_pci
modprobe virtio_blk
modprobe crc32c_generic
modprobe ext4
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
mount -t ext4 /dev/vda /newroot
for folder in proc sys dev; do
    mount -o move /$folder /newroot/$folder
done
exec switch_root /newroot /init
