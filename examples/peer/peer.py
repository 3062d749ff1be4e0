#!/usr/bin/env python3
"""A small peer of RPC-over-RDMA over iWARP, for versions 1 and 2 (draft-ietf-nfsv4-rpcrdma-version-two-07).

    peer.py serve [--listen ADDRESS] [--port PORT] [--placement]     exports a file system in memory, /toy
    peer.py ping [--version 1|2] [--count N] [--port PORT] HOST      makes NULL calls of NFS version 3
"""

import argparse
import os
import signal
import socket
import sys
import threading
import time

import nfs
import placement
import version1
import version2
import xdr
from iwarp import Broken, Connection
from responder import NoRoom

PORT, EXPORT = 20049, b"/toy"
# Octets of a receive buffer: the default of version 2, and what private data announces in version 1.
RECEIVE = 4096
# Connections at once, and the longest time in seconds that one may be silent.
MAX_CONNECTIONS, SILENCE = 64, 600


def converse(connection, program, places):
    """Answers the messages of a connection until it ends. Its first message says which version it has."""
    flow, end = version2.Flow(), None
    while (message := connection.receive()) is not None:
        if not end:
            version = message[4:8]
            if version == xdr.words(1):
                end = version1.Responder(connection, program, RECEIVE)
            elif version == xdr.words(2) and message[12:16] != xdr.words(version1.ERROR):
                end = version2.Responder(connection, flow, program, placement.Placement() if places else None)
            else:
                flow.take(None)
                if len(message) >= version1.MIN_HEADER and message[12:16] != xdr.words(version1.ERROR):
                    reader = xdr.Reader(message)
                    # One message more, by the rules of version 2 (erratum 66) and of version 1.
                    connection.send(version1.err_vers(reader.word(), reader.word(), flow.credit(advertised=1)))
                continue
        end.received(message)


def served(accepted, program, room, places=False):
    connection = Connection(accepted, placement.SIZE if places else RECEIVE)
    try:
        connection.accept(version1.private_data(RECEIVE))
        converse(connection, program, places)
    except (Broken, NoRoom, OSError) as why:
        print(f"a connection ends: {why}", file=sys.stderr)
    finally:
        connection.close()
        room.release()


def serve(args):
    program, room = nfs.programs(EXPORT), threading.Semaphore(MAX_CONNECTIONS)
    listener = socket.create_server((args.listen, args.port))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(f"listening rdma {args.listen}:{listener.getsockname()[1]}", flush=True)
    while True:
        room.acquire()
        accepted, _ = listener.accept()
        accepted.settimeout(SILENCE)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=served, args=(accepted, program, room, args.placement), daemon=True).start()


def ping(args):
    connected = socket.create_connection((args.host, args.port), timeout=10)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(connected, RECEIVE)
    connection.connect(version1.private_data(RECEIVE))
    if args.version == 1:
        null = lambda xid: version1.null(connection, xid)
    else:
        null = version2.Requester(connection, version2.Flow()).null
    times = []
    for xid in range(1, args.count + 1):
        begin = time.perf_counter()
        null(xid)
        times.append(time.perf_counter() - begin)
    middle = sorted(times)[len(times) // 2] * 1e6
    print(f"{args.count} replies to NULL by version {args.version} from {args.host}: median {middle:.0f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("serve", help="exports a file system in memory, /toy")
    server.add_argument("--listen", default="127.0.0.1", help="the address to listen on (%(default)s)")
    server.add_argument("--placement", action="store_true", help="places bulk data by Sends, in version 2")
    client = commands.add_parser("ping", help="makes NULL calls of NFS version 3")
    client.add_argument("--version", type=int, choices=(1, 2), default=2, help="of RPC-over-RDMA (%(default)s)")
    client.add_argument("--count", type=int, default=10, help="the number of calls (%(default)s)")
    client.add_argument("host")
    for command in (server, client):
        command.add_argument("--port", type=int, default=PORT, help="%(default)s")
    args = parser.parse_args()
    if args.command == "serve":
        serve(args)
    try:
        ping(args)
    except (Broken, xdr.BadXdr, OSError) as why:
        sys.exit(f"{args.host}: {why}")


if __name__ == "__main__":
    main()
