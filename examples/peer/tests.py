#!/usr/bin/env python3
"""Tests of this peer by itself: CRC32C, and the messages of version-two-07 that its responder has to refuse or take."""

import socket
import threading
import unittest

import iwarp
import nfs
import peer
import placement
import rpc
import version1
import version2 as v2
from xdr import opaque, words

GARBAGE = words(*[7] * 12)


class Client:
    """The raw client of a responder that runs in a thread. It counts messages by itself."""

    def __init__(self, places=False):
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(10)
        program, room = nfs.programs(b"/toy"), threading.Semaphore(1)
        self.thread = threading.Thread(target=peer.served, args=(theirs, program, room, places), daemon=True)
        self.thread.start()
        self.connection = iwarp.Connection(ours, 4096)
        self.connection.connect(version1.private_data(4096))
        self.sent, self.received, self.limit = 0, 0, 1

    def send(self, xid, kind, body=b"", version=2, credits=16):
        self.sent += 1
        self.connection.send(words(xid, version, (self.received + credits) % 2**32, kind) + body)

    def next(self):
        """The next message: its XID, type, and the rest."""
        message = self.connection.receive()
        if message is None:
            return None
        self.received += 1
        xid, version, credit, kind = (int.from_bytes(message[at : at + 4], "big") for at in range(0, 16, 4))
        assert version in (1, 2, 3), message.hex()
        self.limit = credit
        return xid, kind, message[16:]

    def open(self, values=((v2.RECEIVE_SIZE, words(4096)),)):
        """Exchanges properties. Returns those of the server, encoded."""
        self.announce(values)
        _, kind, announced = self.next()
        assert kind == v2.CONNPROP_FINAL
        return announced

    def announce(self, values):
        props = b"".join(words(which) + opaque(value) for which, value in values)
        self.send(1, v2.CONNPROP_FINAL, words(len(values)) + props)

    def end(self):
        self.connection.close()
        self.thread.join(10)
        assert not self.thread.is_alive()


def call(xid, payload=None, lists=words(0, 0, 0)):
    return words(0) + lists + (rpc.null_call(xid) if payload is None else payload)


