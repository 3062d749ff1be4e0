"""iWARP over a TCP socket: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040).

A `Connection` sends and receives messages, and reads and writes the peer's memory. It offers no memory of its own.
"""

import collections
import struct

REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
# Flags of a set-up frame: markers, CRCs, rejection (RFC 5044, 7.1), and private data that begins with IRD and ORD (RFC
# 6581, 9).
MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10
# The initiator sends a ready-to-receive message first (RFC 6581, 9). Bits of the IRD word say that, and that it may be
# an empty Send; bits of the ORD word, that it may be an RDMA Write, or an RDMA Read.
PEER_TO_PEER, RTR_EMPTY, RTR_WRITE, RTR_READ = 0x8000, 0x4000, 0x8000, 0x4000
MAX_PRIVATE_DATA = 512

# RDMAP opcodes, and the queues of untagged messages (RFC 5040, 4.1). There are four kinds of Sends: with invalidation,
# with a solicited event, with both, and with neither.
WRITE, READ_REQUEST, READ_RESPONSE, SEND, _, _, LAST_SEND, TERMINATE = range(8)
SENDS = range(SEND, LAST_SEND + 1)
SEND_QUEUE, READ_QUEUE, TERMINATE_QUEUE = range(3)
TAGGED, LAST, VERSION, RDMAP_VERSION = 0x80, 0x40, 0x01, 0x40
# Octets of payload in a segment. MPA wants an FPDU to fit a TCP segment (RFC 5044, 4.2).
SEGMENT = 1400


class Broken(Exception):
    """The peer breaks a rule of iWARP, or is gone: the connection cannot go on."""


def _crc_table():
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        yield number


CRC_TABLE = list(_crc_table())


