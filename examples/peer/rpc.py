"""ONC RPC messages (RFC 5531, 9)."""

import xdr
from xdr import words

CALL, REPLY = 0, 1
SUCCESS, PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR = range(6)
NFS, MOUNT = 100003, 100005
MAX_AUTH = 400


def is_call(stream, xid):
    return stream[:8] == words(xid, CALL)


def null_call(xid):
    """A NULL call of NFS version 3 without credentials."""
    return words(xid, CALL, 2, NFS, 3, 0, 0, 0, 0, 0)


def check_null_reply(stream, xid):
    if stream != accepted(xid, SUCCESS):
        raise xdr.BadXdr(f"no reply to NULL: {stream[:64].hex()}")


def accepted(xid, status):
    return words(xid, REPLY, 0, 0, 0, status)


def denied(xid):
    """RPC_MISMATCH: version 2 of RPC is the only one."""
    return words(xid, REPLY, 1, 0, 2, 2)


class Results:
    """The results of a call, in parts. `items` are the (position, length) of DDP-eligible data."""

    def __init__(self, xid):
        self.parts, self.length, self.items = [], 0, []
        self.add(accepted(xid, SUCCESS))

    def add(self, octets):
        self.parts.append(octets)
        self.length += len(octets)

    def add_item(self, data):
        self.add(words(len(data)))
        self.items.append((self.length, len(data)))
        self.add(data + xdr.padding(data))


class Arguments(xdr.Reader):
    """The arguments of a call. `reduced` has the position and length of each item, and whether a chunk carried it."""

    def __init__(self, stream, reduced):
        super().__init__(stream)
        self.reduced = list(reduced)

    def item(self, most):
        """DDP-eligible opaque data."""
        length = xdr.Reader(self.data[self.at : self.at + 4]).word()
        if self.reduced and self.reduced[0][0] == self.at + 4:
            _, received, is_chunk = self.reduced.pop(0)
            # A chunk may have the round-up of its item, too (RFC 8166, 3.4.5.2). A placed item has none.
            if received != length and not (is_chunk and received == length + -length % 4):
                raise xdr.BadXdr("an item whose length differs from the one in the Payload stream")
        return self.opaque(most)

    def end(self):
        if self.reduced:
            raise xdr.BadXdr("an item that is not DDP-eligible")


class Programs:
    """Answers calls of the programs that it is given: {(program, version): {procedure: function}}."""

    def __init__(self, programs, eligible):
        self.programs, self.eligible = programs, eligible

    def reduced_arguments(self, stream):
        """Returns the number of DDP-eligible arguments of a call."""
        try:
            reader = xdr.Reader(stream[12:24])
            return 1 if (reader.word(), reader.word(), reader.word()) in self.eligible else 0
        except xdr.BadXdr:
            return 0

    def answer(self, stream, reduced):
        """Returns the reply to a call, and the (position, length) of its DDP-eligible results."""
        reader = Arguments(stream, reduced)
        xid, _, version = reader.word(), reader.word(), reader.word()
        if version != 2:
            return denied(xid), []
        program, version, procedure = reader.word(), reader.word(), reader.word()
        for _ in range(2):
            reader.word(), reader.opaque(MAX_AUTH)
        versions = [number for known, number in self.programs if known == program]
        if not versions:
            return accepted(xid, PROG_UNAVAIL), []
        if version not in versions:
            return accepted(xid, PROG_MISMATCH) + words(min(versions), max(versions)), []
        function = self.programs[program, version].get(procedure)
        if not function:
            return accepted(xid, PROC_UNAVAIL), []
        results = Results(xid)
        try:
            function(reader, results)
        except xdr.BadXdr:
            return accepted(xid, GARBAGE_ARGS), []
        return b"".join(results.parts), results.items
