"""RPC-over-RDMA version 1 (RFC 8166) with its private data (RFC 8797): a responder, and a requester of NULL calls."""

import responder
import rpc
import xdr
from xdr import words

VERSION = 1
MSG, NOMSG, MSGP, DONE, ERROR = range(5)
ERR_VERS, ERR_CHUNK = 1, 2
# The shortest header, octets: shorter messages are discarded (RFC 8166, 4.5).
MIN_HEADER = 28
# The credits that are granted at most.
CREDITS = 16
MAGIC = bytes.fromhex("f6ab0e18")


def private_data(size):
    """Messages of up to `size` octets both ways, and no remote invalidation (RFC 8797, 5)."""
    units = size // 1024 - 1
    return MAGIC + bytes([1, 0, units, units])


def send_limit(private, own):
    """The longest message to a peer with this private data, octets (RFC 8797, 4.2)."""
    at = private.find(MAGIC)
    if at < 0 or len(private) < at + 8 or private[at + 4] != 1:
        return 1024
    return min(own, (private[at + 7] + 1) * 1024)


class Responder:
    """The responder of one connection."""

    def __init__(self, connection, program, size):
        self.connection, self.program = connection, program
        self.limit = send_limit(connection.private_data, size)

    def received(self, message):
        """Answers a message."""
        if len(message) < MIN_HEADER:
            return
        reader = xdr.Reader(message)
        xid, version, credits, procedure = [reader.word() for _ in range(4)]
        # An RDMA_ERROR or RDMA_DONE is of no use to a responder (RFC 8166, 4.5 and 4.6.2).
        if procedure in (ERROR, DONE):
            return
        if version != VERSION:
            self.connection.send(err_vers(xid, version))
            return
        self.granted = max(1, min(credits, CREDITS))
        try:
            self.connection.send(self.reply(xid, self.call(xid, procedure, reader)))
        except (xdr.BadXdr, responder.BadChunks, responder.NoRoom):
            self.connection.send(words(xid, VERSION, self.granted, ERROR, ERR_CHUNK))

    def call(self, xid, procedure, reader):
        if procedure not in (MSG, NOMSG):
            raise xdr.BadXdr("a procedure that no requester uses")
        reads, writes, reply = reader.read_list(), reader.write_list(), reader.reply_chunk()
        # A Read chunk at position zero is the whole call (RFC 8166, 3.5.3).
        whole = [segment for position, segment in reads if position == 0]
        if bool(whole) != (procedure == NOMSG):
            raise xdr.BadXdr("a message that is in two places, or in none")
        reads = [entry for entry in reads if entry[0]]
        payload = reader.rest()
        if procedure == NOMSG and payload:
            raise xdr.BadXdr("a payload beside the chunk that has it")
        payload = payload if procedure == MSG else None
        return responder.Call(xid, payload, whole, reads, writes, reply)

    def reply(self, xid, call):
        if call.payload is not None and not rpc.is_call(call.payload, xid):
            raise xdr.BadXdr("another XID than in the header, or no call")
        if call.payload is not None:
            if len(responder.check(call)) > self.program.reduced_arguments(call.payload):
                raise responder.BadChunks("an item that is not DDP-eligible (RFC 8166, 6.1)")
        stream, reduced = responder.arguments(self.connection, call)
        if not rpc.is_call(stream, xid):
            raise xdr.BadXdr("another XID than in the header, or no call")
        reply, items = self.program.answer(stream, reduced)
        reply, writes = responder.reduce(self.connection, call, reply, items)
        unused = None if call.reply is None else responder.unused(call.reply)
        message = self.header(xid, MSG, writes, unused) + reply
        if len(message) <= self.limit:
            return message
        if call.reply is None or responder.capacity(call.reply) < len(reply):
            raise responder.NoRoom("a reply that fits neither a message nor the Reply chunk")
        return self.header(xid, NOMSG, writes, responder.fill(self.connection, call.reply, reply))

    def header(self, xid, procedure, writes, reply):
        prefix = words(xid, VERSION, self.granted, procedure, 0)
        return prefix + xdr.write_list(writes) + xdr.reply_chunk(reply)


def err_vers(xid, version, credits=1):
    """The error for a version that is not supported. It is the same in version 2 (version-two-07, 7.1.1)."""
    return words(xid, version, credits, ERROR, ERR_VERS, 1, 2)


def null(connection, xid):
    """Makes a NULL call and checks its reply."""
    connection.send(words(xid, VERSION, 1, MSG, 0, 0, 0) + rpc.null_call(xid))
    message = connection.receive() or b""
    reader = xdr.Reader(message)
    header = [reader.word() for _ in range(4)]
    if header[:2] != [xid, VERSION] or header[3] != MSG or header[2] == 0:
        raise xdr.BadXdr(f"no reply, but {header}")
    if reader.read_list() or reader.write_list() or reader.reply_chunk():
        raise xdr.BadXdr("chunks in a reply to a call without any")
    rpc.check_null_reply(reader.rest(), xid)
