"""RPC-over-RDMA version 2 as of draft-ietf-nfsv4-rpcrdma-version-two-07: a responder, and a requester of NULL calls.

Sections are those of the draft. Where it contradicts itself, drafts/errata-07.md has the entry that is followed.
"""

import collections

import placement
import responder
import rpc
import xdr
from iwarp import Broken
from version1 import err_vers
from xdr import words

VERSION = 2
ERROR, GRANT, CONNPROP_MIDDLE, CONNPROP_FINAL = 4, 5, 6, 7
CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE = 8, 9, 10
REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE = 11, 12, 13
BAD_XDR, BAD_PROPVAL, INVAL_HTYPE, INVAL_CONT, READ_CHUNKS = 2, 3, 4, 5, 6
SEGMENTS, REPLY_RESOURCE, VERS_MISMATCH, SYSTEM = 8, 10, 11, 100
SEND_SIZE, RECEIVE_SIZE, SEGMENT_SIZE, SEGMENT_COUNT, REVERSE_SUPPORT, HOST_AUTH = 1, 2, 3, 4, 5, 6
# The prefix has four words, which are 16 octets and not 20 (erratum 11).
PREFIX = 16
# Messages of up to this length need no announcement (4.2.2).
DEFAULT_SIZE = 4096
CREDITS = 16
# Messages beyond the credits that a receive is kept for: a GRANT, and one message of a peer that takes 4.2.1 to the
# letter (erratum 2).
SPARE = 2
# Answers that may wait for credits when another message arrives. Each answer that leaves brings the peer new credits,
# so that a peer which makes calls and takes few replies would fill the memory of this end otherwise.
MAX_ANSWERS = 4 * CREDITS
MAX_CALL = responder.MAX_CALL
# Messages of one reply. The text has no least size of receives (erratum 32).
MAX_PARTS = 2048
# Messages that others of the same call follow, and the last ones.
MIDDLES, FINALS = (CALL_MIDDLE, placement.CALL_MIDDLE), (CALL_INLINE, placement.CALL)
REPLY_MIDDLES = REPLY_MIDDLE, placement.REPLY_MIDDLE


class Refused(Exception):
    """A message that is answered with an RDMA2_ERROR: its code, and the words that follow."""

    def __init__(self, code, *details):
        super().__init__(f"RDMA2_ERROR {code}")
        self.code, self.details = code, details


class Flow:
    """The four values of 4.2.1. Both ends count all messages, from the first of the connection (errata 4, 66)."""

    def __init__(self):
        self.sent, self.received, self.limit, self.told = 0, 0, 1, 1

    def take(self, credit):
        """A message was received. `credit` is its rdma_credit, or None if it has none that counts."""
        self.received += 1
        if 2**31 > (self.received - self.told) % 2**32 > SPARE:
            raise Broken("more messages than credits (4.2)")
        if credit is not None:
            self.limit = credit

    def may_send(self, is_grant=False):
        ahead = (self.limit - self.sent) % 2**32
        return 0 < ahead < 2**31 or is_grant and ahead == 0

    def credits(self):
        """Returns the number of messages that may be sent at once."""
        return (self.limit - self.sent) % 2**32 if self.may_send() else 0

    def credit(self, advertised=CREDITS):
        """The field of the next message: what was received and what is advertised (erratum 1)."""
        self.sent += 1
        self.told = (self.received + advertised) % 2**32
        return self.told

    def owes_grant(self):
        """Whether the peer has used half of what it was told (4.2.1.1)."""
        return (self.told - self.received) % 2**32 <= CREDITS // 2


