"""A file system in memory, and the procedures of NFS version 3 and MOUNT (RFC 1813) that its export needs.

It checks no user: whoever reaches the server may do everything.
"""

import collections
import os
import threading
import time

import rpc
import xdr
from xdr import long, words

OK, NOENT, EXIST, NOTDIR, ISDIR, INVAL, FBIG, NOSPC, NAMETOOLONG = 0, 2, 17, 20, 21, 22, 27, 28, 63
NOTEMPTY, STALE, BADHANDLE = 66, 70, 10001
REGULAR, DIRECTORY, LINK = 1, 2, 5
GUARDED, EXCLUSIVE, FILE_SYNC = 1, 2, 2
MAX_NAME, MAX_PATH, MAX_TRANSFER, MAX_FILE, MAX_NODES = 255, 1024, 1 << 20, 4 << 20, 10000
# The replies of these calls are kept, so that a call that is sent again is not executed again (RFC 1813, 4.5).
NOT_IDEMPOTENT, MAX_KEPT = (2, 8, 9, 10, 12, 13), 256
# Procedures with an argument that is DDP-eligible: WRITE and SYMLINK (RFC 8267, 4).
ELIGIBLE = {(rpc.NFS, 3, 7), (rpc.NFS, 3, 10)}


class Failed(Exception):
    """A status other than NFS3_OK."""

    def __init__(self, status):
        super().__init__(f"nfsstat3 {status}")
        self.status = status