class Version2(unittest.TestCase):
    def setUp(self):
        self.client = Client()
        self.addCleanup(self.client.end)

    def answered(self, *expected):
        """Checks that the next message is a reply to NULL, or RDMA2_ERROR with these words."""
        xid, *error = expected
        got = self.client.next()
        if error:
            self.assertEqual(got, (xid, v2.ERROR, words(*error)))
        else:
            self.assertEqual(got, (xid, v2.REPLY_INLINE, words(0) + rpc.accepted(xid, rpc.SUCCESS)))

    def lives(self):
        self.client.send(99, v2.CALL_INLINE, call(99))
        self.answered(99)

    def test_a_null_call_is_answered_and_credits_count_received_messages(self):
        self.client.open()
        for xid in range(2, 50):
            self.client.send(xid, v2.CALL_INLINE, call(xid))
            self.answered(xid)
            # Messages received and messages advertised (4.2.1, erratum 1).
            self.assertEqual(self.client.limit, self.client.sent + v2.CREDITS)

    def test_properties_are_taken_once(self):
        self.client.open()
        self.client.send(5, v2.CONNPROP_FINAL, words(0))
        self.answered(5, v2.INVAL_CONT)
        self.lives()

    def test_a_bad_value_is_refused_and_an_unknown_property_is_not(self):
        self.client.send(5, v2.CONNPROP_MIDDLE, words(1, 0x1234) + opaque(b"what"))
        self.assertEqual(self.client.next()[1], v2.CONNPROP_FINAL)
        self.client.send(6, v2.CALL_INLINE, call(6))
        self.answered(6, v2.INVAL_CONT)
        self.client.send(5, v2.CONNPROP_FINAL, words(1, v2.SEND_SIZE) + opaque(b"12345678"))
        self.answered(5, v2.BAD_PROPVAL)
        self.lives()

    def test_headers_that_cannot_be_used_are_refused(self):
        self.client.open()
        segment = words(77, 8, 0, 0)
        reply = words(8, rpc.REPLY, 0, 0, 0, 0)
        nothing = words(0, 0, 0)
        for kind, body, *error in [
            (3, call(8), v2.INVAL_HTYPE),
            (14, b"", v2.INVAL_HTYPE),
            (v2.CALL_INLINE, call(9), v2.BAD_XDR),
            (v2.CALL_INLINE, call(8, reply), v2.BAD_XDR),
            (v2.CALL_INLINE, call(8, b""), v2.BAD_XDR),
            (v2.CALL_INLINE, call(8, lists=words(2, 0, 0)), v2.BAD_XDR),
            (v2.CALL_INLINE, call(8, lists=words(0, 1, 2**32 - 1, 0)), v2.SEGMENTS, 256),
            (v2.CALL_INLINE, call(8, lists=words(0, 1, 200, 0)), v2.BAD_XDR),
            # NULL has no argument that could be reduced (erratum 67).
            (v2.CALL_INLINE, call(8, lists=words(1, 40) + segment + nothing), v2.READ_CHUNKS, 0),
            (v2.CALL_INLINE, words(5) + nothing + rpc.null_call(8), v2.BAD_XDR),
            (v2.CALL_EXTERNAL, words(0, 0, 0, 0, 0), v2.BAD_XDR),
            (v2.CALL_EXTERNAL, words(0, 1, 4) + segment + words(0, 0, 0, 0), v2.BAD_XDR),
        ]:
            with self.subTest(kind=kind, body=body.hex()):
                self.client.send(8, kind, body)
                self.answered(8, *error)
        self.lives()

    def test_a_continued_call_is_answered_and_a_grant_may_stand_between_its_parts(self):
        self.client.open()
        whole = rpc.null_call(7)
        self.client.send(7, v2.CALL_MIDDLE, words(len(whole) - 8) + whole[:8])
        self.client.send(0, v2.GRANT)
        self.client.send(7, v2.CALL_MIDDLE, words(len(whole) - 20) + whole[8:20])
        self.client.send(7, v2.CALL_INLINE, call(7, whole[20:]))
        self.answered(7)

    def test_a_message_of_another_version_is_no_part_of_a_call(self):
        self.client.open()
        whole = rpc.null_call(7)
        self.client.send(7, v2.CALL_MIDDLE, words(len(whole) - 8) + whole[:8])
        self.client.send(7, v2.CALL_INLINE, GARBAGE, version=1)
        self.answered(7, v2.VERS_MISMATCH)
        self.client.send(7, v2.CALL_INLINE, call(7, whole[8:]))
        self.answered(7)

    def test_parts_that_do_not_add_up_are_refused_once(self):
        self.client.open()
        whole = rpc.null_call(7)
        self.client.send(7, v2.CALL_MIDDLE, words(len(whole) - 8) + whole[:8])
        self.client.send(7, v2.CALL_MIDDLE, words(12) + whole[8:20])
        self.answered(7, v2.INVAL_CONT)
        self.client.send(7, v2.CALL_INLINE, call(7, whole[20:]))
        self.lives()
        # A message that interrupts is refused under its own XID, and the call goes on (erratum 38).
        self.client.send(7, v2.CALL_MIDDLE, words(len(whole) - 8) + whole[:8])
        self.client.send(8, v2.CALL_INLINE, call(8))
        self.answered(8, v2.INVAL_CONT)
        self.client.send(7, v2.CALL_INLINE, call(7, whole[8:]))
        self.answered(7)

    def test_a_long_continued_call_is_granted_credits(self):
        self.client.open()
        # A NULL call with arguments that nobody reads.
        whole = rpc.null_call(7) + bytes(4 * 100)
        sent, grants = 0, 0
        while sent < len(whole) - 4:
            sent += 4
            self.assertLess(self.client.sent, self.client.limit)
            self.client.send(7, v2.CALL_MIDDLE, words(len(whole) - sent) + whole[sent - 4 : sent])
            while self.client.limit - self.client.sent < 3:
                self.assertEqual(self.client.next()[1], v2.GRANT)
                grants += 1
        self.client.send(7, v2.CALL_INLINE, call(7, whole[sent:]))
        while (got := self.client.next())[1] == v2.GRANT:
            pass
        self.assertEqual(got[:2], (7, v2.REPLY_INLINE))
        self.assertGreater(grants, 3)

    def test_replies_wait_for_credits_and_more_calls_than_credits_end_the_connection(self):
        self.client.open()
        for xid in range(100, 100 + v2.CREDITS):
            self.client.send(xid, v2.CALL_INLINE, call(xid), credits=0)
        # Half of the credits are used, and no reply may tell more: only a GRANT may be sent.
        self.assertEqual(self.client.next()[1], v2.GRANT)
        self.client.send(0, v2.GRANT, credits=1)
        self.answered(100)
        self.client.send(0, v2.GRANT, credits=v2.CREDITS)
        for xid in range(101, 100 + v2.CREDITS):
            self.answered(xid)
        # No reply may leave any more, and one GRANT at most.
        self.client.send(0, v2.GRANT, credits=0)
        with self.assertRaises(ConnectionError):
            for xid in range(200, 100000):
                self.client.send(xid, v2.CALL_INLINE, call(xid), credits=-1)
        self.client.thread.join(10)
        self.assertFalse(self.client.thread.is_alive())

    def test_calls_whose_replies_wait_end_the_connection_when_they_are_too_many(self):
        self.client.open()
        calls, most = 0, 100 * v2.CREDITS
        # A credit for one message at a time, so that one reply leaves, which brings credits for more calls.
        try:
            while calls < most:
                while self.client.sent < self.client.limit:
                    self.client.send(7, v2.CALL_INLINE, call(7), credits=1)
                    calls += 1
                if self.client.next() is None:
                    break
        except ConnectionError:
            pass
        self.assertLess(calls, most)
        self.client.thread.join(10)
        self.assertFalse(self.client.thread.is_alive())

    def test_another_version_is_told_which_ones_there_are(self):
        self.client.send(7, 0, GARBAGE, version=3)
        self.assertEqual(self.client.next(), (7, v2.ERROR, words(1, 1, 2)))
        self.client.open()
        self.lives()

    def test_what_is_too_short_and_replies_to_no_call_are_discarded(self):
        self.client.open()
        self.client.connection.send(b"short")
        self.client.sent += 1
        self.client.send(8, v2.REPLY_INLINE, words(0) + rpc.accepted(8, rpc.SUCCESS))
        self.client.send(8, v2.ERROR, words(v2.BAD_XDR))
        self.lives()

    def test_grants_use_credits_and_are_granted_more(self):
        self.client.open()
        for _ in range(100):
            while self.client.sent == self.client.limit:
                self.assertEqual(self.client.next()[1], v2.GRANT)
            self.client.send(0, v2.GRANT)

    def test_values_of_properties_are_checked(self):
        for number, (which, value, is_good) in enumerate([
            (v2.SEND_SIZE, b"1", False),
            (v2.RECEIVE_SIZE, b"", True),
            (v2.REVERSE_SUPPORT, words(4), False),
            (v2.HOST_AUTH, opaque(b"key"), True),
            (v2.HOST_AUTH, words(5, 0), False),
            (v2.HOST_AUTH, words(0, 0), False),
            (0xFFFFFF99, b"odd", True),
        ]):
            client = Client()
            client.send(5, v2.CONNPROP_FINAL, words(1, which) + opaque(value))
            self.assertEqual(client.next()[1], v2.CONNPROP_FINAL)
            client.send(6, v2.CALL_INLINE, call(6))
            got = client.next()
            client.end()
            with self.subTest(number=number):
                expected = (6, v2.REPLY_INLINE) if is_good else (5, v2.ERROR)
                self.assertEqual(got[:2], expected)

    def test_a_reply_that_is_long_comes_in_messages_that_fit_the_receives(self):
        self.client.send(1, v2.CONNPROP_FINAL, words(1, v2.RECEIVE_SIZE) + opaque(words(48)))
        self.assertEqual(self.client.next()[1], v2.CONNPROP_FINAL)
        # FSINFO of the root: 164 octets of results.
        fsinfo = rpc.null_call(7)[:20] + words(19, 0, 0, 0, 0) + opaque((1).to_bytes(8, "big"))
        self.client.send(7, v2.CALL_INLINE, call(7, fsinfo))
        whole, left = b"", None
        while left != 0:
            xid, kind, rest = self.client.next()
            self.assertLessEqual(16 + len(rest), 48)
            self.assertEqual((xid, kind), (7, v2.REPLY_INLINE if left is not None and left <= 28 else v2.REPLY_MIDDLE))
            part = rest[4:]
            left = int.from_bytes(rest[:4], "big") if kind == v2.REPLY_MIDDLE else 0
            whole += part
            self.client.send(0, v2.GRANT)
        self.assertEqual(whole[:24], rpc.accepted(7, rpc.SUCCESS))
        self.assertEqual(len(whole), 24 + 4 + 4 + 84 + 28 + 8 + 12)


    def test_a_reply_of_too_many_messages_is_refused(self):
        self.client.send(1, v2.CONNPROP_FINAL, words(1, v2.RECEIVE_SIZE) + opaque(words(24)))
        self.assertEqual(self.client.next()[1], v2.CONNPROP_FINAL)
        nfs_call = lambda xid, procedure, args: rpc.null_call(xid)[:20] + words(procedure, 0, 0, 0, 0) + args
        # CREATE of "f" in the root: the file has handle 2. SETATTR sets its size, and READ wants 16 KiB.
        root, file = (opaque(number.to_bytes(8, "big")) for number in (1, 2))
        for xid, procedure, args in [
            (2, 8, root + opaque(b"f") + words(0, 0, 0, 0, 0, 0, 0)),
            (3, 2, file + words(0, 0, 0, 1, 0, 16384, 0, 0, 0)),
        ]:
            self.client.send(xid, v2.CALL_INLINE, call(xid, nfs_call(xid, procedure, args)), credits=200)
            while self.client.next()[1] != v2.REPLY_INLINE:
                pass
        read = nfs_call(4, 6, file + words(0, 0, 16384))
        self.client.send(4, v2.CALL_INLINE, call(4, read))
        length = 24 + 4 + 88 + 8 + 4 + 16384
        self.answered(4, v2.REPLY_RESOURCE, length)
        self.lives_in_parts()

    def lives_in_parts(self):
        self.client.send(99, v2.CALL_INLINE, call(99))
        while (got := self.client.next())[1] == v2.REPLY_MIDDLE:
            self.assertEqual(got[0], 99)
        self.assertEqual(got[:2], (99, v2.REPLY_INLINE))

    def test_a_time_with_a_second_of_nanoseconds_is_invalid(self):
        self.client.open()
        root = opaque((1).to_bytes(8, "big"))
        # SETATTR of an atime and no guard, and GETATTR, which must still have times that can be encoded.
        for nanoseconds, status in [(10**9, nfs.INVAL), (2**32 - 1, nfs.INVAL), (10**9 - 1, nfs.OK)]:
            times = words(2, 2**32 - 1, nanoseconds, 0, 0)
            payload = rpc.null_call(3)[:20] + words(2, 0, 0, 0, 0) + root + words(0, 0, 0, 0) + times
            self.client.send(3, v2.CALL_INLINE, call(3, payload))
            got, kind, rest = self.client.next()
            self.assertEqual((got, kind), (3, v2.REPLY_INLINE))
            self.assertEqual(rest[4:32], rpc.accepted(3, rpc.SUCCESS) + words(status))
            payload = rpc.null_call(4)[:20] + words(1, 0, 0, 0, 0) + root
            self.client.send(4, v2.CALL_INLINE, call(4, payload))
            self.assertEqual(self.client.next()[2][4:32], rpc.accepted(4, rpc.SUCCESS) + words(nfs.OK))