class End:
    """State that requester and responder share: credits, properties, and a queue of messages."""

    def __init__(self, connection, flow, placing=None):
        self.connection, self.flow, self.placing = connection, flow, placing
        self.size = placement.SIZE if placing else DEFAULT_SIZE
        self.waiting = collections.deque()
        self.announced, self.peer_announced, self.announced_by = False, False, None
        self.peer_receives, self.peer_sends = DEFAULT_SIZE, DEFAULT_SIZE
        # The longest message that this end may send.
        self.longest = DEFAULT_SIZE

    def send(self, xid, kind, body, version=VERSION):
        """Sends a message as soon as there is a credit."""
        self.waiting.append((xid, version, kind, body))
        self.flush()

    def flush(self):
        while self.waiting and self.flow.may_send():
            xid, version, kind, body = self.waiting.popleft()
            self.connection.send(words(xid, version, self.flow.credit(), kind) + body)

    def grant(self):
        """Sends a GRANT if nothing else has told the peer that it may go on."""
        if self.flow.owes_grant() and self.flow.may_send(is_grant=True):
            self.connection.send(words(0, VERSION, self.flow.credit(), GRANT))

    def announce(self, xid):
        """Sends this end's properties, once (6.3.4)."""
        self.announced, self.announced_by = True, xid
        numbers = [(SEND_SIZE, self.size), (RECEIVE_SIZE, self.size), (SEGMENT_COUNT, xdr.MAX_SEGMENTS)]
        values = [(which, words(number)) for which, number in numbers]
        values += self.placing.announced() if self.placing else []
        props = b"".join(words(which) + xdr.opaque(value) for which, value in values)
        self.send(xid, CONNPROP_FINAL, words(len(values)) + props)

    def properties(self, kind, reader):
        if self.peer_announced:
            raise Refused(INVAL_CONT)
        # A FINAL that is refused ends the exchange as well (erratum 28).
        self.peer_announced = kind == CONNPROP_FINAL
        found = {}
        for _ in range(reader.word()):
            which, length = reader.word(), reader.word()
            try:
                value = xdr.Reader(reader.take(length))
                reader.take(-length % 4)
                # A value without octets is the default (5.1).
                if length and which == HOST_AUTH:
                    value.opaque(length)
                elif length and SEND_SIZE <= which <= REVERSE_SUPPORT:
                    found[which] = value.word()
                elif length and self.placing:
                    found[which] = self.placing.value(which, value)
            except xdr.BadXdr:
                raise Refused(BAD_PROPVAL) from None
            known = SEND_SIZE <= which <= HOST_AUTH
            if known and value.rest() or which == REVERSE_SUPPORT and found.get(which, 0) > 3:
                raise Refused(BAD_PROPVAL)
        if reader.rest():
            raise Refused(BAD_XDR)
        self.peer_receives = found.get(RECEIVE_SIZE, self.peer_receives)
        # No message is longer than this end has announced to send (5.2.1, erratum 22).
        self.longest = min(self.peer_receives, self.size)
        self.peer_sends = found.get(SEND_SIZE, self.peer_sends)
        if self.placing:
            self.placing.apply({which: value for which, value in found.items() if value is not None})


