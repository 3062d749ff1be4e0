"""A small NFSv4.1 client (RFC 8881) with a backchannel, of the standard library alone.

A connection carries calls in both directions: what the server calls is answered while a reply is awaited.
"""

import select
import socket
import struct
import time

NFS_PROGRAM, CALLBACK_PROGRAM = 100003, 0x40000001
# Operations.
CLOSE, CREATE, DELEGRETURN, GETFH, LOOKUP, OPEN = 4, 6, 8, 10, 15, 18
PUTFH, PUTROOTFH, READ, WRITE = 22, 24, 25, 38
EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, SEQUENCE, DESTROY_CLIENTID, RECLAIM_COMPLETE = 42, 43, 44, 53, 57, 58
CB_RECALL, CB_SEQUENCE = 4, 11
OK, DELAY = 0, 10008
ACCESS_READ, ACCESS_WRITE, WANT_READ_DELEGATION, WANT_NO_DELEGATION = 1, 2, 0x100, 0x400
CONN_BACK_CHAN = 2


class Wrong(Exception):
    """Something that the server or the way to it did, and should not have."""


class Closed(Wrong):
    """The other side has closed the connection."""


def opaque(value):
    """Variable-length opaque data in XDR."""
    return struct.pack(">I", len(value)) + value + bytes(-len(value) % 4)