class Node:
    def __init__(self, number, kind, mode):
        self.number, self.kind, self.mode, self.owner = number, kind, mode & 0o7777, [0, 0]
        self.data, self.entries, self.verifier = bytearray(), {}, None
        now = time.time_ns()
        self.times = [now, now, now]

    def changed(self):
        self.times[1] = self.times[2] = time.time_ns()

    def attributes(self):
        size = len(self.data) or len(self.entries)
        stamps = b"".join(words(stamp // 10**9, stamp % 10**9) for stamp in self.times)
        links = 2 if self.kind == DIRECTORY else 1
        numbers = words(self.kind, self.mode, links, *self.owner) + long(size) + long(size)
        return numbers + words(0, 0) + long(1) + long(self.number) + stamps

    def handle(self):
        return long(self.number)


def some(octets):
    """An optional value that is there."""
    return words(1) + octets


# Arguments

def handle(args):
    return args.opaque(64)


def name(args):
    return args.opaque(MAX_PATH)


def time_of(seconds, nanoseconds):
    if nanoseconds >= 10**9:
        raise Failed(INVAL)
    return seconds * 10**9 + nanoseconds


def sattr3(args):
    """Attributes to set: {"mode": ..., "uid": ..., "gid": ..., "size": ..., 0: atime, 1: mtime}."""
    found = {}
    for what, read in [("mode", args.word), ("uid", args.word), ("gid", args.word), ("size", args.long)]:
        if args.flag():
            found[what] = read()
    for which in (0, 1):
        how = args.word()
        if how > 2:
            raise xdr.BadXdr("a time that is set in a way that there is not")
        if how:
            found[which] = time.time_ns() if how == 1 else time_of(args.word(), args.word())
    return found


def guard(args):
    return (args.word(), args.word()) if args.flag() else None


def create_how(args):
    how = args.word()
    if how > EXCLUSIVE:
        raise xdr.BadXdr("a createmode3 that there is not")
    return how, args.take(8) if how == EXCLUSIVE else sattr3(args)


WORD, LONG = xdr.Reader.word, xdr.Reader.long
VERIFIER = lambda args: args.take(8)
DATA = lambda args: args.item(MAX_TRANSFER)
PATH = lambda args: args.item(MAX_PATH)

# Of each procedure: how its arguments are read, and how many words of absent attributes its failures have.
PROCEDURES = {}


def procedure(number, absent, *arguments):
    def register(function):
        PROCEDURES[number] = function, arguments, words(*[0] * absent)
        return function

    return register


class FileSystem:
    """The exported file system."""

    def __init__(self):
        self.lock, self.numbers = threading.Lock(), 1
        self.root = Node(1, DIRECTORY, 0o777)
        self.nodes, self.kept = {1: self.root}, collections.OrderedDict()
        self.verifier = os.urandom(8)

    # Nodes

    def node(self, handle, kind=None):
        if len(handle) != 8:
            raise Failed(BADHANDLE)
        node = self.nodes.get(int.from_bytes(handle, "big"))
        if not node:
            raise Failed(STALE)
        if kind == DIRECTORY and node.kind != DIRECTORY:
            raise Failed(NOTDIR)
        if kind == REGULAR and node.kind != REGULAR:
            raise Failed(ISDIR if node.kind == DIRECTORY else INVAL)
        return node

    def found(self, directory, name):
        if directory.kind != DIRECTORY:
            raise Failed(NOTDIR)
        node = directory if name in (b".", b"..") else directory.entries.get(name)
        if not node:
            raise Failed(NOENT)
        return node

    def made(self, handle, name, kind, mode):
        directory = self.node(handle, DIRECTORY)
        if len(name) > MAX_NAME:
            raise Failed(NAMETOOLONG)
        if name in directory.entries or name in (b".", b".."):
            raise Failed(EXIST)
        if not name or b"/" in name or b"\0" in name:
            raise Failed(INVAL)
        if len(self.nodes) >= MAX_NODES:
            raise Failed(NOSPC)
        self.numbers += 1
        node = Node(self.numbers, kind, mode)
        self.nodes[node.number] = directory.entries[name] = node
        directory.changed()
        return node

    def resize(self, node, size):
        if size > MAX_FILE:
            raise Failed(FBIG)
        del node.data[size:]
        node.data.extend(bytes(size - len(node.data)))

    def apply(self, node, attributes):
        if "size" in attributes:
            self.resize(node, attributes["size"])
        node.mode = attributes.get("mode", node.mode) & 0o7777
        node.owner = [attributes.get("uid", node.owner[0]), attributes.get("gid", node.owner[1])]
        node.changed()
        for which in (0, 1):
            node.times[which] = attributes.get(which, node.times[which])

    # Procedures. Each adds its results behind the status.

    @procedure(1, 0, handle)
    def getattr(self, out, node):
        out.add(self.node(node).attributes())

    @procedure(2, 2, handle, sattr3, guard)
    def setattr(self, out, node, attributes, _guard):
        node = self.node(node)
        self.apply(node, attributes)
        out.add(words(0) + some(node.attributes()))

    @procedure(3, 1, handle, name)
    def lookup(self, out, directory, name):
        directory = self.node(directory)
        node = self.found(directory, name)
        out.add(xdr.opaque(node.handle()) + some(node.attributes()) + some(directory.attributes()))

    @procedure(4, 1, handle, WORD)
    def access(self, out, node, wanted):
        out.add(some(self.node(node).attributes()) + words(wanted & 0x3F))

    @procedure(5, 1, handle)
    def readlink(self, out, node):
        node = self.node(node)
        if node.kind != LINK:
            raise Failed(INVAL)
        out.add(some(node.attributes()))
        out.add_item(bytes(node.data))

    @procedure(6, 1, handle, LONG, WORD)
    def read(self, out, node, offset, count):
        node = self.node(node, REGULAR)
        data = bytes(node.data[offset : offset + min(count, MAX_TRANSFER)])
        out.add(some(node.attributes()) + words(len(data), offset + len(data) >= len(node.data)))
        out.add_item(data)

    @procedure(7, 2, handle, LONG, WORD, WORD, DATA)
    def write(self, out, node, offset, count, _stable, data):
        node = self.node(node, REGULAR)
        data = data[:count]
        if offset + len(data) > MAX_FILE:
            raise Failed(FBIG)
        if data:
            self.resize(node, max(len(node.data), offset))
            node.data[offset : offset + len(data)] = data
            node.changed()
        out.add(words(0) + some(node.attributes()) + words(len(data), FILE_SYNC) + self.verifier)

    @procedure(8, 2, handle, name, create_how)
    def create(self, out, directory, name, how):
        mode, rest = how
        there = self.node(directory, DIRECTORY).entries.get(name)
        if there and (mode == GUARDED or mode == EXCLUSIVE and there.verifier != rest or there.kind != REGULAR):
            raise Failed(EXIST)
        node = there or self.made(directory, name, REGULAR, 0o600)
        if mode == EXCLUSIVE:
            node.verifier = rest
        else:
            self.apply(node, rest)
        self.added(out, directory, node)

    @procedure(9, 2, handle, name, sattr3)
    def mkdir(self, out, directory, name, attributes):
        node = self.made(directory, name, DIRECTORY, 0o755)
        self.apply(node, {key: value for key, value in attributes.items() if key != "size"})
        self.added(out, directory, node)

    @procedure(10, 2, handle, name, sattr3, PATH)
    def symlink(self, out, directory, name, _attributes, path):
        node = self.made(directory, name, LINK, 0o777)
        node.data = bytearray(path)
        self.added(out, directory, node)

    def added(self, out, directory, node):
        out.add(some(xdr.opaque(node.handle())) + some(node.attributes()))
        out.add(words(0) + some(self.node(directory).attributes()))

    @procedure(12, 2, handle, name)
    def remove(self, out, directory, name):
        self.removed(out, directory, name, is_directory=False)

    @procedure(13, 2, handle, name)
    def rmdir(self, out, directory, name):
        self.removed(out, directory, name, is_directory=True)

    def removed(self, out, directory, name, is_directory):
        directory = self.node(directory, DIRECTORY)
        if name in (b".", b".."):
            raise Failed(INVAL)
        node = self.found(directory, name)
        if (node.kind == DIRECTORY) != is_directory:
            raise Failed(NOTDIR if is_directory else ISDIR)
        if node.entries:
            raise Failed(NOTEMPTY)
        del directory.entries[name], self.nodes[node.number]
        directory.changed()
        out.add(words(0) + some(directory.attributes()))

    @procedure(16, 1, handle, LONG, VERIFIER, WORD)
    def readdir(self, out, directory, cookie, _verifier, most):
        self.listed(out, directory, cookie, most, lambda node: b"")

    @procedure(17, 1, handle, LONG, VERIFIER, WORD, WORD)
    def readdirplus(self, out, directory, cookie, _verifier, _names, most):
        also = lambda node: some(node.attributes()) + some(xdr.opaque(node.handle()))
        self.listed(out, directory, cookie, most, also)

    def listed(self, out, directory, cookie, most, also):
        """Lists a directory by the numbers of its nodes, which are the cookies and never used again."""
        directory = self.node(directory, DIRECTORY)
        out.add(some(directory.attributes()) + self.verifier)
        begin = out.length
        entries = sorted((node.number, name, node) for name, node in directory.entries.items() if node.number > cookie)
        for number, name, node in entries:
            entry = words(1) + long(number) + xdr.opaque(name) + long(number) + also(node)
            if out.length - begin + len(entry) + 128 > most:
                out.add(words(0, 0))
                return
            out.add(entry)
        out.add(words(0, 1))

    @procedure(18, 1, handle)
    def fsstat(self, out, node):
        out.add(some(self.node(node).attributes()) + long(1 << 30) * 3 + long(MAX_NODES) * 3 + words(0))

    @procedure(19, 1, handle)
    def fsinfo(self, out, node):
        sizes = words(*[MAX_TRANSFER, MAX_TRANSFER, 4096] * 2, 65536)
        out.add(some(self.node(node).attributes()) + sizes + long(MAX_FILE) + words(0, 1, 0x1B))

    @procedure(20, 1, handle)
    def pathconf(self, out, node):
        out.add(some(self.node(node).attributes()) + words(1, MAX_NAME, 1, 1, 0, 1))

    @procedure(21, 2, handle, LONG, WORD)
    def commit(self, out, node, _offset, _count):
        out.add(words(0) + some(self.node(node).attributes()) + self.verifier)

    # Calls

    def perform(self, number, args, results):
        """Reads the arguments of a procedure, performs it, and adds its results."""
        function, arguments, absent = PROCEDURES[number]
        try:
            values = [argument(args) for argument in arguments]
        except Failed as failed:
            results.add(words(failed.status) + absent)
            return
        args.end()
        with self.lock:
            kept = self.kept.get(args.data) if number in NOT_IDEMPOTENT else None
            if kept:
                results.add(kept)
                return
            done = rpc.Results(0)
            begin = len(done.parts[0])
            try:
                done.add(words(OK))
                function(self, done, *values)
                results.items += [(position + results.length - begin, length) for position, length in done.items]
                octets = b"".join(done.parts[1:])
            except Failed as failed:
                octets = words(failed.status) + absent
            results.add(octets)
            if number in NOT_IDEMPOTENT:
                self.kept[args.data] = octets
                while len(self.kept) > MAX_KEPT:
                    self.kept.popitem(last=False)

    def mnt(self, path, args, results):
        if args.opaque(MAX_PATH).rstrip(b"/") != path:
            results.add(words(NOENT))
            return
        results.add(words(OK) + xdr.opaque(self.root.handle()) + words(1, 1))


def programs(path):
    """The programs of a server with one export."""
    files = FileSystem()
    null = lambda args, results: args.end()
    perform = lambda number: lambda args, results: files.perform(number, args, results)
    nfs = {0: null} | {number: perform(number) for number in PROCEDURES}
    export = some(xdr.opaque(path)) + words(0, 0)
    mount = {
        0: null,
        1: lambda args, results: files.mnt(path, args, results),
        3: null,
        5: lambda args, results: results.add(export),
    }
    return rpc.Programs({(rpc.NFS, 3): nfs, (rpc.MOUNT, 3): mount}, ELIGIBLE)
