#!/bin/sh
# shellcheck shell=sh
#: about    git, fio and a compiler on Linux's mounts through gateways: the outcome of Linux's server alone
#: timeout  1800
#: copy     exercise
#: copy     rpcrdma

. "$LAB/guest/alike.sh"

lane() {
    need lab/modules 60 load_modules verbs nfs disk
    need lab/wire 20 wire_up
    need lab/repository 60 make_repository
    need lab/source 20 make_source
    need lab/nfsd 60 disk_exported
    all_directly 4.2 3
    # Both forms of version 2 between the gateways, and Linux's own version 1 to one that leads to TCP.
    through iwarp-2 4.2 3
    through iwarp-2wg 4.2
    need lab/siw 60 verbs_up siw
    through siw-1 4.2
    check kernel-log 10 kernel_log_clean -e 'NFSD: .*' -e 'loop[0-9]+: .*'
}

# scenarios VERSION
scenarios() {
    echo cloned compiled verified
}

# through SETUP VERSION...
through() {
    need "$1/gateways" 60 gateways_up "$1"
    all_through "$@"
    check "$1/gateways-end" 60 gateways_end "$1"
}

# cloned: what git has cloned is whole, and at the server the files are the repository's.
cloned() {
    git clone -q /tmp/repository /mnt/clone
    git -C /mnt/clone fsck --no-dangling
    equal 'changes in the clone' "$(git -C /mnt/clone status --short)" ''
    equal 'changes at the server' \
        "$(git --git-dir=/tmp/repository/.git --work-tree=/export/clone status --short)" ''
    git -C /mnt/clone log --format=%T
    rm -r /mnt/clone
}

# verified: fio finds what it has written.
verified() {
    _run='fio --directory=/mnt --size=1m --verify=crc32c --verify_fatal=1 --verify_state_save=0 --minimal --output=/tmp/fio'
    $_run --name=mixed --rw=randrw --bs=16k --numjobs=2
    $_run --name=direct --rw=randrw --bs=4k --direct=1
    rm /mnt/mixed* /mnt/direct*
}

# make_source: a program of 13 files and two headers with its makefile, in /tmp/source. Half of the files have a header
# that the other half does not.
make_source() {
    mkdir /tmp/source
    cat >/tmp/source/Makefile <<'END'
OBJECTS := $(patsubst %.c,%.o,$(sort $(wildcard part*.c)))
program: main.o libparts.a
	gcc -o $@ $^
libparts.a: $(OBJECTS)
	ar rcs $@ $^
%.o: %.c
	gcc -O1 -Wall -MMD -c -o $@ $<
-include *.d
END
    echo '#define STEP 2' >/tmp/source/even.h
    echo '#define STEP 3' >/tmp/source/odd.h
    for _part in 1 2 3 4 5 6 7 8 9 10 11 12; do
        _header=odd.h
        [ $((_part % 2)) = 1 ] || _header=even.h
        cat >/tmp/source/part$_part.c <<END
#include <stdlib.h>
#include <string.h>
#include "$_header"
unsigned part$_part(unsigned count)
{
    unsigned char *bytes = malloc(count);
    unsigned sum = 0;
    memset(bytes, $_part, count);
    for (unsigned at = 0; at < count; at += STEP)
        sum += bytes[at];
    free(bytes);
    return sum;
}
END
        echo "unsigned part$_part(unsigned);"
    done >/tmp/source/parts.h
    {
        printf '#include <stdio.h>\n#include "parts.h"\nint main(void)\n{\n    unsigned sum = 0;\n'
        for _part in 1 2 3 4 5 6 7 8 9 10 11 12; do
            echo "    sum += part$_part(6000);"
        done
        printf '    printf("%%u\\n", sum);\n    return 0;\n}\n'
    } >/tmp/source/main.c
}

# compiled: make finds nothing to do in a tree that it has just made, and when a header has changed, only what depends
# on it. The program says what it should, and at the server the objects are the same as without gateways.
compiled() {
    cp -r /tmp/source /mnt/source
    # A part adds its number once for each step in 6000. The even numbers add up to 42, the odd ones to 36.
    made 13 $((42 * 6000 / 2 + 36 * 6000 / 3))
    sed -i s/3/5/ /mnt/source/odd.h
    made 6 $((42 * 6000 / 2 + 36 * 6000 / 5))
    (cd /export/source && sha256sum -- *.o *.a program)
    rm -r /mnt/source
}

# made FILES SUM: so many are compiled, and the program prints the sum.
made() {
    make -C /mnt/source -j2 --no-print-directory >/tmp/made 2>&1 || {
        cat /tmp/made
        return 1
    }
    sort /tmp/made
    equal 'compiled' "$(grep -c ' -c ' /tmp/made)" "$1"
    make -q -C /mnt/source
    equal 'the program says' "$(/mnt/source/program)" "$2"
}
