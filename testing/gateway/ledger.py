#!/usr/bin/env python3
"""NFSv4.1 clients that work while what lies between them and their server is killed and started again.

    ledger.py HOST:PORT /EXPORT FOLDER PROGRESS KILLS

Each client writes to a file of its own, reads it back and makes folders. A call that is not answered is made again
over another connection, as the same one of the session, until it is. On SIGTERM the clients end, and what the server
had acknowledged is looked for in FOLDER, where the export lies on the server's disk: each byte that was written, and
each folder. A folder that would be made twice is an error (NFS4ERR_EXIST) at once.

PROGRESS is a file that has the number of rounds of each client. The clients must have lost their connections KILLS
times or more.
"""

import os
import random
import signal
import struct
import sys
import threading
import time

import nfs41
from nfs41 import Client, Closed, Wrong, opaque

CLIENTS = 3
# A client's file has so many places, each of which is written again and again.
PLACES, PLACE = 12, 100_000
LENGTHS = 100, 8192, PLACE
# At most this is read at a time, so that the server keeps the reply (ca_maxresponsesize_cached).
LONGEST_READ = 8192


class Lasting(Client):
    """A client that makes a call again over another connection until it is answered."""

    keeps, lost = 1, 0

    def exchange(self, call, meanwhile=None):
        end = time.monotonic() + self.seconds
        while True:
            try:
                return super().exchange(call, meanwhile)
            except (Closed, ConnectionError) as error:
                if time.monotonic() > end:
                    raise Wrong(f"a call was not answered within {self.seconds} s: {error}") from error
            self.socket.close()
            self.lost += 1
            while True:
                time.sleep(0.02)
                try:
                    self.connect()
                    break
                except ConnectionError as error:
                    if time.monotonic() > end:
                        raise Wrong(f"no connection within {self.seconds} s: {error}") from error


class Worker:
    """A client with the record of what was acknowledged to it."""

    def __init__(self, address, export, number):
        self.number, self.rounds, self.failure = number, 0, None
        self.name, self.content = f"file{number}", bytearray(PLACES * PLACE)
        self.client = Lasting(address, b"client%d" % number + os.urandom(8))
        self.directory = self.client.lookup(export)
        both = nfs41.ACCESS_READ | nfs41.ACCESS_WRITE | nfs41.WANT_NO_DELEGATION
        self.file, self.state, _ = self.client.open(self.directory, self.name.encode(), both, create=True)

    def folder(self, index):
        """The name of the folder of a round."""
        return f"{self.number}.{index}"

    def run(self, stop):
        """Works until it is to stop."""
        try:
            while not stop.is_set():
                self.round()
                self.rounds += 1
            put = (nfs41.PUTFH, opaque(self.file))
            reply = self.client.compound([put, (nfs41.CLOSE, struct.pack(">I", 0) + self.state)])
            reply.result(nfs41.PUTFH)
            reply.result(nfs41.CLOSE)
            self.client.end()
        except (Wrong, OSError) as error:
            self.failure = error

    def round(self):
        """Writes, reads and makes a folder."""
        put, at = (nfs41.PUTFH, opaque(self.file)), self.rounds % PLACES * PLACE
        data = os.urandom(random.choice(LENGTHS))
        # Stable when it is answered (FILE_SYNC4).
        args = self.state + struct.pack(">QI", at, 2) + opaque(data)
        reply = self.client.compound([put, (nfs41.WRITE, args)])
        reply.result(nfs41.PUTFH)
        reply.result(nfs41.WRITE)
        if reply.u32() != len(data):
            raise Wrong("fewer bytes were written than should be")
        self.content[at : at + len(data)] = data
        if self.read(at, min(len(data), LONGEST_READ)) != data[:LONGEST_READ]:
            raise Wrong("READ returns other bytes than were written")
        # A directory without attributes (NF4DIR).
        args = struct.pack(">I", 2) + opaque(self.folder(self.rounds).encode()) + struct.pack(">II", 0, 0)
        reply = self.client.compound([(nfs41.PUTFH, opaque(self.directory)), (nfs41.CREATE, args)])
        reply.result(nfs41.PUTFH)
        reply.result(nfs41.CREATE)

    def read(self, at, length):
        """Reads. A READ that was made twice is made anew: nfs-ganesha replays its reply without the data."""
        put, lost = (nfs41.PUTFH, opaque(self.file)), None
        while lost != self.client.lost:
            lost = self.client.lost
            reply = self.client.compound([put, (nfs41.READ, self.state + struct.pack(">QI", at, length))])
        reply.result(nfs41.PUTFH)
        reply.result(nfs41.READ)
        reply.u32()
        return reply.opaque()

    def check(self, disk):
        """Looks for what was acknowledged."""
        with open(os.path.join(disk, self.name), "rb") as file:
            found = file.read()
        if found != self.content[: len(found)] or any(self.content[len(found) :]):
            raise Wrong(f"{self.name} does not have what was acknowledged")
        made = {self.folder(index) for index in range(self.rounds)}
        there = {name for name in os.listdir(disk) if name.startswith(f"{self.number}.")}
        if made != there:
            raise Wrong(f"client {self.number} made {len(made)} folders, and there are {len(there)}")


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    export, disk, progress, kills = sys.argv[2].encode(), sys.argv[3], sys.argv[4], int(sys.argv[5])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    workers = [Worker((host, int(port)), export, number) for number in range(CLIENTS)]
    threads = [threading.Thread(target=worker.run, args=(stop,)) for worker in workers]
    for thread in threads:
        thread.start()
    while not stop.wait(0.05) and all(thread.is_alive() for thread in threads):
        with open(progress + ".new", "w", encoding="ascii") as file:
            print(*(worker.rounds for worker in workers), file=file)
        os.replace(progress + ".new", progress)
    stop.set()
    for thread in threads:
        thread.join()
    for worker in workers:
        if worker.failure:
            raise Wrong(f"client {worker.number}, round {worker.rounds}: {worker.failure}")
    for worker in workers:
        worker.check(disk)
        if worker.client.lost < kills:
            raise Wrong(f"client {worker.number} lost its connection {worker.client.lost} times, not {kills}")
    rounds, lost = (sum(each) for each in zip(*((worker.rounds, worker.client.lost) for worker in workers)))
    print(f"ledger: {rounds} rounds of {CLIENTS} clients, {lost} connections lost, everything is there")


try:
    main()
except (Wrong, OSError) as error:
    sys.exit(f"ledger: {error}")
