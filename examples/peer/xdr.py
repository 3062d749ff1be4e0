"""XDR (RFC 4506), and the chunk lists that versions 1 and 2 have in common (RFC 8166, 4.3; version-two-07, 8.3)."""

import struct

# Segments that one list may have.
MAX_SEGMENTS = 256


class BadXdr(Exception):
    """Octets that do not match their description."""


class TooManySegments(BadXdr):
    """More segments than this peer takes."""


def words(*numbers):
    return struct.pack(f"!{len(numbers)}I", *numbers)


def long(number):
    return struct.pack("!Q", number)


def padding(data):
    return bytes(-len(data) % 4)


def opaque(data):
    return words(len(data)) + data + padding(data)


class Reader:
    """Reads values from octets, in order."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        if length > len(self.data) - self.at:
            raise BadXdr("the data ends too early")
        self.at += length
        return self.data[self.at - length : self.at]

    def word(self):
        return struct.unpack("!I", self.take(4))[0]

    def long(self):
        return struct.unpack("!Q", self.take(8))[0]

    def flag(self):
        value = self.word()
        if value > 1:
            raise BadXdr("a boolean that is neither 0 nor 1")
        return value == 1

    def opaque(self, most):
        length = self.word()
        if length > most:
            raise BadXdr("opaque data that is too long")
        data = self.take(length)
        if any(self.take(-length % 4)):
            raise BadXdr("padding that is not zero")
        return data

    def rest(self):
        return self.take(len(self.data) - self.at)

    # Chunk lists. A segment is (handle, length, offset).

    def segment(self):
        handle, length, offset = self.word(), self.word(), self.long()
        if offset + length > 2**64:
            raise BadXdr("a segment that passes the end of its memory")
        return handle, length, offset

    def read_list(self):
        """A list of (position, segment)."""
        found = []
        while self.flag():
            if len(found) == MAX_SEGMENTS:
                raise TooManySegments("too many segments in a Read list")
            found.append((self.word(), self.segment()))
        return found

    def write_chunk(self):
        count = self.word()
        if count > MAX_SEGMENTS:
            raise TooManySegments("too many segments in a chunk")
        return [self.segment() for _ in range(count)]

    def write_list(self):
        found = []
        while self.flag():
            if len(found) == MAX_SEGMENTS:
                raise TooManySegments("too many Write chunks")
            found.append(self.write_chunk())
        return found

    def reply_chunk(self):
        return self.write_chunk() if self.flag() else None


def write_chunk(segments):
    return words(len(segments)) + b"".join(words(handle, length) + long(offset) for handle, length, offset in segments)


def write_list(chunks):
    return b"".join(words(1) + write_chunk(chunk) for chunk in chunks) + words(0)


def reply_chunk(chunk):
    return words(0) if chunk is None else words(1) + write_chunk(chunk)