class Responder(End):
    """The responder of one connection."""

    def __init__(self, connection, flow, program, placing=None):
        super().__init__(connection, flow, placing)
        self.program = program
        # The continued call that is arriving: its XID, its parts, and the octets that have to follow.
        self.parts = None
        self.in_properties, self.awaits_properties = False, True
        # Calls in several messages that were refused: their XIDs, and whether they are placed. Their other parts are
        # discarded (7.1.4), until another call begins: from then on, an XID may be that of a call that is repeated.
        self.refused = collections.deque(maxlen=8)

    def received(self, message):
        """Answers a message."""
        if len(message) < PREFIX:
            self.flow.take(None)
            return
        reader = xdr.Reader(message)
        xid, version, credit, kind = [reader.word() for _ in range(4)]
        self.flow.take(credit if version == VERSION else None)
        self.flush()
        # Errors and grants are never answered, and may stand between the parts of a message (erratum 37).
        # Replies are ignored as well: this end makes no calls.
        if version == VERSION and kind == ERROR and self.placing and xid == self.announced_by:
            # It is about this end's properties, as this end makes no calls.
            self.placing.refused = True
        if kind == ERROR or version == VERSION and kind in (GRANT, REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE):
            self.grant()
            return
        if sum(waits not in REPLY_MIDDLES for _, _, waits, _ in self.waiting) > MAX_ANSWERS:
            raise Broken("more calls than the peer brings credits for the answers (4.2.1)")
        try:
            if version == 1:
                # What its type says counts for nothing: no properties and no part of a call are refused by this.
                self.send(xid, ERROR, words(VERS_MISMATCH), version)
            elif version != VERSION:
                self.send(xid, ERROR, err_vers(xid, version)[PREFIX:], version)
                return
            else:
                self.dispatch(xid, kind, reader)
        except Refused as refused:
            self.refuse(xid, kind, refused.code, *refused.details)
        except placement.Invalid:
            self.refuse(xid, kind, INVAL_CONT)
        except placement.TooLong:
            self.refuse(xid, kind, SYSTEM)
        except xdr.TooManySegments:
            self.refuse(xid, kind, SEGMENTS, xdr.MAX_SEGMENTS)
        except (xdr.BadXdr, responder.BadChunks):
            self.refuse(xid, kind, BAD_XDR)
        self.grant()

    def refuse(self, xid, kind, code, *details):
        refused = {(xid, kind == placement.CALL_MIDDLE)} if kind in MIDDLES else set()
        # A call that the message interrupts, and that has its XID, is given up as well (erratum 38).
        if self.parts and self.parts[0] == xid:
            self.parts = None
            refused |= {(xid, False)} if kind != CALL_INLINE else set()
        if self.placing and self.placing.xid == xid:
            self.placing.xid = None
            refused |= {(xid, True)} if kind != placement.CALL else set()
        self.refused.extend(refused - set(self.refused))
        if self.placing and kind in (CONNPROP_MIDDLE, CONNPROP_FINAL) and self.awaits_properties:
            self.placing.peer_refused = True
        self.send(xid, ERROR, words(code, *details))

    def dispatch(self, xid, kind, reader):
        if kind in (CONNPROP_MIDDLE, CONNPROP_FINAL):
            self.awaits_properties = not self.peer_announced
            if self.parts or self.placing and self.placing.xid is not None:
                raise Refused(INVAL_CONT)
            self.in_properties = kind == CONNPROP_MIDDLE and not self.peer_announced
            # A server answers the first message with its own properties, whatever its type (erratum 12).
            if not self.announced:
                self.announce(xid)
            self.properties(kind, reader)
            return
        if self.in_properties and kind in (CALL_EXTERNAL, *MIDDLES, *FINALS):
            raise Refused(INVAL_CONT)
        part = xid, kind in (placement.CALL_MIDDLE, placement.CALL)
        if part in self.refused and kind in MIDDLES + FINALS:
            if kind in FINALS:
                self.refused.remove(part)
            return
        is_call = kind in (CALL_EXTERNAL, *MIDDLES, *FINALS)
        if is_call and not self.parts and not (self.placing and self.placing.xid is not None):
            self.refused.clear()
        if self.placing and kind in (placement.CALL_MIDDLE, placement.CALL):
            self.placed(xid, kind, reader)
            return
        if self.placing and self.placing.xid is not None and kind in (CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE):
            raise Refused(INVAL_CONT)
        if kind == CALL_MIDDLE:
            self.part(xid, reader)
            return
        if kind not in (CALL_INLINE, CALL_EXTERNAL):
            raise Refused(INVAL_HTYPE)
        call = self.call(xid, kind, reader)
        if self.parts and (kind == CALL_EXTERNAL or self.parts[0] != xid):
            raise Refused(INVAL_CONT)
        if not self.announced:
            self.announce(xid)
        if self.parts:
            _, before, remaining = self.parts
            self.parts = None
            if len(call.payload) != remaining:
                raise Refused(INVAL_CONT)
            call.payload = before + call.payload
        self.answer(call)

    def part(self, xid, reader):
        """A part of a continued call (6.3.6). `rdma_remaining` is what follows in later parts (erratum 35)."""
        remaining, payload = reader.word(), reader.rest()
        if self.parts and self.parts[0] != xid:
            raise Refused(INVAL_CONT)
        if len(payload) < 4:
            raise xdr.BadXdr("a part without its first word")
        if self.parts and self.parts[2] != len(payload) + remaining or remaining == 0:
            raise Refused(INVAL_CONT)
        if len(payload) + remaining > MAX_CALL:
            raise Refused(SYSTEM)
        before = self.parts[1] if self.parts else b""
        self.parts = xid, before + payload, remaining

    def placed(self, xid, kind, reader):
        """A call with placed items, or a part of one."""
        if self.placing.peer_refused and self.placing.xid != xid:
            raise Refused(INVAL_HTYPE)
        if self.parts or self.placing.xid not in (None, xid):
            raise Refused(INVAL_CONT)
        if kind == placement.CALL_MIDDLE:
            self.placing.part(xid, reader.data, reader, MAX_CALL)
            return
        reads, writes, reply = self.chunks(reader)
        count = reader.word()
        if count > placement.MAX_ITEMS:
            raise xdr.BadXdr("too many placed items")
        items = [tuple(reader.word() for _ in range(4)) for _ in range(count)]
        length = reader.word()
        if reads:
            raise Refused(READ_CHUNKS, 0)
        found = self.placing.whole(xid, reader.data, items, length, reader.at, self.peer_sends, MAX_CALL)
        self.execute(responder.Call(xid, None, [], [], writes, reply), *found)

    def chunks(self, reader, call_chunk=None):
        """The chunk lists behind the prefix, with the Call chunk in the list that is given, if there is one."""
        handle = reader.word()
        if call_chunk is not None:
            call_chunk += reader.read_list()
        reads, writes, reply = reader.read_list(), reader.write_list(), reader.reply_chunk()
        chunks = [segment for _, segment in (call_chunk or []) + reads] + [at for chunk in writes for at in chunk]
        chunks += reply or []
        if len(chunks) > xdr.MAX_SEGMENTS:
            raise xdr.TooManySegments("more segments in a header than announced")
        if handle and handle not in [segment[0] for segment in chunks]:
            raise xdr.BadXdr("a handle to invalidate that the call does not have")
        positions = [position for position, _ in reads]
        if positions != sorted(positions) or any(position for position, _ in call_chunk or []):
            raise xdr.BadXdr("positions that decrease, or a Call chunk that is not at zero")
        return reads, writes, reply

    def call(self, xid, kind, reader):
        call_chunk = [] if kind == CALL_EXTERNAL else None
        reads, writes, reply = self.chunks(reader, call_chunk)
        payload = reader.rest()
        if kind == CALL_EXTERNAL:
            if payload or not call_chunk:
                raise xdr.BadXdr("an external call with a payload, or without a Call chunk")
            return responder.Call(xid, None, [segment for _, segment in call_chunk], reads, writes, reply)
        if len(payload) < 4:
            raise xdr.BadXdr("a call without its first word")
        return responder.Call(xid, payload, [], reads, writes, reply)

    def answer(self, call):
        if call.payload is not None and not rpc.is_call(call.payload, call.xid):
            raise xdr.BadXdr("another XID than in the header, or no call")
        most = self.program.reduced_arguments(call.payload) if call.payload else 1
        if len(responder.check(call)) > most:
            # An item that is not DDP-eligible (erratum 67).
            raise Refused(READ_CHUNKS, most)
        self.execute(call, *responder.arguments(self.connection, call))

    def execute(self, call, stream, reduced):
        """Executes a call whose arguments are there, and sends the reply."""
        if not rpc.is_call(stream, call.xid):
            raise xdr.BadXdr("another XID than in the header, or no call")
        reply, items = self.program.answer(stream, reduced)
        if self.placing:
            # A sequence begins with credits for all of it, and nothing waits before it.
            credits = 0 if self.waiting else self.flow.credits()
            sizes = self.size, self.peer_receives
            for kind, body in self.placing.reply(reply, items, call.writes, *sizes, credits) or []:
                self.send(call.xid, kind, body)
                reply = None
        if reply is None:
            return
        try:
            reply, writes = responder.reduce(self.connection, call, reply, items)
        except responder.NoRoom:
            # The item goes within the payload (6.6.4; erratum 48).
            writes = [responder.unused(chunk) for chunk in call.writes]
        lists = xdr.write_list(writes)
        # Header and payload together are limited by the receive buffer (erratum 71).
        if PREFIX + len(lists) + len(reply) <= self.longest:
            self.send(call.xid, REPLY_INLINE, lists + reply)
        elif call.reply and responder.capacity(call.reply) >= len(reply):
            returned = responder.fill(self.connection, call.reply, reply)
            self.send(call.xid, REPLY_EXTERNAL, lists + xdr.reply_chunk(returned))
        else:
            self.continue_reply(call.xid, lists, reply)

    def continue_reply(self, xid, lists, reply):
        """Sends a reply in several messages (6.6.2)."""
        room = (self.longest - PREFIX - 4) & ~3
        last = (self.longest - PREFIX - len(lists)) & ~3
        if min(room, last) < 4:
            raise responder.NoRoom("receives that hold no reply")
        if len(reply) > last + room * (MAX_PARTS - 1):
            raise Refused(REPLY_RESOURCE, len(reply))
        at = 0
        while len(reply) - at > last:
            end = min(at + room, len(reply) - 4)
            self.send(xid, REPLY_MIDDLE, words(len(reply) - end) + reply[at:end])
            at = end
        self.send(xid, REPLY_INLINE, lists + reply[at:])


