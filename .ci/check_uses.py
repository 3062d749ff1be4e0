"""Fails if files of a crate use one another in a circle, or if the product depends on a crate of testing/.

A file uses another one if it names something that is defined there (a function, a type, a constant, a macro), by
whatever path and through however many re-exports. Not counted are

- a `mod` declaration, and a re-export whose name does not occur again in the file;
- what a module below another one takes from that: a `mod.rs` and the files below it are one subject, of which the
  parent file holds what all of them share. The parent's uses of its children do count, so a circle by way of a third
  file is found;
- a call of a method, as the file that defines its type need not be the one with the method;
- what only tests name.

    python3 .ci/check_uses.py           # the crates of the workspace
    python3 .ci/check_uses.py --test    # this program
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# Folders of what only tests, measures or shows the product.
CHECKS = ("testing", "drafts", "benches", "examples")
TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|\s+)|(?P<comment>/\*)|(?P<raw>b?c?r(?P<hashes>\#*)".*?"(?P=hashes))"""
    r"""|(?P<string>[bc]?"(?:\\.|[^"\\])*")"""
    r"""|(?P<char>b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\])')|(?P<lifetime>'[A-Za-z_]\w*)|(?P<word>(?:r\#)?[A-Za-z_]\w*)"""
    r"""|(?P<number>\d\w*(?:\.\d\w*)?)|(?P<colons>::)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
DEFINES = {"fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod", "macro_rules"}
OPEN, CLOSE = {"{": "}", "(": ")", "[": "]"}, {"}", ")", "]"}


def tokens(text):
    """The words and signs of a source, without comments and the contents of strings."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        at = match.end()
        if match.lastgroup == "comment":
            depth = 1
            while depth:
                mark = re.compile(r"/\*|\*/").search(text, at)
                depth += 1 if mark.group() == "/*" else -1
                at = mark.end()
        elif match.lastgroup not in ("skip", "hashes"):
            found.append(match.group() if match.lastgroup in ("word", "colons", "other") else '""')
    return found


def closing(words, at):
    """The index after the bracket that closes the one at `at`."""
    depth = 0
    while True:
        depth += (words[at] in OPEN) - (words[at] in CLOSE)
        at += 1
        if not depth:
            return at


class Module:
    """A module: its items, what it imports (each name with its path, and whether it is re-exported), and all words."""

    def __init__(self, file, parent, folder):
        self.file, self.parent, self.folder = file, parent, folder
        self.children, self.defined, self.imports, self.globs = {}, set(), {}, []
        # The words of all items.
        self.body = []


