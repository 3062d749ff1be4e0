#!/usr/bin/env python3
"""The compliance report: requirements by document and section, the code that cites the section, and the
tests that are named after the requirement.

    compliance.py FOLDER    writes compliance.md and compliance.json there

Requirements are the rows of the crates' MUSTS.md. It fails when a row names a test that does not exist, or
a comment in the code a section that does not, and says which; and when a list is of a document that the
report has no table for.
"""
import json
import pathlib
import re
import sys

import repo

# Lists, and the document of rows before the first heading that names one.
LISTS = [
    ("v1", None),
    ("v2", None),
    ("v2-wg", None),
    ("ext-xchar", "xcharext-02"),
    ("ext-continuation", "rtrext-00"),
    ("nfs-binding", "RFC 8267"),
]
DOCUMENTS = [
    "RFC 8166", "RFC 8797", "version-two-01", "version-two-07", "xcharext-02", "rtrext-00", "RFC 8167", "RFC 8267",
]
NAME = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`")


def level(text):
    """What kind of statement a row is about."""
    if text.startswith(("(Not a MUST", "(MAY")):
        return "note"
    if text.startswith("(This project's"):
        return "own"
    return "SHOULD" if text.startswith("(SHOULD") else "MUST"


def requirements():
    for folder, document in LISTS:
        if document not in (None, *DOCUMENTS):
            sys.exit(f"LISTS: {folder} is of {document}, which is not in DOCUMENTS")
        path = repo.ROOT / folder / "MUSTS.md"
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if line.startswith("## "):
                document = next((d for d in DOCUMENTS if line[3:].startswith(d)), None)
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not line.startswith("| ") or len(cells) != 4 or cells[0] in ("section", "---"):
                continue
            if document is None:
                sys.exit(f"{folder}/MUSTS.md:{number}: a row of no document")
            yield {
                "document": document,
                "section": cells[0],
                "text": cells[1],
                "crate": cells[2],
                "kept": cells[3],
                "level": level(cells[1]),
                "list": f"{folder}/MUSTS.md:{number}",
            }


def cited(citations, document, section):
    """Citations of a section, or else of the one that it is in."""
    section = section.split(",")[-1].strip()
    while section:
        places = citations.get((document, section))
        if places:
            return section, places
        section = section.rpartition(".")[0]
    return None, []


def order(section):
    return [int(part) for part in re.findall(r"\d+", section)]


def report(rows, citations, functions):
    text = ["# Compliance", ""]
    text += ["Made by `drafts/build` from the lists of requirements (`*/MUSTS.md`), citations in comments,"]
    text += ["and the names of tests. Requirements are in this project's words.", ""]
    text += ["| document | MUST | with tests | without | SHOULD | with tests | without |"]
    text += ["|---|---|---|---|---|---|---|"]
    summary = []
    for document in DOCUMENTS:
        counts = {"document": document}
        for kind in ("MUST", "SHOULD"):
            of = [row for row in rows if row["document"] == document and row["level"] == kind]
            counts[kind] = len(of)
            counts[f"{kind} with tests"] = sum(1 for row in of if row["tests"])
        summary.append(counts)
        cells = [document]
        for kind in ("MUST", "SHOULD"):
            tested = counts[f"{kind} with tests"]
            cells += [counts[kind], tested, counts[kind] - tested]
        text.append("| " + " | ".join(map(str, cells)) + " |")
    gaps = [row for row in rows if not row["tests"] and row["level"] in ("MUST", "SHOULD")]
    text += ["", f"## Gaps: {len(gaps)} without a test", ""]
    text += ["Some are kept by construction, some are of parts that this project does not have.", ""]
    for row in gaps:
        text.append(f"- {row['document']}, section {row['section']}: {row['text']} ({row['kept']})")
    for document in DOCUMENTS:
        text += ["", f"## {document}", "", "| section | requirement | code | tests |", "|---|---|---|---|"]
        of = [row for row in rows if row["document"] == document]
        for row in sorted(of, key=lambda row: order(row["section"])):
            section, places = cited(citations, document, row["section"])
            code = ", ".join(places[:4]) + (" ..." if len(places) > 4 else "")
            if section and section != row["section"]:
                code = f"as {section}: {code}"
            tests = ", ".join(f"`{name}` ({functions[name]})" for name in row["tests"])
            text.append(
                f"| {row['section']} | {row['text']} | {code or 'not cited'} | {tests or row['kept']} |"
            )
    return "\n".join(text) + "\n", summary


def main(folder):
    functions, citations = repo.functions(), repo.citations()
    rows, missing = list(requirements()), []
    for row in rows:
        names = NAME.findall(row["kept"])
        row["tests"] = [name for name in names if name in functions]
        missing += [f"{row['list']}: no test {name}" for name in names if name not in functions]
    for (document, section), places in citations.items():
        sections = repo.SECTIONS.get(repo.NAMES.get(document))
        if sections and section not in sections:
            missing.append(f"{places[0]}: no section {section} in {document}")
    for what in missing:
        print(what, file=sys.stderr)
    if missing:
        return 1
    text, summary = report(rows, citations, functions)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compliance.md").write_text(text)
    (folder / "compliance.json").write_text(json.dumps({"documents": summary, "rows": rows}, indent=1))
    total = [row for row in rows if row["level"] in ("MUST", "SHOULD")]
    tested = sum(1 for row in total if row["tests"])
    print(f"{len(total)} requirements, {tested} with tests, {len(total) - tested} gaps listed")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 and not sys.argv[1].startswith("-") else __doc__)
