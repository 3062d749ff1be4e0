"""Digests of the sources that a program is built from, by which one sees whether a figure is out of date.

They are not commits: a commit gets another name when it is moved, and most commits change nothing that is measured. Of
a Rust file count neither comments and blank lines nor the tests at its end; so a file that moves within its package
counts as the same, and so does a package that moves.
"""

import hashlib
import json
import re
import subprocess

# The digest of the versions of other packages.
VERSIONS = "Cargo.lock"
# How many changed packages are named.
SHOWN = 5


def commit(root):
    """The commit that is checked out, with a mark if sources are changed; "unknown" where git does not say."""

    def git(*words):
        done = subprocess.run(["git", "-C", str(root), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout.strip()

    changes = git("status", "--porcelain", "--untracked-files=no", "--", "*.rs", "*.toml", VERSIONS)
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-modified" if changes else "")


def code(text):
    """What is compiled into a program of a Rust file, but for comments at the ends of lines."""
    text = re.split(r"^#\[cfg\(test\)\]\n(?:#\[.*\n)*mod \w+ \{$", text, flags=re.M)[0]
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def packages(root):
    """The packages of the workspace by name: folder, and the names of those that they are built from."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"]
    done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE)
    found = {}
    for package in json.loads(done.stdout)["packages"]:
        needed = [one["name"] for one in package["dependencies"] if one["kind"] != "dev" and one.get("path")]
        found[package["name"]] = (package["manifest_path"].rpartition("/")[0], needed)
    return found


def digest(texts):
    """One digest of texts in any order."""
    each = sorted(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    return hashlib.sha256("\n".join(each).encode()).hexdigest()[:12]


def digests(root, wanted, files=()):
    """Digests of packages and all that they are built from, by their names, and of single files and of the versions of
    other packages, by their paths. `wanted`: names of packages, and after a `-` names of those that do not matter."""
    known, found, rest = packages(root), {}, [name for name in wanted if not name.startswith("-")]
    seen = {name[1:] for name in wanted if name.startswith("-")}
    while rest:
        name = rest.pop()
        if name in seen:
            continue
        seen.add(name)
        folder, needed = known[name]
        rest += needed
        paths = sorted((root / folder / "src").rglob("*.rs"))
        paths = [path for path in paths if path.name != "tests.rs" and "tests" not in path.parent.parts]
        found[name] = digest(code(path.read_text()) for path in paths)
    for file in files:
        found[file] = digest([(root / file).read_text()])
    # Packages of this workspace have no source there.
    entries = (root / VERSIONS).read_text().split("[[package]]\n")
    found[VERSIONS] = digest(entry for entry in entries if "\nsource = " in entry)
    return dict(sorted(found.items()))


def changed(before, now):
    """The names of what has another digest, the first ones of them if there are many."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
