#!/usr/bin/env python3
"""Checks drafts/errata-07.md: what the errata of version-two-07 say, and the tests that they name.

    errata.py            fails with a list of what is wrong
    errata.py --write    moves names of tests between "Test" and "Test wanted" first

Every entry has all lines, in their order. Sections exist. A test or file behind "Test" exists, and one behind
"Test wanted" does not yet.
"""
import re
import sys
import textwrap

import repo
from trace import Missing, Tracer

FILE = "drafts/errata-07.md"
LINES = ["Section", "Text", "Problem", "Here", "Otherwise", "Interoperates"]
TESTS = ["Test", "Test wanted"]
ENTRY = re.compile(r"^### (\d+)\. (.+)$", re.M)
LINE = re.compile(r"^- ([A-Z][a-z ]+): (.*(?:\n  .*)*)", re.M)
ANSWERS = re.compile(r"(yes|no|partly)\b")


def entries():
    """All entries, in order: {"group": "...", "number": 1, "title": "...", "Section": "...", ...}."""
    for part in (repo.ROOT / FILE).read_text().split("\n## ")[1:]:
        parts = ENTRY.split(part)
        for number, title, body in zip(parts[1::3], parts[2::3], parts[3::3]):
            lines = {}
            for name, text in LINE.findall(body):
                lines[f"{name} again" if name in lines else name] = " ".join(text.split())
            yield {"group": part.partition("\n")[0], "number": int(number), "title": title, **lines}


def names(entry, line):
    return re.findall(r"`([^`]*)`", entry.get(line, ""))


def there(tracer, name):
    """Whether there is such a test, or file."""
    try:
        tracer.seen(name)
    except Missing:
        return False
    return True


def wrong(entry, tracer, numbers):
    """What is wrong with an entry."""
    have = [name for name in entry if name in LINES + TESTS or name[0].isupper()]
    if have[: len(LINES)] != LINES or not have[len(LINES) :] or set(have[len(LINES) :]) - set(TESTS):
        yield f"lines {', '.join(have)}"
        return
    for section in entry["Section"].split(", "):
        document = "nfs-ulb-v2-06" if section.startswith("ulb ") else "version-two-07"
        if section.removeprefix("ulb ") not in repo.SECTIONS[document]:
            yield f"no section {section}"
    if '"' not in entry["Text"]:
        yield "the text is not quoted"
    if not ANSWERS.match(entry["Interoperates"]):
        yield "it says neither yes, no nor partly"
    for line in have[len(LINES) :]:
        if not names(entry, line):
            yield f"no name behind {line}"
    yield from (f"there is no {name}" for name in names(entry, "Test") if not there(tracer, name))
    written = [name for name in names(entry, "Test wanted") if there(tracer, name)]
    yield from (f"there is {name}, which is not wanted any more" for name in written)
    for other in re.findall(r"\bentry (\d+)", " ".join(entry[line] for line in LINES)):
        if int(other) not in numbers:
            yield f"no entry {other}"


def sorted_tests(tracer):
    """The file, with each test behind the line where it belongs."""
    names_of, out = {}, []
    for line in (repo.ROOT / FILE).read_text().split("\n") + ["### end"]:
        if line.startswith(tuple(f"- {name}: " for name in TESTS)) or (names_of and line.startswith("  ")):
            for name in re.findall(r"`([^`]*)`", line):
                names_of[name] = TESTS[0] if there(tracer, name) else TESTS[1]
            continue
        for kind in TESTS:
            of = [f"`{name}`" for name, its in names_of.items() if its == kind]
            if of:
                out += textwrap.wrap(f"- {kind}: {', '.join(of)}", 120, subsequent_indent="  ", break_long_words=False)
        names_of = {}
        out.append(line)
    return "\n".join(out[:-1])


def main(write):
    tracer = Tracer()
    if write:
        (repo.ROOT / FILE).write_text(sorted_tests(tracer))
    found = list(entries())
    numbers = [entry["number"] for entry in found]
    bad = [] if found and numbers == list(range(1, len(found) + 1)) else ["entries are not numbered from 1"]
    for entry in found:
        bad += [f"{entry['number']}: {what}" for what in wrong(entry, tracer, numbers)]
    for what in bad:
        print(f"{FILE}: {what}", file=sys.stderr)
    wanted = {name for entry in found for name in names(entry, "Test wanted")}
    tested = sum(1 for entry in found if "Test wanted" not in entry)
    print(f"{len(found)} errata of version-two-07, {tested} with all their tests, {len(wanted)} tests wanted")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(bool(sys.argv[1:])) if sys.argv[1:] in ([], ["--write"]) else __doc__)
