"""Send-based data placement for version 2, by drafts/text/rpcrdma-v2-send-placement.xml, whose sections are named here.

A responder takes calls with placed arguments, and places results. What it does not place goes by the base protocol.
"""

import dataclasses

import xdr
from xdr import words

# Properties and header types, from the range for experiments (sections "Transport Properties" and "Header Types").
STRUCTURE, SUPPORT, SMALLEST_RESULT = 0xFFFFFF01, 0xFFFFFF02, 0xFFFFFF03
CALL_MIDDLE, CALL, REPLY_MIDDLE, REPLY = 0xFFFFFF01, 0xFFFFFF02, 0xFFFFFF03, 0xFFFFFF04
CALLS, RESULTS, NO_RESULTS, TARGET = 1, 2, 0xFFFFFFFF, 1
# This end's receive buffers: (count, length, alignment, flags) of each element, and the length of all.
ELEMENTS = [(1, 1024, 0, 0), (1, 65536, 4096, TARGET)]
SIZE = sum(count * length for count, length, _, _ in ELEMENTS)
# Items that a receiver must accept, and messages of the longest sequence (sections "Header Types" and "Placed
# Sequences").
MAX_ITEMS, MAX_MESSAGES = 16, 128
# Octets of the headers, without chunks and items.
MIDDLE_LENGTH, REPLY_LENGTH, ITEM_LENGTH = 28, 28, 16


class Invalid(Exception):
    """Messages that do not go together: RDMA2_ERR_INVAL_CONT."""


class TooLong(Exception):
    """More than this end is prepared to hold: RDMA2_ERR_SYSTEM."""