def crc32c(octets):
    """CRC32C, the checksum of FPDUs (RFC 5044, 4.4)."""
    state = 0xFFFFFFFF
    for octet in octets:
        state = CRC_TABLE[(state ^ octet) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


class Connection:
    """One connection. `receive_size` is the length of its receive buffers in octets."""

    def __init__(self, socket, receive_size):
        self.socket, self.receive_size = socket, receive_size
        self.stream = socket.makefile("rb")
        self.crc = False
        self.private_data = b""
        # Complete messages that nobody has taken yet, and the parts of the one that is arriving.
        self.messages, self.partial = collections.deque(), bytearray()
        self.received, self.sent, self.reads = 0, 0, 0
        # The memory of the RDMA Read in progress: its handle and length, its octets, and whether all have
        # arrived.
        self.sink, self.sink_length, self.sink_data, self.sink_complete = 0, 0, bytearray(), True

    # Set-up

    def _frame(self, key):
        """Receives a set-up frame: its flags, revision and private data."""
        frame = self._octets(20)
        flags, revision, length = struct.unpack("!BBH", frame[16:])
        if frame[:16] != key or revision not in (1, 2) or length > MAX_PRIVATE_DATA:
            raise Broken("no set-up frame of MPA")
        if flags & MARKERS:
            raise Broken("the peer requires markers")
        return flags, revision, self._octets(length)

    def accept(self, private_data):
        """Answers the set-up frame of a connecting peer."""
        flags, revision, private = self._frame(REQUEST_KEY)
        self.crc = bool(flags & CRC)
        answer_flags, depths = flags & CRC, b""
        if flags & ENHANCED and revision == 2:
            if len(private) < 4:
                raise Broken("enhanced set-up without IRD and ORD")
            ird, ord_ = struct.unpack("!HH", private[:4])
            private = private[4:]
            # The ready-to-receive message is an RDMA Write of nothing if the peer can, and an empty FPDU otherwise.
            rtr = 0, 0
            if ird & PEER_TO_PEER:
                rtr = (PEER_TO_PEER, RTR_WRITE) if ord_ & RTR_WRITE else (PEER_TO_PEER | RTR_EMPTY, 0)
            depths = struct.pack("!HH", rtr[0], 1 | rtr[1])
            answer_flags |= ENHANCED
        self.private_data = private
        answer = depths + private_data
        self.socket.sendall(REPLY_KEY + struct.pack("!BBH", answer_flags, revision, len(answer)) + answer)

    def connect(self, private_data):
        """Sets a connection up as its initiator, by revision 1, with CRCs."""
        self.socket.sendall(REQUEST_KEY + struct.pack("!BBH", CRC, 1, len(private_data)) + private_data)
        flags, _, self.private_data = self._frame(REPLY_KEY)
        if flags & REJECT:
            raise Broken("the connection is rejected")
        self.crc = True

    def close(self):
        """Ends the connection."""
        self.stream.close()
        self.socket.close()

    # Operations

    def send(self, message):
        """Sends a message (RDMAP Send)."""
        self.sent += 1
        self._untagged(SEND, SEND_QUEUE, self.sent, message)

    def receive(self):
        """Returns the next message, or None when the peer has closed the connection gracefully."""
        while not self.messages:
            if not self._arrive():
                return None
        return self.messages.popleft()

    def write(self, handle, offset, data):
        """Writes into the peer's memory (RDMA Write)."""
        for at in range(0, len(data), SEGMENT):
            self._tagged(WRITE, handle, offset + at, data[at : at + SEGMENT], at + SEGMENT >= len(data))

    def read(self, handle, offset, length):
        """Returns octets of the peer's memory (RDMA Read)."""
        self.reads += 1
        self.sink, self.sink_length = 0x1000 + self.reads, length
        self.sink_data, self.sink_complete = bytearray(), False
        request = struct.pack("!IQIIQ", self.sink, 0, length, handle, offset)
        self._untagged(READ_REQUEST, READ_QUEUE, self.reads, request)
        while not self.sink_complete:
            if len(self.messages) > 64 or not self._arrive():
                raise Broken("an RDMA Read is not answered")
        if len(self.sink_data) != length:
            raise Broken("an RDMA Read Response of another length")
        return bytes(self.sink_data)

    def terminate(self, layer, kind, code):
        """Tells the peer why the connection ends (RFC 5040, 4.8)."""
        self._untagged(TERMINATE, TERMINATE_QUEUE, 1, struct.pack("!BBH", layer << 4 | kind, code, 0))

    # DDP segments in FPDUs

    def _untagged(self, opcode, queue, number, message):
        for at in range(0, max(len(message), 1), SEGMENT):
            last = LAST if at + SEGMENT >= len(message) else 0
            header = struct.pack("!BBIIII", last | VERSION, RDMAP_VERSION | opcode, 0, queue, number, at)
            self._fpdu(header + message[at : at + SEGMENT])

    def _tagged(self, opcode, handle, offset, payload, last):
        control = TAGGED | VERSION | (LAST if last else 0)
        self._fpdu(struct.pack("!BBIQ", control, RDMAP_VERSION | opcode, handle, offset) + payload)

    def _fpdu(self, segment):
        octets = struct.pack("!H", len(segment)) + segment
        octets += bytes(-len(octets) % 4)
        self.socket.sendall(octets + struct.pack("<I", crc32c(octets) if self.crc else 0))

    def _octets(self, length):
        octets = self.stream.read(length)
        if len(octets) < length:
            raise Broken("the connection ends in the middle of something")
        return octets

    def _arrive(self):
        """Takes one FPDU. Returns False if the connection has ended before it."""
        first = self.stream.read(2)
        if not first:
            return False
        (length,) = struct.unpack("!H", first + self._octets(2 - len(first)))
        rest = self._octets(length + -(length + 2) % 4)
        (crc,) = struct.unpack("<I", self._octets(4))
        if self.crc and crc != crc32c(struct.pack("!H", length) + rest):
            raise Broken("a wrong CRC")
        if length:
            self._segment(rest[:length])
        return True

    def _segment(self, segment):
        control, operation = segment[0], segment[1] if len(segment) > 1 else 0
        opcode, last = operation & 0x0F, bool(control & LAST)
        if control & 0x03 != VERSION or operation & 0xC0 != RDMAP_VERSION:
            raise Broken("a segment of another version")
        if control & TAGGED:
            if len(segment) < 14:
                raise Broken("a short segment")
            handle, offset = struct.unpack("!IQ", segment[2:14])
            self._placed(opcode, handle, offset, segment[14:], last)
            return
        if len(segment) < 18:
            raise Broken("a short segment")
        _, queue, number, offset = struct.unpack("!IIII", segment[2:18])
        if opcode == TERMINATE:
            raise Broken(f"the peer terminates the connection: {segment[18:20].hex()}")
        if opcode == READ_REQUEST:
            self.terminate(0, 1, 0)
            raise Broken("an RDMA Read of memory that was not offered")
        if opcode not in SENDS or queue != SEND_QUEUE or number != self.received + 1 or offset != len(self.partial):
            raise Broken("a segment that is not the next one of a message")
        self.partial += segment[18:]
        if len(self.partial) > self.receive_size:
            self.terminate(1, 2, 5)
            raise Broken("a message that is longer than the receive buffer")
        if last:
            self.messages.append(bytes(self.partial))
            self.received, self.partial = self.received + 1, bytearray()

    def _placed(self, opcode, handle, offset, payload, last):
        if opcode == WRITE and not payload:
            # The ready-to-receive message of RFC 6581.
            return
        expected = not self.sink_complete and handle == self.sink and offset == len(self.sink_data)
        if opcode != READ_RESPONSE or not expected:
            self.terminate(1, 1, 0)
            raise Broken("a segment for memory that was not offered")
        if len(self.sink_data) + len(payload) > self.sink_length:
            self.terminate(1, 1, 1)
            raise Broken("an RDMA Read Response that is longer than was asked for")
        self.sink_data += payload
        self.sink_complete = last