class Placed(unittest.TestCase):
    """Placement by Sends, with the numbers of the draft's section "Example"."""

    # A client whose receives have three targets of 512 octets behind a segment of 256, and that wants all results.
    RECEIVES = [(v2.SEND_SIZE, words(66560)), (v2.RECEIVE_SIZE, words(1792))]
    RECEIVES += [(placement.STRUCTURE, words(2, 1, 256, 0, 0, 3, 512, 0, 1)), (placement.SMALLEST_RESULT, words(1))]

    def setUp(self):
        self.client = Client(places=True)
        self.addCleanup(self.client.end)
        self.announced = self.client.open(self.RECEIVES)
        self.create(self.client)

    def create(self, client):
        """CREATE of "f" in the root, whose handle is 1; the new file has handle 2."""
        create = opaque((1).to_bytes(8, "big")) + opaque(b"f") + words(0, 0, 0, 0, 0, 0, 0)
        client.send(2, v2.CALL_INLINE, call(2, self.nfs(2, 8, create)))
        self.assertEqual(client.next()[1], v2.REPLY_INLINE)

    @staticmethod
    def nfs(xid, procedure, args):
        return rpc.null_call(xid)[:20] + words(procedure, 0, 0, 0, 0) + args

    def write(self, xid, count, offset=0):
        """The reduced stream of a WRITE of so many octets."""
        return self.nfs(xid, 7, opaque((2).to_bytes(8, "big")) + words(0, offset, count, 2, count))

    def placed(self, xid, stream, data, *items, lists=words(0, 0, 0)):
        """Sends RDMA2_CALL_PLACED, with the data in the target behind 1024 octets."""
        entries = b"".join(words(*item) for item in items)
        header = words(0) + lists + words(len(items)) + entries + words(len(stream))
        body = header + stream
        body += bytes(1024 - 16 - len(body)) + data if data else b""
        self.client.send(xid, placement.CALL, body)

    def written(self, xid):
        got, kind, rest = self.client.next()
        self.assertEqual((got, kind, rest[4:32]), (xid, v2.REPLY_INLINE, rpc.accepted(xid, 0) + words(0)))

    def test_the_structure_is_that_of_the_example(self):
        structure = words(0xFFFFFF01, 0x24, 2, 1, 1024, 0, 0, 1, 65536, 4096, 1)
        self.assertIn(structure, self.announced)

    def test_a_call_in_one_message_and_a_reply_in_several(self):
        data = bytes(range(256)) * 16
        stream = self.write(3, len(data))
        self.placed(3, stream, data, (len(stream), len(data), 0, 0))
        self.written(3)
        read = opaque((2).to_bytes(8, "big")) + words(0, 1, 3001)
        self.client.send(4, v2.CALL_INLINE, call(4, self.nfs(4, 6, read)))
        messages = [self.client.next() for _ in range(2)]
        (_, kind, first), (_, last_kind, last) = messages
        self.assertEqual((kind, last_kind), (placement.REPLY_MIDDLE, placement.REPLY))
        # One message follows; the Payload stream of 128 octets is in the first: RPC header, status, attributes,
        # count, eof, and the length of the data.
        length = 24 + 4 + 88 + 8 + 4
        self.assertEqual(first[:12], words(1, 0, length))
        self.assertEqual(last[:28], words(0, 1, length, 3001, 0, 0, 0))
        # Three targets of the first message, and three of the second.
        found = first[256 - 16 :] + last[256 - 16 :]
        self.assertEqual(found, data[1:3002])
        self.assertFalse(any(first[12 + length : 256 - 16]))

    def read(self, client, xid):
        """The header types of the reply to a READ."""
        data = bytes(2048)
        stream = self.write(xid, len(data))
        client.send(xid, v2.CALL_INLINE, call(xid, stream + data))
        self.assertEqual(client.next()[1], v2.REPLY_INLINE)
        read = opaque((2).to_bytes(8, "big")) + words(0, 0, len(data))
        client.send(xid + 1, v2.CALL_INLINE, call(xid + 1, self.nfs(xid + 1, 6, read)))
        kinds = [client.next()[1]]
        while kinds[-1] in v2.REPLY_MIDDLES:
            kinds.append(client.next()[1])
        return kinds

    def test_nothing_is_placed_after_properties_were_refused(self):
        self.assertIn(placement.REPLY, self.read(self.client, 3))
        # The properties of the server have the XID of its client's.
        self.client.send(1, v2.ERROR, words(v2.BAD_PROPVAL))
        self.assertNotIn(placement.REPLY, self.read(self.client, 5))

    def test_a_message_with_a_bad_value_has_no_effect_on_placement(self):
        client = Client(places=True)
        self.addCleanup(client.end)
        # The structure has the default length of receives, so that it would count.
        structure = (placement.STRUCTURE, words(2, 1, 256, 0, 0, 1, 3840, 0, 1))
        client.open([structure, (placement.SMALLEST_RESULT, words(1)), (placement.SUPPORT, words(1, 2))])
        self.assertEqual(client.next()[::2], (1, words(v2.BAD_PROPVAL)))
        self.create(client)
        self.assertNotIn(placement.REPLY, self.read(client, 3))

    def test_properties_of_another_version_are_none(self):
        client = Client(places=True)
        self.addCleanup(client.end)
        # The first message decides which version is spoken.
        client.send(5, v2.CALL_INLINE, call(5))
        self.assertEqual([client.next()[1] for _ in range(2)], [v2.CONNPROP_FINAL, v2.REPLY_INLINE])
        client.send(7, v2.CONNPROP_FINAL, words(0), version=1)
        self.assertEqual(client.next(), (7, v2.ERROR, words(v2.VERS_MISMATCH)))
        client.announce(self.RECEIVES)
        self.create(client)
        self.assertIn(placement.REPLY, self.read(client, 3))

    def test_properties_that_were_refused_leave_no_placement(self):
        # The first message is taken, with a structure that has the default length of receives.
        structure = words(2, 1, 256, 0, 0, 1, 3840, 0, 1)
        first = [(placement.STRUCTURE, structure), (placement.SMALLEST_RESULT, words(1)), (v2.SEND_SIZE, words(66560))]
        for last in ([], [(placement.SUPPORT, words(1, 2))]):
            self.client = client = Client(places=True)
            self.addCleanup(client.end)
            for kind, values in (v2.CONNPROP_MIDDLE, first), (v2.CONNPROP_FINAL, last):
                values = [words(which) + opaque(value) for which, value in values]
                client.send(1, kind, words(len(values)) + b"".join(values))
            self.assertEqual(client.next()[1], v2.CONNPROP_FINAL)
            if last:
                self.assertEqual(client.next(), (1, v2.ERROR, words(v2.BAD_PROPVAL)))
            self.create(client)
            self.assertEqual(placement.REPLY in self.read(client, 3), not last)
            stream = self.write(5, 8)
            self.placed(5, stream, b"12345678", (len(stream), 8, 0, 0))
            if last:
                self.assertEqual(client.next(), (5, v2.ERROR, words(v2.INVAL_HTYPE)))
            else:
                self.written(5)

    def test_a_call_in_several_messages(self):
        data = bytes(65536) + b"the end of it"
        stream = self.write(3, len(data))
        head = words(1, len(stream) - 8, 8) + stream[:8]
        self.client.send(3, placement.CALL_MIDDLE, head + bytes(1008 - len(head)) + data[:65536])
        self.client.send(0, v2.GRANT)
        self.placed(3, stream[8:], data[65536:], (len(stream), len(data), 0, 0))
        self.written(3)

    def test_items_and_messages_that_do_not_fit_are_refused(self):
        data = b"12345678"
        stream = self.write(3, 8)
        at = len(stream)
        for items, error in [
            ([(at + 4, 8, 0, 0)], [v2.BAD_XDR]),
            ([(at + 2, 8, 0, 0)], [v2.BAD_XDR]),
            ([(4, 8, 0, 0)], [v2.BAD_XDR]),
            ([(at, 0, 0, 0)], [v2.BAD_XDR]),
            ([(at, 8, 1, 0)], [v2.BAD_XDR]),
            ([(at, 8, 0, 4)], [v2.BAD_XDR]),
            ([(at, 8, 0, 2)], [v2.BAD_XDR]),
            ([(at, 4, 0, 0), (at + 4, 4, 0, 0)], [v2.BAD_XDR]),
            ([(at, 8, 0, 0)] * 17, [v2.BAD_XDR]),
            ([(at, 5 << 20, 0, 0)], [v2.SYSTEM]),
        ]:
            with self.subTest(items=items):
                self.placed(3, stream, data, *items)
                self.assertEqual(self.client.next(), (3, v2.ERROR, words(*error)))
        # Lengths that differ from the Payload stream, and items that are not eligible, are GARBAGE_ARGS.
        garbage = words(0) + rpc.accepted(3, rpc.GARBAGE_ARGS)
        self.placed(3, stream, data, (at, 4, 0, 0))
        self.assertEqual(self.client.next(), (3, v2.REPLY_INLINE, garbage))
        # So is a length with round-up, which a Read chunk may have.
        self.placed(3, self.write(3, 5), b"12345\0\0\0", (at, 8, 0, 0))
        self.assertEqual(self.client.next(), (3, v2.REPLY_INLINE, garbage))
        self.placed(3, rpc.null_call(3), data, (40, 8, 0, 0))
        self.assertEqual(self.client.next(), (3, v2.REPLY_INLINE, garbage))
        self.placed(3, stream, data, (at, 8, 0, 0), lists=words(1, at) + words(7, 8, 0, 0) + words(0, 0, 0))
        self.assertEqual(self.client.next(), (3, v2.ERROR, words(v2.READ_CHUNKS, 0)))
        # Sequences: no message follows, too many follow, and a final message that comes too early.
        for messages, remaining, error in [(0, 4, v2.INVAL_CONT), (128, 4, v2.SYSTEM), (2, len(stream) - 4, None)]:
            self.client.send(5, placement.CALL_MIDDLE, words(messages, remaining, 4) + words(5))
            if error:
                self.assertEqual(self.client.next(), (5, v2.ERROR, words(error)))
                # The rest of it is discarded, up to the final message.
            self.placed(5, self.write(5, 8)[4:], data, (at, 8, 0, 0))
        self.assertEqual(self.client.next(), (5, v2.ERROR, words(v2.INVAL_CONT)))
        # Messages that do not count down, and a Payload stream that reaches into the target of an item.
        for messages, remaining in [(2, len(stream) - 4), (2, len(stream) - 8)]:
            self.client.send(5, placement.CALL_MIDDLE, words(messages, remaining, 4) + words(5))
        self.assertEqual(self.client.next(), (5, v2.ERROR, words(v2.INVAL_CONT)))
        self.placed(5, stream[8:], data, (at, 8, 0, 0))
        long = stream + bytes(1000)
        self.client.send(3, placement.CALL, words(0, 0, 0, 0, 1, at, 8, 0, 0, len(long)) + long + data)
        self.assertEqual(self.client.next(), (3, v2.ERROR, words(v2.BAD_XDR)))
        self.placed(6, self.write(6, 8), data, (at, 8, 0, 0))
        self.written(6)