def usable(elements, limit):
    """The (offset, length) of each usable target of a buffer with these elements (section "Numbers of Targets")."""
    found, at = [], 0
    for count, length, _, flags in elements:
        # A target has at least one octet, and its last one is within the limit.
        fitting = min(count, (limit - at) // length) if length and at < limit else 0
        if flags & TARGET:
            found += [(at + number * length, length) for number in range(fitting)]
        at += count * length
    return found


@dataclasses.dataclass
class Part:
    """A message of a placed sequence: its octets, and where its piece of the Payload stream begins and ends."""

    message: bytes
    begin: int
    end: int


class Placement:
    """The state of the extension at a responder."""

    def __init__(self):
        self.structure, self.smallest = [], NO_RESULTS
        # Whether the peer has refused this end's properties, or this end the peer's. Each may count targets by others
        # then, and this end takes none from a peer whose properties it has refused.
        self.refused, self.peer_refused = False, False
        # The sequence that is arriving: its XID, its parts, and the messages and octets that have to follow.
        self.xid, self.parts, self.following = None, [], (0, 0)

    # Properties

    def announced(self):
        """This end's properties."""
        structure = words(len(ELEMENTS)) + b"".join(words(*element) for element in ELEMENTS)
        return [(STRUCTURE, structure), (SUPPORT, words(CALLS | RESULTS))]

    def value(self, which, value):
        """Returns a property of the peer, from a reader, or None. Raises BadXdr for a value of another type."""
        if which == STRUCTURE:
            count = value.word()
            elements = [tuple(value.word() for _ in range(4)) for _ in range(count)]
            found = elements if count <= 64 else []
        elif which in (SUPPORT, SMALLEST_RESULT):
            found = value.word()
        else:
            return None
        if value.rest():
            raise xdr.BadXdr("a value of another type")
        return found

    def apply(self, found):
        """Takes the properties of a message. SUPPORT is about calls to the peer, and this end makes none."""
        self.structure = found.get(STRUCTURE, self.structure)
        self.smallest = found.get(SMALLEST_RESULT, self.smallest)

    # Calls

    def part(self, xid, message, reader, most):
        """Takes RDMA2_CALL_PLACED_MIDDLE, and drops the sequence if it cannot."""
        parts, following = self._begun(xid)
        messages, remaining, length = reader.word(), reader.word(), reader.word()
        part = piece(message, reader.at, length)
        if not messages or parts and (messages + 1, length + remaining) != following:
            raise Invalid("messages that do not count down")
        if not parts and (messages >= MAX_MESSAGES or length + remaining > most):
            raise TooLong("a sequence that is too long")
        self.xid, self.parts, self.following = xid, parts + [part], (messages, remaining)

    def _begun(self, xid):
        """Returns the parts of this call that have arrived, and what has to follow. They are not kept."""
        begun = (self.parts, self.following) if self.xid == xid else ([], (1, None))
        self.xid, self.parts, self.following = None, [], (0, 0)
        return begun

    def whole(self, xid, message, items, length, at, peer_sends, most):
        """Takes the rest of RDMA2_CALL_PLACED, behind the chunks. Returns the stream, and the (position, length, False)
        of each item (section "Processing by the Receiver")."""
        parts, following = self._begun(xid)
        if parts and following != (1, length):
            raise Invalid("a final message that comes too early or too late")
        parts = parts + [piece(message, at, length)]
        stream = b"".join(part.message[part.begin : part.end] for part in parts)
        if len(stream) + sum(item[1] for item in items) > most:
            raise TooLong("a call that is too long")
        targets = usable(ELEMENTS, min(peer_sends, SIZE))
        end, inserted, used, found = 8, 0, set(), []
        for position, item, number, offset in items:
            if not item or position % 4 or position < end or position > len(stream) + inserted:
                raise xdr.BadXdr("an item that is empty, not aligned, or not in order")
            if offset % 4:
                raise xdr.BadXdr("an offset that is no multiple of four")
            found.append(locate(parts, targets, number, offset, item, used))
            padded = item + -item % 4
            end, inserted = position + padded, inserted + padded
        for (position, *_), data in zip(items, found):
            stream = stream[:position] + data + xdr.padding(data) + stream[position:]
        return stream, [(position, length, False) for position, length, *_ in items]

    # Replies

    def reply(self, reply, items, writes, sends, peer_receives, credits):
        """Returns the (type, header and contents) of each message of a reply with placed results, or None.

        `items` are the (position, length) of DDP-eligible results, `writes` the Write chunks of the call (section
        "Placed Reply"), and `sends` and `peer_receives` the Maximum Send Size and the Receive Buffer Size that were
        announced.
        """
        # A structure of another length than the announced Receive Buffer Size counts as not announced.
        length = sum(count * length for count, length, _, _ in self.structure)
        if self.refused or self.peer_refused or self.smallest == NO_RESULTS or length != peer_receives:
            return None
        with_octets = [item for item in items if item[1]]
        if any(chunk for chunk in writes[: len(with_octets)]):
            return None
        placed = [item for item in with_octets[len(writes) :] if item[1] >= self.smallest]
        limit = min(sends, peer_receives)
        targets = usable(self.structure, limit)
        if not placed or not targets or len(placed) > MAX_ITEMS:
            return None
        data, stream = [], reply
        for position, length in reversed(placed):
            data.insert(0, reply[position : position + length])
            stream = stream[:position] + stream[position + length + -length % 4 :]
        lists = xdr.write_list([[(handle, 0, offset) for handle, _, offset in chunk] for chunk in writes])
        last = REPLY_LENGTH + len(lists) - 4 + ITEM_LENGTH * len(placed)
        # The header of the final message is longer, so that the number of messages has to be known to lay them out.
        for count in range(1, min(credits, MAX_MESSAGES) + 1):
            laid_out = lay_out(stream, data, [MIDDLE_LENGTH] * (count - 1) + [last], targets, limit)
            if laid_out:
                return self._messages(laid_out, placed, lists, stream)
        return None

    def _messages(self, laid_out, placed, lists, stream):
        contents, places, pieces = laid_out
        messages, remaining = [], len(stream)
        for number, (content, piece_length) in enumerate(zip(contents, pieces)):
            remaining -= piece_length
            follow = len(contents) - 1 - number
            if follow:
                messages.append((REPLY_MIDDLE, words(follow, remaining, piece_length) + content))
                continue
            entries = b"".join(words(*item, *place) for item, place in zip(placed, places))
            messages.append((REPLY, lists + words(len(placed)) + entries + words(piece_length) + content))
        return messages


def piece(message, begin, length):
    if length % 4 or length > len(message) - begin:
        raise xdr.BadXdr("a Payload stream that is not aligned, or longer than its message")
    return Part(message, begin, begin + length)


def locate(parts, targets, number, offset, length, used):
    """Returns the octets of a placed item. `used` are the (message, begin, end) of earlier ones, to which it adds."""
    data = b""
    while len(data) < length:
        if not targets or number // len(targets) >= len(parts):
            raise xdr.BadXdr("an item in a target that there is not")
        at, room = targets[number % len(targets)]
        part = parts[number // len(targets)]
        begin, end = at + offset, at + min(room, offset + length - len(data))
        if begin >= end or begin < part.end or end > len(part.message):
            raise xdr.BadXdr("an item outside of what was sent for it")
        where = number // len(targets)
        if any(message == where and begin < to and start < end for message, start, to in used):
            raise xdr.BadXdr("two items that overlap")
        used.add((where, begin, end))
        data, number, offset = data + part.message[begin:end], number + 1, 0
    return data


def lay_out(stream, data, headers, targets, limit):
    """Lays a message out over as many messages as there are headers. `headers` are their lengths.

    Returns the contents of each behind its header, the (target, offset) of each item, and the octets of the Payload
    stream in each message. Returns None if it takes more messages or fewer.
    """
    contents, pieces, places = [], [], []
    free = 0
    for header in headers:
        take = min((limit - header) & ~3, len(stream) - sum(pieces))
        if take < 0:
            return None
        begin = sum(pieces)
        contents.append(bytearray(stream[begin : begin + take]))
        pieces.append(take)
    for item in data:
        at = 0
        while at < len(item):
            message, target = divmod(free, len(targets))
            if message == len(headers):
                return None
            begin, room = targets[target]
            gap = begin - headers[message] - len(contents[message])
            # The Payload stream comes before all data, and each item begins in a target of its own.
            behind = sum(pieces[: message + 1]) == len(stream)
            if gap < 0 or not behind:
                free += 1
                if at:
                    return None
                continue
            if not at:
                places.append((free, 0))
            contents[message] += bytes(gap) + item[at : at + room]
            at, free = at + room, free + 1
    used = max([number for number, take in enumerate(pieces) if take] + [(free - 1) // len(targets)])
    return (contents, places, pieces) if used == len(headers) - 1 else None