class Crate:
    """The modules of a crate whose root file is `root`."""

    def __init__(self, root):
        self.macros = {}
        self.modules = []
        self.root = Module(root, None, root.parent)
        self.read(self.root, tokens(root.read_text()))

    def read(self, module, words):
        """Reads the items of a module."""
        self.modules.append(module)
        at, tested, public = 0, False, False
        while at < len(words):
            word = words[at]
            if word == "#":
                start = at + 1 + (words[at + 1] == "!")
                end = closing(words, start)
                inner = words[start + 1 : end - 1]
                tested |= inner[:1] == ["cfg"] and "test" in inner and "not" not in inner
                at = end
                continue
            if word == "pub":
                public = True
                at += 1
                if words[at] == "(":
                    at = closing(words, at)
                continue
            end = self.item(module, words, at, tested, public)
            at, tested, public = end, False, False

    def item(self, module, words, at, tested, public):
        """Reads the item that begins at `at`, after its attributes, and returns the index after it."""
        word, start = words[at], at
        if word == "use":
            end = words.index(";", at)
            if not tested:
                for path, name in tree(words[at + 1 : end]):
                    if name == "*":
                        module.globs.append((path, public))
                    else:
                        module.imports[name] = (path, public)
            return end + 1
        if word == "mod" and words[at + 2] == ";":
            name = words[at + 1]
            file = module.folder / f"{name}.rs"
            if not file.exists():
                file = module.folder / name / "mod.rs"
            if not tested:
                child = Module(file, module, module.folder / name)
                module.children[name] = child
                self.read(child, tokens(file.read_text()))
            return at + 3
        if word == "mod" and words[at + 2] == "{":
            end = closing(words, at + 2)
            if not tested:
                child = Module(module.file, module, module.folder / words[at + 1])
                module.children[words[at + 1]] = child
                self.read(child, words[at + 3 : end - 1])
            return end
        # Any other item ends with its braces or a semicolon outside of brackets.
        name = None
        macro = word == "macro_rules"
        while True:
            word = words[at]
            if word == ";":
                at += 1
                break
            if word in OPEN:
                brace = word == "{"
                at = closing(words, at)
                if brace and not (at < len(words) and initialized(words[start:at])):
                    break
                continue
            if word == "impl":
                name = name or ""
            modifies = word == "const" and words[at + 1] in ("fn", "unsafe", "extern")
            if name is None and word in DEFINES and not modifies:
                name = words[at + 1] if not macro else words[at + 2]
            at += 1
        if not tested:
            if name:
                module.defined.add(name)
                if macro:
                    self.macros[name] = module
            module.body.extend(words[start:at])
            module.body.append(";")
        return at

    def resolve(self, module, path, seen=()):
        """Where the path leads: (module, None) for a module, (module, name) for an item, or None for another crate."""
        if (id(module), tuple(path)) in seen:
            return None
        seen = (*seen, (id(module), tuple(path)))
        here, first = module, True
        for index, name in enumerate(path):
            if first and name == "crate":
                here = self.root
            elif first and name == "self":
                pass
            elif name == "super":
                here = here.parent
                if here is None:
                    return None
                first = True
                continue
            else:
                found = self.lookup(here, name, seen)
                if found is None:
                    if index and name in self.macros and here is self.root:
                        return self.macros[name], name
                    return None
                if found[1] is not None:
                    return found
                here = found[0]
            first = False
        return here, None

    def lookup(self, module, name, seen):
        """Where a name in a module leads."""
        if name in module.children:
            return module.children[name], None
        if name in module.defined:
            return module, name
        if name in module.imports:
            return self.resolve(module, module.imports[name][0], seen)
        for path, _ in module.globs:
            found = self.resolve(module, path, seen)
            if found and found[1] is None and found[0] is not module:
                if (id(found[0]), "glob", name) in seen:
                    continue
                inner = self.lookup(found[0], name, (*seen, (id(found[0]), "glob", name)))
                if inner:
                    return inner
        return None

    def uses(self):
        """The files that each file uses, with the names."""
        edges = collections.defaultdict(lambda: collections.defaultdict(set))
        for module in self.modules:
            named = collections.Counter(module.body)
            paths = set(paths_of(module.body))
            for name, (path, public) in module.imports.items():
                if not public or named[name]:
                    paths.add(tuple(path))
            for path in paths:
                found = self.resolve(module, path)
                if found and found[1] is not None and found[0].file != module.file and not above(found[0], module):
                    edges[module.file][found[0].file].add(found[1])
        return edges


def above(module, other):
    """Whether `module` is `other` or around it."""
    while other:
        if other.file == module.file:
            return True
        other = other.parent
    return False


def initialized(words):
    """Whether an item that has had braces goes on: `const X: T = T { .. };` and `let`-like statics."""
    depth = 0
    for word in words:
        depth += (word in OPEN) - (word in CLOSE)
        if word == "=" and not depth and ({"const", "static", "type"} & set(words[:4])) and "fn" not in words[:5]:
            return True
    return False


def tree(words):
    """The names that a `use` makes, each with its path."""
    prefix, at = [], 0
    while at < len(words):
        word = words[at]
        if word == "{":
            inner, start, depth = words[at + 1 : closing(words, at) - 1], 0, 0
            for index, part in enumerate([*inner, ","]):
                depth += (part in OPEN) - (part in CLOSE)
                if part == "," and not depth:
                    for path, name in tree(inner[start:index]):
                        yield prefix + path, name
                    start = index + 1
            return
        if word == "*":
            yield prefix, "*"
            return
        if word == "as":
            yield prefix, words[at + 1]
            return
        if word != "::":
            prefix = prefix + [word]
        at += 1
    if prefix and prefix[-1] == "self":
        prefix = prefix[:-1]
    if prefix:
        yield prefix, prefix[-1]


