#!/usr/bin/env python3
"""Checks that each lane that .github/workflows/ci.yml names is one of .ci/run, and needs no privilege.

With --test, checks that it finds what is wrong.
"""

import re
import sys

# What an ordinary user cannot do: to install packages, to load modules, to become another user.
PRIVILEGED = re.compile(r"\b(apt-get|modprobe|as_user|setpriv|mount)\b")
# The first word of a command.
FIRST_WORD = re.compile(r"(?:^|[;&|!('\"]|\b(?:then|do|if|strict))(?=\s*(\w+)\b(?!=))", re.M)


def functions(script):
    """The functions of a shell script with their bodies, by name."""
    return dict(re.findall(r"^(\w+)\(\) \{\n(.*?)^\}", script, re.M | re.S))


def lanes(script):
    """The lanes with their commands, by name."""
    joined = script.replace("\\\n", " ")
    return dict(re.findall(r"^\s*(?:lane|slow) ([a-z][\w-]*) \d+ (.*)", joined, re.M))


def privileged(command, known, seen=frozenset()):
    """Returns what a command, or a function that it calls, needs a privilege for."""
    code = "\n".join(line for line in command.splitlines() if not line.lstrip().startswith("#"))
    if found := PRIVILEGED.search(code):
        return found[1]
    for name in set(FIRST_WORD.findall(code)) & known.keys() - seen:
        if found := privileged(known[name], known, seen | {name}):
            return found
    return None


def problems(script, workflow):
    """Returns what is wrong with the lanes of a workflow."""
    named = re.search(r"^( *)lanes:\n((?:\1 +- .*\n)+)", workflow, re.M)
    if not named:
        return ["there is no list of lanes"]
    known, bodies, found = lanes(script), functions(script), []
    for name in re.sub(r"^ *- ", "", named[2], flags=re.M).split():
        if name not in known:
            found.append(f"{name}: there is no such lane")
        elif why := privileged(known[name], bodies):
            found.append(f"{name}: it needs a privilege for {why}")
    return found


def test():
    script = 'tool() {\n    apt-get install x\n}\nuser() {\n    # mount\n    tool\n}\n' \
        'lane good 1 cargo test\nlane bad 1 bash -c "$(strict user)"\nlane commented 1 bash -c "$(strict fine)"\n' \
        'fine() {\n    # apt-get\n    true\n}\n'
    workflow = "matrix:\n  lanes:\n    - good bad\n    - none commented\n"
    wanted = ["bad: it needs a privilege for apt-get", "none: there is no such lane"]
    assert problems(script, workflow) == wanted, problems(script, workflow)
    assert problems(script, "lanes:\n") == ["there is no list of lanes"]


if sys.argv[1:] == ["--test"]:
    test()
else:
    wrong = problems(open(".ci/run").read(), open(".github/workflows/ci.yml").read())
    for problem in wrong:
        print(f".github/workflows/ci.yml: {problem}", file=sys.stderr)
    sys.exit(bool(wrong))