class Mixed(unittest.TestCase):
    """Parts of both kinds with one XID (the draft's section "Error Handling")."""

    def test_one_error_answers_both_and_the_rest_of_both_is_discarded(self):
        whole = rpc.null_call(7)
        begin = {
            v2.CALL_MIDDLE: words(len(whole) - 8) + whole[:8],
            placement.CALL_MIDDLE: words(1, len(whole) - 8, 8) + whole[:8],
        }
        end = {
            v2.CALL_INLINE: call(7, whole[8:]),
            placement.CALL: words(0, 0, 0, 0, 0, len(whole) - 8) + whole[8:],
        }
        for first, second in (list(begin), list(begin)[::-1]):
            for last in (list(end), list(end)[::-1]):
                with self.subTest(first=first, last=last):
                    client = Client(places=True)
                    client.open()
                    client.send(7, first, begin[first])
                    client.send(7, second, begin[second])
                    self.assertEqual(client.next(), (7, v2.ERROR, words(v2.INVAL_CONT)))
                    for kind in last:
                        client.send(7, kind, end[kind])
                    client.send(7, v2.CALL_INLINE, call(7))
                    self.assertEqual(client.next(), (7, v2.REPLY_INLINE, words(0) + rpc.accepted(7, rpc.SUCCESS)))
                    client.end()

    def test_a_call_that_begins_ends_those_that_were_refused(self):
        client = Client(places=True)
        client.open()
        client.send(7, placement.CALL_MIDDLE, words(0, 4, 4) + words(7))
        self.assertEqual(client.next(), (7, v2.ERROR, words(v2.INVAL_CONT)))
        placed = words(0, 0, 0, 0, 0, 40) + rpc.null_call(7)
        for xid, kind, body in [(8, v2.CALL_INLINE, call(8)), (7, placement.CALL, placed)]:
            client.send(xid, kind, body)
            self.assertEqual(client.next(), (xid, v2.REPLY_INLINE, words(0) + rpc.accepted(xid, rpc.SUCCESS)))
        client.end()


