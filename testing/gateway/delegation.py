#!/usr/bin/env python3
"""NFSv4.1 COMPOUNDs with data, and a delegation that is recalled over the backchannel.

    delegation.py HOST:PORT /EXPORT FILE

The file is in the export's root and gets other contents. Fails where the server gives no delegation of it.
"""

import os
import struct
import sys
import time

import nfs41
from nfs41 import Client, Wrong, opaque


def write(state, offset, data):
    """A WRITE that is stable when it is answered (FILE_SYNC4)."""
    return nfs41.WRITE, state + struct.pack(">QI", offset, 2) + opaque(data)


def read(state, offset, length):
    """A READ."""
    return nfs41.READ, state + struct.pack(">QI", offset, length)


def written(reply, length):
    """Takes the result of a WRITE of so many bytes."""
    reply.result(nfs41.WRITE)
    count = reply.u32()
    if count != length:
        raise Wrong(f"{count} bytes were written, and should be {length}")
    reply.fixed(12)


def same(reply, expected):
    """Takes the result of a READ, which must have these bytes."""
    reply.result(nfs41.READ)
    reply.u32()
    if reply.opaque() != expected:
        raise Wrong("READ returns other bytes than were written")


def close(client, file, state):
    """Closes a file."""
    reply = client.compound([(nfs41.PUTFH, opaque(file)), (nfs41.CLOSE, struct.pack(">I", 0) + state)])
    reply.result(nfs41.PUTFH)
    reply.result(nfs41.CLOSE)


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    address, name = (host, int(port)), sys.argv[3].encode()
    first, second = Client(address, b"first" + os.urandom(8)), Client(address, b"second" + os.urandom(8))
    directory = first.lookup(sys.argv[2].encode())
    data = os.urandom(100_000)

    # Items of each size class, several in one COMPOUND.
    both = nfs41.ACCESS_READ | nfs41.ACCESS_WRITE
    file, state, _ = first.open(directory, name, both | nfs41.WANT_NO_DELEGATION, create=True)
    put = (nfs41.PUTFH, opaque(file))
    reply = first.compound([put, write(state, 0, data), read(state, 0, len(data))])
    reply.result(nfs41.PUTFH)
    written(reply, len(data))
    same(reply, data)
    reply = first.compound([put, write(state, 0, b"x"), write(state, 1, data[:8192]), read(state, 0, 5000),
                            read(state, 5000, 60_000)])
    data = b"x" + data[:8192] + data[8193:]
    reply.result(nfs41.PUTFH)
    written(reply, 1)
    written(reply, 8192)
    same(reply, data[:5000])
    same(reply, data[5000:65_000])
    close(first, file, state)

    # The file is closed, so that no state stands in the way of a delegation.
    opened = first.open(directory, name, nfs41.ACCESS_READ | nfs41.WANT_READ_DELEGATION)
    if not opened or not opened[2]:
        raise Wrong("the server gives no delegation")
    file, state, delegation = opened
    reply = first.compound([put, read(delegation, 0, len(data))])
    reply.result(nfs41.PUTFH)
    same(reply, data)

    def give_back():
        """Returns the delegation if it has been recalled."""
        first.poll()
        if first.recalled:
            recalled = first.recalled.pop()
            # The sequence number of a recalled stateid may be later.
            if (recalled[0][4:], recalled[1]) != (delegation[4:], file):
                raise Wrong("another delegation is recalled than was given")
            close(first, file, state)
            reply = first.compound([put, (nfs41.DELEGRETURN, recalled[0])])
            reply.result(nfs41.PUTFH)
            reply.result(nfs41.DELEGRETURN)
            returned.append(time.monotonic())

    returned, start = [], time.monotonic()
    while not (opened := second.open(directory, name, both | nfs41.WANT_NO_DELEGATION, meanwhile=give_back)):
        give_back()
        if time.monotonic() > start + 20:
            raise Wrong("a conflicting OPEN is still delayed after 20 s")
        time.sleep(0.05)
    if len(returned) != 1:
        raise Wrong(f"the delegation was recalled {len(returned)} times")
    reply = second.compound([put, write(opened[1], 0, b"second"), read(opened[1], 0, len(data))])
    reply.result(nfs41.PUTFH)
    written(reply, 6)
    same(reply, b"second" + data[6:])
    close(second, opened[0], opened[1])
    counts = first.compounds + second.compounds, first.callbacks + second.callbacks
    first.end()
    second.end()
    print(f"delegation: {counts[0]} COMPOUNDs, {counts[1]} callbacks, recalled in {returned[0] - start:.3f} s")


try:
    main()
except (Wrong, OSError) as error:
    sys.exit(f"delegation: {error}")