class Reader:
    """The rest of an XDR stream."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, length):
        """Takes bytes, padding included."""
        start = self.at
        self.at += length + -length % 4
        if self.at > len(self.data):
            raise Wrong(f"a message of {len(self.data)} bytes ends too early")
        return self.data[start : start + length]

    def u32(self):
        """Takes an unsigned integer."""
        return struct.unpack(">I", self.fixed(4))[0]

    def u64(self):
        """Takes an unsigned hyper integer."""
        return struct.unpack(">Q", self.fixed(8))[0]

    def opaque(self):
        """Takes variable-length opaque data."""
        return self.fixed(self.u32())

    def result(self, operation, *, expected=OK):
        """Begins the result of an operation, which must have an expected status."""
        number, status = self.u32(), self.u32()
        if number != operation:
            raise Wrong(f"the result is of operation {number}, and should be of {operation}")
        if status != expected:
            raise Wrong(f"operation {operation} ended with status {status}, and should with {expected}")


class Client:
    """A client with a session of one slot, whose only connection is that of the backchannel, too."""

    # Whether the server is asked to keep each reply, in case the call is made again (sa_cachethis).
    keeps = 0

    def __init__(self, address, owner, seconds=20):
        self.address, self.seconds, self.xid, self.sequence = address, seconds, struct.unpack(">I", owner[:4])[0], 0
        self.session, self.recalled, self.callbacks, self.compounds = None, [], 0, 0
        self.connect()
        verifier = struct.pack(">Q", time.time_ns())
        reply = self.compound([(EXCHANGE_ID, verifier + opaque(owner) + struct.pack(">III", 0, 0, 0))])
        reply.result(EXCHANGE_ID)
        self.client, sequence = reply.u64(), reply.u32()
        # Header padding, request, response, cached response, operations, requests; no RDMA.
        fore = struct.pack(">7I", 0, 1 << 20, 1 << 20, 16384, 16, 1, 0)
        back = struct.pack(">7I", 0, 4096, 4096, 0, 8, 1, 0)
        security = struct.pack(">II", 1, 0)
        reply = self.compound([(CREATE_SESSION, struct.pack(">QII", self.client, sequence, CONN_BACK_CHAN)
                                + fore + back + struct.pack(">I", CALLBACK_PROGRAM) + security)])
        reply.result(CREATE_SESSION)
        self.session = reply.fixed(16)
        _, flags = reply.u32(), reply.u32()
        if not flags & CONN_BACK_CHAN:
            raise Wrong("the session has no backchannel")
        self.compound([(RECLAIM_COMPLETE, struct.pack(">I", 0))]).result(RECLAIM_COMPLETE)

    def connect(self):
        """Makes a connection."""
        self.socket = socket.create_connection(self.address, timeout=self.seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self):
        """Destroys the session and the client ID, and closes the connection."""
        session, self.session = self.session, None
        self.compound([(DESTROY_SESSION, session)]).result(DESTROY_SESSION)
        self.compound([(DESTROY_CLIENTID, struct.pack(">Q", self.client))]).result(DESTROY_CLIENTID)
        self.socket.close()

    def send(self, message):
        """Sends a message as one fragment."""
        self.socket.sendall(struct.pack(">I", len(message) | 1 << 31) + message)

    def receive(self):
        """Receives a message, which may be of several fragments."""
        message, last = b"", False
        while not last:
            mark = struct.unpack(">I", self.exactly(4))[0]
            last = bool(mark >> 31)
            message += self.exactly(mark & 0x7FFFFFFF)
        return message

    def exactly(self, length):
        """Receives so many bytes."""
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise Closed("the connection was closed")
            data += more
        return data

    def compound(self, operations, meanwhile=None):
        """Makes a COMPOUND and returns the results behind that of SEQUENCE. `meanwhile` is called until they come."""
        if self.session:
            self.sequence += 1
            before = [(SEQUENCE, self.session + struct.pack(">IIII", self.sequence, 0, 0, self.keeps))]
            operations = before + operations
        self.xid = (self.xid + 1) & 0xFFFFFFFF
        credential = struct.pack(">I", 0) + opaque(b"judge") + struct.pack(">III", 0, 0, 0)
        call = struct.pack(">6I", self.xid, 0, 2, NFS_PROGRAM, 4, 1)
        call += struct.pack(">I", 1) + opaque(credential) + struct.pack(">II", 0, 0)
        call += opaque(b"") + struct.pack(">II", 1, len(operations))
        call += b"".join(struct.pack(">I", number) + args for number, args in operations)
        message = self.exchange(call, meanwhile)
        if message.u32():
            raise Wrong("the server denies the call")
        _, _, accepted = message.u32(), message.opaque(), message.u32()
        if accepted:
            raise Wrong(f"the call was answered with accept_stat {accepted}")
        self.compounds += 1
        message.u32(), message.opaque(), message.u32()
        if self.session:
            message.result(SEQUENCE)
            message.fixed(36)
        return message

    def exchange(self, call, meanwhile=None):
        """Sends a call and returns the rest of its reply, behind XID and direction. Answers what the server calls."""
        self.send(call)
        end = time.monotonic() + self.seconds
        while True:
            if meanwhile:
                while not select.select([self.socket], [], [], 0.02)[0]:
                    if time.monotonic() > end:
                        raise Wrong(f"no reply within {self.seconds} s")
                    meanwhile()
            message = Reader(self.receive())
            xid, kind = message.u32(), message.u32()
            if kind:
                break
            self.answer(xid, message)
        if xid != self.xid:
            raise Wrong(f"a reply to call {xid}, and should be to {self.xid}")
        return message

    def poll(self):
        """Answers what the server has called."""
        while select.select([self.socket], [], [], 0)[0]:
            message = Reader(self.receive())
            xid, kind = message.u32(), message.u32()
            if kind:
                raise Wrong(f"a reply to call {xid}, which nobody awaits")
            self.answer(xid, message)

    def answer(self, xid, call):
        """Answers a callback: a NULL, or a CB_COMPOUND of CB_SEQUENCE and CB_RECALLs."""
        versions = [call.u32() for _ in range(3)]
        if versions != [2, CALLBACK_PROGRAM, 1]:
            raise Wrong(f"a callback of RPC version, program, version {versions}")
        procedure = call.u32()
        for _ in range(2):
            call.u32(), call.opaque()
        results = b""
        if procedure:
            tag, minor, _, count = call.opaque(), call.u32(), call.u32(), call.u32()
            if minor != 1:
                raise Wrong(f"a callback of minor version {minor}")
            for index in range(count):
                operation = call.u32()
                if (operation == CB_SEQUENCE) != (index == 0):
                    raise Wrong(f"operation {operation} of a callback is at position {index}")
                results += struct.pack(">II", operation, OK)
                if operation == CB_SEQUENCE:
                    session, sequence, slot, highest = call.fixed(16), call.u32(), call.u32(), call.u32()
                    if session != self.session:
                        raise Wrong("a callback of another session")
                    call.u32()
                    for _ in range(call.u32()):
                        call.fixed(16)
                        for _ in range(call.u32()):
                            call.fixed(8)
                    results += session + struct.pack(">IIII", sequence, slot, highest, highest)
                elif operation == CB_RECALL:
                    state, _, file = call.fixed(16), call.u32(), call.opaque()
                    self.recalled.append((state, file))
                else:
                    raise Wrong(f"a callback with operation {operation}")
            results = struct.pack(">I", OK) + opaque(tag) + struct.pack(">I", count) + results
            self.callbacks += 1
        self.send(struct.pack(">6I", xid, 1, 0, 0, 0, 0) + results)

    def open(self, directory, name, access, create=False, meanwhile=None):
        """Opens a file. Returns its handle, the open's stateid and a delegation's, or None where the server says that
        it delays the call."""
        owner = struct.pack(">Q", self.client) + opaque(b"owner")
        how = struct.pack(">IIII", 1, 0, 0, 0) if create else struct.pack(">I", 0)
        args = struct.pack(">III", 0, access, 0) + owner + how + struct.pack(">I", 0) + opaque(name)
        reply = self.compound([(PUTFH, opaque(directory)), (OPEN, args), (GETFH, b"")], meanwhile)
        reply.result(PUTFH)
        if struct.unpack(">II", reply.data[reply.at : reply.at + 8]) == (OPEN, DELAY):
            return None
        reply.result(OPEN)
        state = reply.fixed(16)
        reply.fixed(24)
        for _ in range(reply.u32()):
            reply.u32()
        kind, delegation = reply.u32(), None
        if kind in (1, 2):
            delegation = reply.fixed(16)
            reply.u32()
            if kind == 2:
                reply.fixed(12)
            reply.fixed(12)
            reply.opaque()
        elif kind == 3 and reply.u32() in (1, 2):
            reply.u32()
        reply.result(GETFH)
        return reply.opaque(), state, delegation

    def lookup(self, path):
        """The handle of a path from the root."""
        names = [name for name in path.split(b"/") if name]
        reply = self.compound([(PUTROOTFH, b""), *((LOOKUP, opaque(name)) for name in names), (GETFH, b"")])
        reply.result(PUTROOTFH)
        for _ in names:
            reply.result(LOOKUP)
        reply.result(GETFH)
        return reply.opaque()
