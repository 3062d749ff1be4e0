"""What the statements of a draft rest on.

Every paragraph of a template says it, in double braces behind the statement:

    {{seen WHAT, WHAT}}     a test by its name; a path; PATH#NAME, a word in that file
    {{text DOCUMENT SECTION, ...}}    what a document says: base, xchar, rtr, rtissues, RFC 8166 ...
    {{plain}}               nothing is stated

A paragraph with none of them, a test, path or section that does not exist: each fails. Measurements are
traced by themselves (draft.py). What is in a block quotation is proposed, and states nothing.
"""
import re

import repo

BLOCK = re.compile(r"<(t|li|dd)>(.*?)</\1>", re.S)
SECTION = re.compile(r'<section(?: anchor="([^"]*)")?[^>]*><name>(.*?)</name>', re.S)
MARK = re.compile(r"\{\{(seen|text|plain)\b\s*(.*?)\}\}", re.S)
FIGURES = re.compile(r"\{\{(row|same|slope|check|alike|table|oracle|const|requirements)\b")


class Missing(Exception):
    """Something that the text refers to."""


def breakable(name):
    """A name as XML, with places where a line may end: some are longer than a line."""
    return re.sub(r"(?<=[_/#])", "&#8203;", name) if len(name) > 62 else name


class Tracer:
    def __init__(self):
        self.functions = repo.functions()

    def seen(self, what):
        """Fails unless it is there."""
        path, _, word = what.partition("#")
        if "/" not in path and "." not in path:
            if path not in self.functions:
                raise Missing(f"the test {path}")
            return
        file = repo.ROOT / path
        if not file.exists():
            raise Missing(f"the path {path}")
        if word and not re.search(rf"\b{re.escape(word)}\b", file.read_text()):
            raise Missing(f"{word} in {path}")

    def said(self, what):
        """Fails unless the document has such a section."""
        document, _, section = what.rpartition(" ")
        sections = repo.SECTIONS.get(document)
        if sections is None:
            raise Missing(f"the document {document!r} ({what})")
        if section not in sections:
            raise Missing(f"a section {section} of {document}")

    def marks(self, block):
        """What a paragraph rests on, checked: [(kind, what)]."""
        found = []
        for kind, rest in MARK.findall(block):
            items = [" ".join(item.split()) for item in rest.split(",") if item.strip()]
            if not items and kind != "plain":
                raise Missing(f"what is {kind} after {first_words(block)!r}")
            for item in items:
                (self.seen if kind == "seen" else self.said)(item)
            found += [(kind, item) for item in items] or [(kind, "")]
        if not found and not FIGURES.search(block):
            raise Missing(f"what {first_words(block)!r} rests on")
        return found

    def paragraphs(self, template):
        """Of each section with statements: its anchor and title, and [(first words, what they rest on)]."""
        body = template[template.index("<middle>") :]
        body = re.sub(r"<references>.*</references>", "", body, flags=re.S)
        body = re.sub(r"<blockquote>.*?</blockquote>", "", body, flags=re.S)
        tokens = [(match.start(), "section", match) for match in SECTION.finditer(body)]
        tokens += [(match.start(), "block", match) for match in BLOCK.finditer(body)]
        sections = []
        for _, kind, match in sorted(tokens, key=lambda token: token[0]):
            if kind == "section":
                sections.append((match.group(1), match.group(2), []))
                continue
            marks = [mark for mark in self.marks(match.group(2)) if mark[1]]
            if marks:
                sections[-1][2].append((first_words(match.group(2)), marks))
        return [section for section in sections if section[2]]

    def appendix(self, template):
        """All of it as a list."""
        out = []
        for anchor, title, paragraphs in self.paragraphs(template):
            if not anchor:
                raise Missing(f"an anchor of the section {title!r}")
            out.append(f'<t><xref target="{anchor}"/>:</t><dl newline="true">')
            for words, marks in paragraphs:
                said = [what for kind, what in marks if kind == "text"]
                seen = [f"<tt>{breakable(what)}</tt>" for kind, what in marks if kind == "seen"]
                out.append(f'<dt>"{words} ..."</dt><dd>{", ".join(said + seen)}.</dd>')
            out.append("</dl>")
        return "\n".join(out)


def first_words(block):
    """The first words of a paragraph, without what is not text."""
    text = re.sub(r"\{\{.*?\}\}|<[^>]*>", " ", block, flags=re.S)
    return " ".join(text.split()[:5]).rstrip(".,:;")
