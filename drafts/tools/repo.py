"""What the checks of drafts/ know of the sources: functions by name, and citations of documents."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What "section" alone means in a crate.
DEFAULT = {
    "chunks": "RFC 8166",
    "v1": "RFC 8166",
    "v2": "version-two-01",
    "v2-wg": "version-two-07",
    "ext-wg-ddp": "version-two-07",
    "ext-xchar": "xcharext-02",
    "ext-send-ddp": "rtrext-00",
    "ext-continuation": "rtrext-00",
}

# What only checks others.
CHECKS = ("testing/fuzz", "testing/hostile", "testing/wire-check", "testing/lab", "drafts")



def numbers(text):
    """Sections: "3.1-3" is 3.1, 3.2 and 3.3."""
    found = set()
    for item in text.split():
        first, _, last = item.partition("-")
        before, _, low = first.rpartition(".")
        for number in range(int(low), int(last or low) + 1):
            found.add(f"{before}.{number}" if before else str(number))
    return found


# The sections that there are in the documents that are reported about.
SECTIONS = {
    "base": numbers("1-9 1.1 2.1-3 3.1-3 4.1-2 4.2.1-3 5.1-3 9.1-2"),
    "xchar": numbers("1-9 1.1-3 2.1-3 3.1-3 4.1-4 5.1-2 6.1-2 9.1-2"),
    "rtr": numbers("1-13 1.1-4 3.1-4 4.1-3 5.1-4 6.1-2 7.1-4 8.1-5 9.1-5 10.1-2 13.1-2"),
    "rtissues": numbers("1-8 1.1-2 2.1-3 3.1-5 8.1-2"),
    "RFC 8166": numbers(
        "1-10 2.1-2 2.2.1-2 3.1-5 3.3.1-3 3.4.1-6 3.4.4.1-4 3.4.5.1-2 3.4.6.1-2 3.5.1-3 4.1-7 4.1.1-2 4.2.1-4"
        " 4.3.1-3 4.3.1.1 4.3.2.1-3 4.4.1-3 4.5.1-5 4.6.1-2 6.1-4 7.1 8.1-2 8.1.1-4 8.2.1-2 8.2.2.1-3"
    ),
    "RFC 4506": numbers("1-9 4.1-23"),
    "version-two-07": numbers(
        "1-13 1.1-2 3.1-2 3.1.1-6 3.1.5.1-4 3.1.6.1-2 3.2.1-2 3.2.2.1-5 4.1-7 4.2.1-2 4.2.1.1 4.3.1-3 4.4.1-3 4.5.1-3"
        " 4.5.1.1-3 4.5.2.1-4 4.5.3.1-4 4.6.1-5 5.1-2 5.2.1-6 6.1-6 6.2.1 6.3.1-10 6.6.1-4 6.6.1.1-2 6.6.2.1-2 6.6.3.1"
        " 7.1-5 7.1.1-4 7.2.1-2 7.3.1-5 7.4.1 8.1-5 11.1-4 11.1.1-4 11.2.1-2 11.2.2.1-4 13.1-2 A.1-5 B.1-4 C.1-10"
    ),
    "nfs-ulb-v2-06": numbers("1-9 3.1-3 3.3.1-2 4.1-2 5.1-7 5.1.1 5.2.1-2 5.4.1-3 5.5.1-2 5.7.1-2 9.1-2"),
}
# Their names in code.
NAMES = {
    "version-two-01": "base",
    "version-two-07": "version-two-07",
    "xcharext-02": "xchar",
    "rtrext-00": "rtr",
    "RFC 8166": "RFC 8166",
}

DOCUMENT = re.compile(
    r"(?P<document>RFC (?:\d+)|version-two-0[17]|xcharext-02|rtrext-00),?\s+sections?\s+"
    r"|(?<![\w,] )\b[Ss]ections?\s+(?=\d)"
)
# A line that leaves the section that it cites to the next one.
UNFINISHED = re.compile(r"(?:RFC \d+|version-two-0[17]|xcharext-02|rtrext-00),?\s*$")
NUMBER = re.compile(r"(\d+(?:\.\d+)*)(?:\s*(?:,|and|;|or)\s+(?=\d+(?:\.\d+)*\b))?")
FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?fn\s+(\w+)", re.M)


def sources(*parts):
    """Rust files of all crates below these parts of them ("src", "tests"), new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in sorted(set(listed.split("\n")) - {""}):
        path = ROOT / name
        if any(part in parts for part in path.relative_to(ROOT).parts) and path.exists():
            yield path


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def functions():
    """Where each function is: {name: "path:line"}."""
    found = {}
    for path in sources("src", "tests"):
        text = path.read_text()
        # Those of quickcheck! blocks have no attribute, but are functions all the same.
        for match in FUNCTION.finditer(text):
            where = f"{path.relative_to(ROOT)}:{line_of(text, match.start(1))}"
            found.setdefault(match.group(1), where)
    return found


def citations():
    """Where comments of the code cite a section: {(document, section): ["path:line"]}."""
    found = {}
    for path in sources("src"):
        relative = path.relative_to(ROOT)
        if any(relative.is_relative_to(folder) for folder in CHECKS):
            continue
        default = DEFAULT.get(relative.parts[0])
        lines = path.read_text().split("\n")
        comments = [re.match(r"\s*//[/!]? ?(.*)", line) for line in lines]
        for number, comment in enumerate(comments):
            if not comment:
                continue
            # A citation may go on in the next line.
            after = comments[number + 1] if number + 1 < len(lines) else None
            text = comment.group(1) + " " + (after.group(1) if after else "")
            before = comments[number - 1] if number else None
            for match in DOCUMENT.finditer(text):
                if match.start() >= len(comment.group(1)):
                    continue
                # Its document stands at the end of the line before, with which it was found.
                if match.start() == 0 and before and UNFINISHED.search(before.group(1)):
                    continue
                document = match.group("document") or default
                rest = text[match.end() :]
                while document and (section := NUMBER.match(rest)):
                    where = f"{relative}:{number + 1}"
                    places = found.setdefault((document, section.group(1)), [])
                    if where not in places:
                        places.append(where)
                    rest = rest[section.end() :]
                    if section.group(0) == section.group(1):
                        break
    return found
