# Work on a mount of knfsd's /export at /mnt. Each function prints what came of it, which is to be the same whatever is
# between client and server (alike.sh).
# shellcheck shell=sh

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
