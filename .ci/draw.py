#!/usr/bin/env python3
"""Draws doc comments of the sources, or sentences of a page, at random, for somebody to explain.

    .ci/draw.py                      twenty doc comments, each with its place and the item below it
    .ci/draw.py README.md            ten sentences of this page
    .ci/draw.py --seed 7 --count 5   the same five at each run
    .ci/draw.py --under connection   only from files below this folder
"""

import argparse
import pathlib
import random
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTER = re.compile(
    r"\s*(pub(\([a-z ]+\))? )?(unsafe |async |const )*(struct|enum|union|trait|impl|mod)\b"
)


def doc_comments(under):
    """Returns the doc comments of all sources, as (place, what they stand in, lines, item below)."""
    files = ["git", "ls-files", "--", f"{under}/*.rs" if under else "*.rs"]
    found = []
    for name in subprocess.run(files, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split():
        lines = (ROOT / name).read_text().split("\n")
        stands_in, at = "", 0
        while at < len(lines):
            kind = lines[at].strip()[:3]
            if kind not in ("///", "//!"):
                if OUTER.match(lines[at]):
                    stands_in = lines[at].strip()
                at += 1
                continue
            first = at
            while at < len(lines) and lines[at].strip().startswith(kind):
                at += 1
            below = at
            while below < len(lines) and lines[below].strip().startswith(("#[", "//")):
                below += 1
            is_inner = kind == "//!" or below >= len(lines)
            item = f"(the file {name})" if is_inner else lines[below]
            nested = lines[first].startswith(" ")
            found.append((f"{name}:{first + 1}", stands_in if nested else "", lines[first:at], item))
    return found


def sentences(page):
    """Returns the sentences of a Markdown page, without code blocks and headings."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    text = re.sub(r"^(#.*|<!--.*|\|[-|: ]+)$", "", text, flags=re.M)
    parts = re.split(r"\n\s*\n|\n(?=[-*|]|\d+\. )", text)
    joined = (" ".join(part.split()) for part in parts)
    cut = (re.split(r"(?<=[.!?:])\s+(?=[A-Z`*\[(])", part) for part in joined)
    return [sentence for part in cut for sentence in part if len(sentence.split()) > 3]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", nargs="?", help="a Markdown page, from the top of the repository")
    parser.add_argument("--seed", type=int, help="draw the same at each run")
    parser.add_argument("--count", type=int, help="how many (default: 20, of a page 10)")
    parser.add_argument("--under", default="", help="only doc comments below this folder")
    args = parser.parse_args()
    drawn = random.Random(args.seed)
    if args.page:
        found = sentences(args.page)
        for sentence in drawn.sample(found, min(args.count or 10, len(found))):
            print(f"{sentence}\n")
        return
    found = doc_comments(args.under)
    for place, stands_in, lines, item in drawn.sample(found, min(args.count or 20, len(found))):
        print(place + (f"   in: {stands_in}" if stands_in else ""))
        print("\n".join(lines) + f"\n{item}\n")


if __name__ == "__main__":
    main()