class Requester(End):
    """A client that makes NULL calls."""

    def next(self):
        """The next message that is no GRANT: its XID, type, and the rest."""
        while True:
            message = self.connection.receive()
            if message is None or len(message) < PREFIX:
                raise xdr.BadXdr("the connection ends, or a message is too short")
            reader = xdr.Reader(message)
            xid, version, credit, kind = [reader.word() for _ in range(4)]
            if kind == ERROR:
                raise xdr.BadXdr(f"RDMA2_ERROR {reader.word()} for XID {xid}")
            if version != VERSION:
                raise xdr.BadXdr(f"a message of version {version}")
            self.flow.take(credit)
            self.flush()
            if kind == CONNPROP_FINAL:
                self.properties(kind, reader)
            elif kind != GRANT:
                self.grant()
                return xid, kind, reader

    def null(self, xid):
        if not self.announced:
            # The first message is of at most 1024 octets, and of at least 28 (4.3; erratum 20).
            self.announce(xid ^ 0x80000000)
        self.send(xid, CALL_INLINE, words(0, 0, 0, 0) + rpc.null_call(xid))
        got, kind, reader = self.next()
        if (got, kind) != (xid, REPLY_INLINE) or reader.write_list():
            raise xdr.BadXdr(f"no reply, but type {kind} with XID {got}")
        rpc.check_null_reply(reader.rest(), xid)
