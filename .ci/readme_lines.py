#!/usr/bin/env python3
"""Runs the lines `cargo run ...` and `python3 examples/...` that the READMEs of examples show, in their order:
readme_lines.py [README...]

Programs are built once, as tests are, and run in a network namespace of their own, as servers listen on the usual
ports. A server runs until another one begins or the README ends, and then has to end without an error when it is told
to. Any other line has to succeed.
"""

import fcntl
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The longest time of a line, and of the beginning or the end of a server, seconds.
LIMIT = 300
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def programs():
    """Returns the folder of programs, and those of each package, the one that is run by default first."""
    words = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    described = json.loads(subprocess.check_output(words, cwd=ROOT))
    found = {}
    for package in described["packages"]:
        names = [target["name"] for target in package["targets"] if "bin" in target["kind"]]
        found[package["name"]] = sorted(names, key=lambda name: name != package["default_run"])
    return pathlib.Path(described["target_directory"]) / "debug", found


def late(_signal, _frame):
    """Ends a wait that SIGALRM interrupts."""
    raise TimeoutError(f"the server does not listen after {LIMIT} s")


def lines(readme, known):
    """Returns the lines of a README: each as it is shown, the program, and its arguments."""
    for block in re.findall(r"^```sh\n(.*?)^```$", readme.read_text(), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["python3"] and words[1].startswith("examples/"):
                yield line, sys.executable, words[1:]
                continue
            if words[:3] != ["cargo", "run", "-p"]:
                continue
            end = words.index("--") if "--" in words else len(words)
            program = known[words[3]][0]
            match words[4:end]:
                case []:
                    pass
                case ["--bin", name]:
                    program = name
                case other:
                    sys.exit(f"{readme}: what does {other} mean in `{line}`?")
            yield line, program, words[end + 1 :]


class Server:
    """A server that listens."""

    def __init__(self, line, command):
        self.line = line
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        signal.alarm(LIMIT)
        try:
            if not any(said.startswith("listening rdma") for said in self.process.stdout):
                sys.exit(f"`{line}` ended before it began to listen")
        except BaseException:
            self.process.kill()
            raise
        finally:
            signal.alarm(0)

    def end(self):
        self.process.terminate()
        # The rest of what it says must not keep it from ending.
        self.process.communicate(timeout=LIMIT)
        if self.process.returncode:
            sys.exit(f"`{self.line}` ended with status {self.process.returncode}")


def run(readme, shown, folder):
    server = None
    try:
        for line, program, arguments in shown:
            print(f"{readme.relative_to(ROOT)}: {line}", flush=True)
            # The path of an interpreter is absolute, and stays what it is.
            command = [folder / program, *arguments]
            if "serve" in arguments:
                if server:
                    server.end()
                server = Server(line, command)
                continue
            begin = time.monotonic()
            done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False)
            if done.returncode:
                sys.exit(f"`{line}` ended with status {done.returncode}")
            print(f"  {time.monotonic() - begin:.1f} s", flush=True)
        if server:
            server.end()
    finally:
        if server:
            # Does nothing to one that has ended.
            server.process.kill()


def main(names):
    inside = names[:1] == ["--in-namespace"]
    readmes = [pathlib.Path(name).resolve() for name in names[inside:]] or sorted(ROOT.glob("examples/*/README.md"))
    folder, known = programs()
    shown = {readme: list(lines(readme, known)) for readme in readmes}
    for readme, of_readme in shown.items():
        if not of_readme:
            sys.exit(f"{readme} shows no line to type")
    if not inside:
        # As the tests are built, which are needed as well, so that nothing is built twice.
        words = ["cargo", "test", "--workspace", "--no-run", "--locked"]
        subprocess.run(words, cwd=ROOT, check=True)
        users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        os.execvp("unshare", ["unshare", "--net", *users, "--", sys.executable, __file__, "--in-namespace", *names])
    signal.signal(signal.SIGALRM, late)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING))
    for readme, of_readme in shown.items():
        run(readme, of_readme, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