class PlacedInLongReceives(Placed):
    """The same, with a client whose receives are longer than any message that the server sends."""

    RECEIVES = [(v2.SEND_SIZE, words(66560)), (v2.RECEIVE_SIZE, words(1792 + 131072))]
    RECEIVES += [(placement.STRUCTURE, words(3, 1, 256, 0, 0, 3, 512, 0, 1, 1, 131072, 0, 0))]
    RECEIVES += [(placement.SMALLEST_RESULT, words(1))]


class Both(unittest.TestCase):
    def test_crc32c_is_that_of_rfc_3720(self):
        self.assertEqual(iwarp.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(iwarp.crc32c(bytes(32)), 0x8A9136AA)

    def test_a_read_response_without_end_is_refused(self):
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(10)
        reader, answerer = iwarp.Connection(ours, 4096), iwarp.Connection(theirs, 4096)

        def answer():
            try:
                for at in range(0, 1 << 20, 4):
                    answerer._tagged(iwarp.READ_RESPONSE, 0x1001, at, b"data", False)
            except OSError:
                pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with self.assertRaisesRegex(iwarp.Broken, "longer than was asked for"):
            reader.read(7, 0, 4)
        self.assertEqual(len(reader.sink_data), 4)
        reader.close()
        thread.join(10)
        self.assertFalse(thread.is_alive())
        answerer.close()

    def test_null_is_called_by_both_versions(self):
        for version in (1, 2):
            client = Client()
            null = v2.Requester(client.connection, v2.Flow()).null
            if version == 1:
                null = lambda xid: version1.null(client.connection, xid)
            for xid in range(1, 40):
                null(xid)
            client.end()


if __name__ == "__main__":
    unittest.main()