def paths_of(words):
    """The paths in a body, single names included."""
    at = 0
    while at < len(words):
        if re.match(r"[A-Za-z_]", words[at]) and not (at and words[at - 1] in (".", "fn", "'")):
            path = [words[at]]
            while at + 2 < len(words) and words[at + 1] == "::" and re.match(r"[A-Za-z_]", words[at + 2]):
                at += 2
                path.append(words[at])
            if not (at - 2 * len(path) + 1 > 0 and words[at - 2 * len(path) + 1] == "::"):
                yield tuple(path)
        at += 1


def circles(edges):
    """Strongly connected components of more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in edges.get(file, ()):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == file:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    for file in list(edges):
        if file not in index:
            visit(file)
    return found


def product_on_testing(packages, root):
    """The dependencies of the product on crates of testing/, those for tests left out."""
    folder = {}
    for package in packages:
        folder[package["name"]] = pathlib.Path(package["manifest_path"]).relative_to(root).parts[0]
    for package in packages:
        if folder[package["name"]] in CHECKS:
            continue
        for dependency in package["dependencies"]:
            if dependency["kind"] != "dev" and folder.get(dependency["name"]) in CHECKS:
                yield f"{package['name']} depends on {dependency['name']}, which is in {folder[dependency['name']]}/"


def check():
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    root = pathlib.Path(metadata["workspace_root"])
    packages = sorted(metadata["packages"], key=lambda package: package["manifest_path"])
    problems = list(product_on_testing(packages, root))
    for package in packages:
        for target in package["targets"]:
            if target["kind"][0] not in ("lib", "bin"):
                continue
            uses = Crate(pathlib.Path(target["src_path"])).uses()
            for circle in circles(uses):
                problems.append(f"{package['name']}: a circle of {len(circle)} files")
                for file in circle:
                    for other in filter(circle.__contains__, uses[file]):
                        names = ", ".join(sorted(uses[file][other]))
                        problems.append(f"    {file.relative_to(root)} uses {other.relative_to(root)}: {names}")
    if problems:
        sys.exit("\n".join(problems))


def test():
    """Crates of some files each, and the circles that are found in them."""

    def found(**files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name.replace("__", "/") + ".rs")
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            uses = Crate(pathlib.Path(folder, "lib.rs")).uses()
            return [sorted(file.stem for file in circle) for circle in circles(uses)]

    both = "mod a; mod b; pub use a::A; pub use b::B;"
    assert found(lib=both, a="pub struct A;", b="use crate::A; pub struct B(A);") == []
    assert found(lib=both, a="use crate::B; pub struct A(B);", b="pub struct B(super::a::A);") == [["a", "b"]]
    # Neither comments and strings, nor tests, nor names of methods and fields.
    noise = '''// crate::B
    /* crate::B /* */ */ pub const A: (&str, char) = (r#"crate::B "quoted""#, '"');
    #[cfg(test)] mod tests { use crate::B; }
    fn a(x: &X) { x.B(); }'''
    assert found(lib=both, a=noise, b="use crate::A; pub struct B;") == []
    # A parent and its children, unless there is another file between them.
    parent = "mod child; pub struct A(child::C);"
    assert found(lib="mod a; mod b;", a=parent, a__child="pub struct C(Option<&'static super::A>);", b="") == []
    through = {"a__child": "pub struct C(crate::b::B);", "b": "pub struct B(crate::a::A);"}
    assert found(lib="mod a; mod b;", a=parent, **through) == [["a", "b", "child"]]
    # By other names, globs and macros.
    other = "use crate::b as other; pub fn a() { other::b() }"
    assert found(lib="mod a; mod b;", a=other, b="use crate::a::*; pub fn b() { a() }") == [["a", "b"]]
    macros = "#[macro_export] macro_rules! m { () => {} } pub fn a() { crate::b::b() }"
    assert found(lib="mod a; mod b;", a=macros, b="pub fn b() { crate::m!() }") == [["a", "b"]]


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    test() if sys.argv[1:] == ["--test"] else check()
