"""Calls and replies with their chunks: the RDMA Reads and Writes of a responder, by both versions.

Both versions have the same chunks (RFC 8166, 3.4 and 4.3; version-two-07, 4.5), and differ in headers and errors.
"""

import dataclasses

import xdr

# The longest call that is fetched, octets.
MAX_CALL = 4 << 20


class BadChunks(Exception):
    """Chunk lists that break a rule: nothing has been fetched."""


class NoRoom(Exception):
    """A result that is longer than the chunk for it."""


@dataclasses.dataclass
class Call:
    """A call as it was received. Lists of segments are those of `xdr.Reader`."""

    xid: int
    # The Payload stream that was received, or None if it is in the Call chunk.
    payload: bytes = None
    call_chunk: list = dataclasses.field(default_factory=list)
    reads: list = dataclasses.field(default_factory=list)
    writes: list = dataclasses.field(default_factory=list)
    reply: list = None


def fetch(connection, segments):
    return b"".join(connection.read(handle, offset, length) for handle, length, offset in segments if length)


def capacity(chunk):
    return sum(length for _, length, _ in chunk)


def fill(connection, chunk, data):
    """Writes data into the segments of a chunk, in order. Returns them with the lengths that were written."""
    returned, at = [], 0
    for handle, length, offset in chunk:
        part = data[at : at + length]
        connection.write(handle, offset, part)
        returned.append((handle, len(part), offset))
        at += len(part)
    return returned


def unused(chunk):
    return [(handle, 0, offset) for handle, _, offset in chunk]


def check(call):
    """Returns the Read chunks of a call: [(position, segments)], in order, if they fit the call."""
    chunks = {}
    for position, segment in call.reads:
        if position % 4 or position == 0:
            raise BadChunks("a position that is zero or no multiple of four")
        chunks.setdefault(position, []).append(segment)
    length = len(call.payload) if call.payload is not None else capacity(call.call_chunk)
    end, whole = 0, length
    for position, segments in sorted(chunks.items()):
        item = capacity(segments)
        # `whole` is the length of the stream with all items before this one.
        if position < end or position > whole:
            raise BadChunks("a chunk that overlaps another one, or lies beyond the payload")
        padded = item + -item % 4
        end, whole = position + padded, whole + padded
    if whole > MAX_CALL or length % 4:
        raise BadChunks("a call that is too long, or not aligned")
    return sorted(chunks.items())


def arguments(connection, call):
    """Returns the unreduced Payload stream of a call, and the (position, length, True) of each reduced item."""
    chunks, reduced = check(call), []
    stream = call.payload if call.payload is not None else fetch(connection, call.call_chunk)
    for position, segments in chunks:
        item = fetch(connection, segments)
        stream = stream[:position] + item + xdr.padding(item) + stream[position:]
        reduced.append((position, len(item), True))
    return stream, reduced


def reduce(connection, call, reply, items):
    """Writes the results that have Write chunks, and takes them out of the reply.

    `items` are the (position, length) of DDP-eligible results in `reply`. Returns what is left of the reply, and the
    Write chunks to return. Raises NoRoom before anything is written.
    """
    # A result without octets uses no chunk, and one with an empty chunk stays where it is.
    with_octets = [item for item in items if item[1]]
    matched = [(at, *item) for at, item in enumerate(with_octets[: len(call.writes)]) if call.writes[at]]
    if any(length > capacity(call.writes[at]) for at, _, length in matched):
        raise NoRoom("a result that is longer than its Write chunk")
    returned = [unused(chunk) for chunk in call.writes]
    for at, position, length in reversed(matched):
        returned[at] = fill(connection, call.writes[at], reply[position : position + length])
        reply = reply[:position] + reply[position + length + -length % 4 :]
    return reply, returned
