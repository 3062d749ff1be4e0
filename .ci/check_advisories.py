"""Checks Cargo.lock files against a copy of the RustSec advisory database.

    RUSTSEC_DB=FOLDER python3 .ci/check_advisories.py    a clone of https://github.com/rustsec/advisory-db
    python3 .ci/check_advisories.py --test               whether planted advisories are found

Without RUSTSEC_DB, the copy that cargo-audit has fetched is used. No package of Debian or of the registry brings the
database, and a machine of CI need not reach its host: where there is no copy, this program says so and succeeds.
Vulnerable and unsound versions are problems, unless deny.toml excepts them under [advisories], with a reason; other
advisories (unmaintained, notice) are shown only.
"""

import os
import pathlib
import re
import sys
import tempfile
import tomllib

LOCKS = ["Cargo.lock", "testing/fuzz/Cargo.lock"]
URL = "https://github.com/rustsec/advisory-db"


def version_key(text):
    """The order of semantic versions; build metadata has none."""
    core, _, pre = text.split("+")[0].partition("-")
    numbers = [int(part) for part in core.split(".")]
    numbers += [0] * (3 - len(numbers))
    # A version is later than its pre-releases; numbers come before words.
    identifiers = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split(".")] if pre else []
    return numbers, not pre, identifiers


def matches(version, requirement):
    """Whether a version satisfies all comparators of a requirement (`>= 1.2, < 2`)."""
    have = version_key(version)
    for comparator in requirement.split(","):
        operator, text = re.fullmatch(r"\s*(>=|<=|>|<|=|\^|~)?\s*([0-9][^\s]*)\s*", comparator).groups()
        wanted = version_key(text)
        precision = len(re.split(r"[-+]", text)[0].split("."))
        next_after = lambda place: (wanted[0][:place] + [wanted[0][place] + 1] + [0] * (2 - place), False, [])
        if operator in (None, "^"):
            # The first number that is not zero may not change.
            place = next((at for at in range(precision) if wanted[0][at]), precision - 1)
            fits = wanted <= have < next_after(place)
        elif operator == "~" or (operator == "=" and precision < 3):
            fits = wanted <= have < next_after(min(precision, 2) - 1)
        else:
            fits = {">=": have >= wanted, "<=": have <= wanted, ">": have > wanted,
                    "<": have < wanted, "=": have == wanted}[operator]
        if not fits:
            return False
    return True


def applying(folder, packages):
    """Yields package, version and advisory for each that applies, withdrawn ones left out."""
    for name, version in sorted(packages):
        for file in sorted((folder / "crates" / name).glob("*.md")):
            text = file.read_text()
            told = tomllib.loads(re.match(r"\s*```toml\n(.*?)\n```", text, re.DOTALL)[1])
            if "withdrawn" in told["advisory"]:
                continue
            versions = told.get("versions", {})
            safe = versions.get("patched", []) + versions.get("unaffected", [])
            if not any(matches(version, requirement) for requirement in safe):
                title = re.search(r"^# (.*)$", text, re.MULTILINE)
                yield name, version, told["advisory"], title[1] if title else ""


def locked():
    """Names and versions of all packages from registries."""
    packages = set()
    for lock in filter(os.path.exists, LOCKS):
        listed = tomllib.load(open(lock, "rb"))["package"]
        packages |= {(one["name"], one["version"]) for one in listed if "source" in one}
    return packages


def check(folder, packages, excepted):
    """Prints what applies. Returns the number of problems."""
    problems, unused = 0, dict(excepted)
    for name, version, advisory, title in applying(folder, packages):
        known = advisory["id"] in excepted
        unused.pop(advisory["id"], None)
        informational = advisory.get("informational")
        is_problem = informational in (None, "unsound") and not known
        problems += is_problem
        kind = informational or "vulnerable"
        print(f"{name} {version}: {advisory['id']} ({kind}{', excepted' if known else ''}): {title}",
              file=sys.stderr if is_problem else sys.stdout)
    for identifier in unused:
        problems += 1
        print(f"deny.toml: {identifier} does not apply any more", file=sys.stderr)
    return problems


def database():
    """The folder of the database, or none."""
    if given := os.environ.get("RUSTSEC_DB"):
        folder = pathlib.Path(given)
        if not any((folder / "crates").glob("*/*.md")):
            sys.exit(f"RUSTSEC_DB={given}: no advisories there; a clone of {URL} is wanted")
        return folder
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    folder = home / "advisory-db"
    return folder if any((folder / "crates").glob("*/*.md")) else None


def test():
    """Plants advisories for a package that is locked, and sees which are found."""
    for version, requirement, expected in [
        ("1.2.3", ">= 1.2.3", True), ("1.2.3-rc.1", ">= 1.2.3", False), ("1.2.3", "> 1.2.3, < 2", False),
        ("0.3.9", "^0.3.2", True), ("0.4.0", "^0.3.2", False), ("1.9.0", "1.2", True), ("2.0.0", "^1.2", False),
        ("0.0.4", "^0.0.3", False), ("1.2.9", "~1.2.3", True), ("1.3.0", "~1.2.3", False), ("1.3.0", "= 1.3.0", True),
        ("1.10.0", "< 1.9", False), ("1.0.0-alpha.10", "> 1.0.0-alpha.9", True), ("1.0.0+b", "= 1.0.0", True),
        ("1.3.0", "~1", True), ("2.0.0-rc.1", "^1.2", False),
    ]:
        assert matches(version, requirement) == expected, (version, requirement)
    name, version = sorted(locked())[0]
    for head, versions, problems in [
        ("", "patched = []", 1),
        ("", f'patched = [">= {version}"]', 0),
        ("", f'patched = ["> {version}"]', 1),
        ("", f'patched = []\nunaffected = ["= {version}"]', 0),
        ('withdrawn = "2020-01-02"\n', "patched = []", 0),
        ('informational = "unsound"\n', "patched = []", 1),
        ('informational = "unmaintained"\n', "patched = []", 0),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "crates", name, "RUSTSEC-2020-0000.md")
            file.parent.mkdir(parents=True)
            file.write_text(f'```toml\n[advisory]\nid = "RUSTSEC-2020-0000"\npackage = "{name}"\n{head}\n'
                            f"[versions]\n{versions}\n```\n\n# A planted advisory\n")
            found = check(pathlib.Path(folder), locked(), {})
            assert found == problems, (head, versions, found)
            assert check(pathlib.Path(folder), locked(), {"RUSTSEC-2020-0000": "why"}) == int(
                "withdrawn" in head or (not head and problems == 0))
    print("planted advisories are found")


if sys.argv[1:] == ["--test"]:
    test()
    sys.exit()
rules = tomllib.load(open("deny.toml", "rb")).get("advisories", {})
excepted = {one["id"]: one["reason"] for one in rules.get("ignore", [])}
folder = database()
if folder is None:
    print(f"Advisories were NOT checked: no copy of the database is here. Elsewhere: git clone {URL},\n"
          "then RUSTSEC_DB=FOLDER .ci/run advisories; or `cargo audit`, which fetches it.")
    sys.exit()
packages = locked()
problems = check(folder, packages, excepted)
print(f"{len(packages)} packages, {problems} problems")
sys.exit(bool(problems))
