#!/usr/bin/env python3
"""Fills in the draft's template.

    draft.py TEMPLATE FIGURES COMPLIANCE.json ORACLE.json DOCNAME FOLDER

What stands in double braces in TEMPLATE is replaced; the result is FOLDER/DOCNAME.xml. Everything that is
referred to has to be there: rows of measurements, constants, files, tests. Otherwise it says what is
missing and fails. Of FIGURES, COMPLIANCE.json and ORACLE.json only what TEMPLATE refers to is read.
FOLDER/extract.sh is the script that the text has for its XDR. The folder FIGURES has
what `figures/make --into` saves: drafts.json; drafts-long.json, with rows of receives as long as those that
bulk data is placed in, each of which is called VIA-long here; and with receives of several lengths,
receives.json, and receives-near.json over the link of the others.

    {{docname}} {{date}}                DOCNAME, and today
    {{row OP SIZE VIA KEY}}             a value of a measured row
    {{same KEY}} {{gbits}}              a value that all rows have
    {{check OP SIZE VIA KEY < OP SIZE VIA KEY}}   nothing, if it is so (also =, >; a number on the right)
    {{slope OP SIZE VIA}}               how much later a row's replies come for each unit of delay, there and back
    {{alike OPS SIZES VIAS KEYS}}       nothing, if these rows have the same of these keys; each is a list with commas
    {{table OP [VIA,... [SIZE,...]]}}   rows of an operation, by default those of the drafts of 2016
    {{figure OP [VIA,...]}}             their times
    {{ladder [wg]}}                     a WRITE of 8 KiB by version 1 and with placement, of ladder-drafts.json
    {{command}} {{costs}}               how the rows were made, and by which costs
    {{command long}} {{command receives}}    how those of the other files were made
    {{receives VIA,...}}                the round trips of WRITEs over the memory for receives
    {{least SIZE VIA}}                  octets of the shortest receives with which a WRITE takes one round trip
    {{never SIZE VIA,...}}              nothing, if it takes more with receives of each length
    {{near SIZE VIA}}                   nothing, if that is so over the link of the other rows
    {{alike_trips SIZES VIAS}}          nothing, if these take as many round trips with receives of each length
    {{memory OCTETS}}                   MiB of all receives of that length, at both ends of a connection
    {{errata}}                          the tables of drafts/errata.md
    {{errata_07}} {{entry NUMBER}}      the entries of drafts/errata-07.md, or a reference to one
    {{requirements DOCUMENT KEY}}       a number of the summary of the compliance report
    {{octets PATH NAME}}                an array of words in the sources, each with the comment behind it
    {{compliance}} {{gaps}}             the summary of the compliance report, and what has no test
    {{oracle kinds}} {{oracle vectors}} how much of it there is
    {{oracle values}} {{oracle disagreements}}    what this build compared, of each kind, and what came of it
    {{const PATH NAME}}                 a constant of the sources
    {{fields FILE STRUCT}}              the fields of a structure in that file of drafts/xdr, each with its comment
    {{xdr FILE}} {{extract}}            a file of drafts/xdr, and the script that prints all of them
    {{seen ...}} {{text ...}} {{plain}} nothing: what a paragraph rests on (trace.py)
    {{traces}}                          all of that
"""
import datetime
import functools
import itertools
import json
import pathlib
import re
import sys
from html import escape

import errata
import repo
from trace import Missing, Tracer, breakable

TODAY = datetime.date.today()
# The figures whose commands the text says.
COMMANDS = {None: "drafts", "long": "drafts-long", "receives": "receives"}
UNITS = {"nanos": "ns", "micros": "us", "millis": "ms", "secs": "s"}
VIAS = ["v1", "v1-inv", "v2", "v2-ddp", "v2-cont", "v2-ddp-cont"]
# Headings of a table's columns, and the values in each, joined by a sign.
COLUMNS = [
    ("RTT", "", ["round_trips"]),
    ("int", "+", ["interrupts_requester", "interrupts_responder"]),
    ("reg", "", ["registrations"]),
    ("Send", "", ["sends"]),
    ("R/W", "/", ["rdma_reads", "rdma_writes"]),
    ("octets", "", ["wire_bytes"]),
    ("us", "", ["p50_us"]),
]
# A column of the versions that have messages which only grant credits.
GRANTS = ("GRANT", "", ["grants"])

# Prints the XDR of a draft, from its text form: base 3.3 wants such a script in the documents of extensions.
EXTRACT = """\
#!/bin/sh
sed -n '/^ *<CODE BEGINS> file ".*\\.x"/,/^ *<CODE ENDS>/p' |
    sed -e '/<CODE /d' -e '/\\[Page .*\\]$/d' \\
        -e '/^Internet-Draft /d' -e 's/\\f//' -e 's/^   //'
"""


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def shown(value):
    return str(int(value)) if float(value).is_integer() else f"{value:.1f}"


class Draft:
    def __init__(self, figures, compliance, oracle, docname):
        self.folder, self.compliance_file, self.oracle_file, self.docname = figures, compliance, oracle, docname
        self.tracer, self.template = Tracer(), ""

    def figure_of(self, name):
        return read(f"{self.folder}/{name}.json")

    @functools.cached_property
    def rows(self):
        long = [row | {"transfer_mode": f"{row['transfer_mode']}-long"} for row in rows_of(self.figure_of("drafts-long"))]
        return rows_of(self.figure_of("drafts")) + long

    @functools.cached_property
    def swept(self):
        return rows_of(self.figure_of("receives"))

    @functools.cached_property
    def swept_near(self):
        return rows_of(self.figure_of("receives-near"))

    @functools.cached_property
    def compliance(self):
        return read(self.compliance_file)

    @functools.cached_property
    def compared(self):
        return read(self.oracle_file)

    def value(self, op, size, via, key):
        for row in self.rows:
            if (row["op"], row.get("size"), row["transfer_mode"]) == (op, int(size), via):
                if row.get(key) is None:
                    raise Missing(f"{key} in the row {op} {size} {via}")
                return row[key]
        raise Missing(f"a row {op} {size} {via}")

    def row(self, *words):
        return shown(self.value(*words))

    def slope(self, op, size, via):
        """The time of a reply by the delay of the link there and back."""
        points = self.value(op, size, via, "latency_over_delay")
        first, last = points[0], points[-1]
        delay = 2 * (last["delay_us"] - first["delay_us"])
        return f"{(last['p50_us'] - first['p50_us']) / delay:.2f}"

    def same(self, key):
        values = {row.get(key) for row in self.rows}
        if len(values) != 1 or None in values:
            raise Missing(f"one {key} for all rows: {values}")
        return shown(values.pop())

    def gbits(self):
        return shown(int(self.same("rate_bits_per_s")) / 1e9)

    def check(self, *words):
        left, sign, right = self.value(*words[:4]), words[4], words[5:]
        right = float(right[0]) if len(right) == 1 else self.value(*right)
        holds = {"<": left < right, "=": left == right, ">": left > right}[sign]
        if not holds:
            raise Missing(f"what the text says: {' '.join(words)}, with {left} and {right}")
        return ""

    def alike(self, ops, sizes, vias, keys):
        """Nothing, if these rows have the same values of these keys."""
        first, *others = vias.split(",")
        for op, size, via, key in itertools.product(ops.split(","), sizes.split(","), others, keys.split(",")):
            self.check(op, size, via, key, "=", op, size, first, key)
        return ""

    def of(self, op, vias=None, of_sizes=None):
        vias = vias.split(",") if vias else VIAS
        rows = [row for row in self.rows if row["op"] == op and row["transfer_mode"] in vias]
        sizes = [int(size) for size in of_sizes.split(",")] if of_sizes else sorted({row.get("size", 0) for row in rows})
        by = lambda size: [row for via in vias for row in rows if (row.get("size", 0), row["transfer_mode"]) == (size, via)]
        lines = [by(size) for size in sizes]
        for size, line in zip(sizes, lines):
            if [row["transfer_mode"] for row in line] != vias:
                raise Missing(f"a row for each transfer mode of {op} {size}")
        if not rows:
            raise Missing(f"rows of {op}")
        return list(zip(sizes, lines))

    def table(self, op, vias=None, of_sizes=None):
        of = self.of(op, vias, of_sizes)
        grants = any(row.get("grants") is not None for _, rows in of for row in rows)
        columns = COLUMNS[:-1] + [GRANTS] * grants + COLUMNS[-1:]
        out = [f"<table><name>{op.upper()}, by Size and Transfer Mode</name><thead><tr><th>size</th><th>by</th>"]
        out += [f'<th align="right">{name}</th>' for name, _, _ in columns]
        out.append("</tr></thead><tbody>")
        cell = lambda row, key: shown(row[key]) if key in row else "-"
        for size, rows in of:
            for row in rows:
                values = [sign.join(cell(row, key) for key in keys) for _, sign, keys in columns]
                cells = [f'<td align="right">{value}</td>' for value in values]
                first = size_name(size).replace(" ", "&#160;")
                by = row["transfer_mode"].replace("-", "&#8209;")
                out.append(f"<tr><td>{first}</td><td>{by}</td>{''.join(cells)}</tr>")
        return "\n".join(out) + "\n</tbody></table>"

    def figure(self, op, vias=None):
        """Bars of time, each size to its own scale."""
        width, text, shapes, y = 36, [], [], 0
        for size, rows in self.of(op, vias):
            longest = max(row["p50_us"] for row in rows)
            text.append(f"{op.upper()} of {size_name(size)}")
            y += 22
            shapes.append(f'<text x="0" y="{y}">{op.upper()} of {size_name(size)}</text>')
            for row in rows:
                part = row["p50_us"] / longest
                bar = "#" * max(1, round(width * part))
                text.append(f"  {row['transfer_mode']:<12}{bar:<{width}} {row['p50_us']:>8.1f} us")
                y += 16
                shapes.append(f'<text x="12" y="{y}">{row["transfer_mode"]}</text>')
                shapes.append(f'<rect x="110" y="{y - 10}" width="{round(280 * part)}" height="11"/>')
                shapes.append(f'<text x="400" y="{y}">{row["p50_us"]:.1f} us</text>')
            text.append("")
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" version="1.2" baseProfile="tiny" '
            f'viewBox="0 0 480 {y + 8}" font-family="monospace" font-size="12">{"".join(shapes)}</svg>'
        )
        art = "\n".join(text).rstrip("\n")
        return (
            f"<figure><name>Time of a {op.upper()}, Each Size to Its Own Scale</name><artset>"
            f'<artwork type="svg">{svg}</artwork>'
            f'<artwork type="ascii-art"><![CDATA[\n{art}\n]]></artwork></artset></figure>'
        )

    def ladder(self, which=None):
        """A WRITE step by step, without the heading, which is the name."""
        data = self.figure_of("ladder-drafts" + (f"-{which}" if which else ""))
        name, art = data["text"][0], "\n".join(data["text"][1:]).strip("\n")
        return (
            f'<figure><name>{escape(name)}, Step by Step</name><artset><artwork type="svg">{data["svg"]}</artwork>'
            f'<artwork type="ascii-art"><![CDATA[\n{art}\n]]></artwork></artset></figure>'
        )

    def command(self, which=None):
        return self.figure_of(COMMANDS[which])["command"]

    def trips(self, size, via, rows=None):
        """The round trips of a WRITE by the length of receives."""
        found = {row["inline_bytes"]: row["round_trips"] for row in rows or self.swept
                 if (row["size"], row["transfer_mode"]) == (int(size), via)}
        if not found:
            raise Missing(f"rows of several lengths of receives for {size} {via}")
        return dict(sorted(found.items()))

    def least(self, size, via):
        few = [length for length, trips in self.trips(size, via).items() if trips == 1]
        if not few:
            raise Missing(f"a length of receives with which a WRITE of {size} takes one round trip by {via}")
        return str(few[0])

    def never(self, size, vias, rows=None):
        for via in vias.split(","):
            if 1 in self.trips(size, via, rows).values():
                raise Missing(f"what the text says: a WRITE of {size} by {via} takes one round trip with receives of no length")
        return ""

    def near(self, size, vias):
        return self.never(size, vias, self.swept_near)

    def alike_trips(self, sizes, vias):
        first, *others = vias.split(",")
        for size, via in itertools.product(sizes.split(","), others):
            if self.trips(size, via) != self.trips(size, first):
                raise Missing(f"what the text says: {via} and {first} take as many round trips for {size}")
        return ""

    def memory(self, length):
        """All modes have as many receives."""
        found = {row["receive_memory_requester"] + row["receive_memory_responder"] for row in self.swept
                 if row["inline_bytes"] == int(length)}
        if len(found) != 1:
            raise Missing(f"one amount of memory for receives of {length}: {found}")
        return f"{found.pop() / (1 << 20):.1f}"

    def receives(self, vias):
        """Round trips over memory: for each size and mode a line, for each length of receives a column."""
        vias = vias.split(",")
        lengths = sorted({row["inline_bytes"] for row in self.swept})
        heads = [("KiB of each", [str(length >> 10) for length in lengths]), ("MiB of all", [self.memory(length) for length in lengths])]
        line = lambda name, cells: f"{name:<13}" + "".join(f"{cell:>6}" for cell in cells)
        text = [line(name, cells) for name, cells in heads]
        at = lambda column: 92 + 42 * column
        label = lambda x, y, what: f'<text x="{x}" y="{y}">{what}</text>'
        shapes, y = [], 0
        for name, cells in heads:
            y += 14
            shapes.append(label(0, y, name) + "".join(label(at(n), y, cell) for n, cell in enumerate(cells)))
        for size in sorted({row["size"] for row in self.swept}):
            text += ["", f"WRITE of {size_name(size)}"]
            y += 26
            shapes.append(label(0, y, text[-1]))
            for via in vias:
                trips = [shown(found) for found in self.trips(size, via).values()]
                text.append(line(f"  {via}", trips))
                y += 32
                shapes.append(label(12, y, via))
                for column, found in enumerate(trips):
                    height = 11 * float(found)
                    shapes.append(f'<rect x="{at(column) + 12}" y="{y - height}" width="30" height="{height}"/>')
                    shapes.append(label(at(column), y, found))
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" version="1.2" baseProfile="tiny" '
            f'viewBox="0 0 {at(len(lengths)) + 8} {y + 8}" font-family="monospace" font-size="11">{"".join(shapes)}</svg>'
        )
        art = "\n".join(text)
        return (
            '<figure anchor="receives"><name>Round Trips of a WRITE, by KiB of Each Receive and MiB of All</name><artset>'
            f'<artwork type="svg">{svg}</artwork>'
            f'<artwork type="ascii-art"><![CDATA[\n{art}\n]]></artwork></artset></figure>'
        )

    def date(self):
        return f'<date year="{TODAY:%Y}" month="{TODAY:%B}" day="{TODAY.day}"/>'

    def errata(self):
        out, text = [], (repo.ROOT / "drafts/errata.md").read_text()
        for part in text.split("\n## ")[1:]:
            title, _, body = part.partition("\n")
            rows = [re.split(r"(?<!\\) \| ", line.strip()[2:-2]) for line in body.split("\n") if line.startswith("| ")]
            intro = [line for line in body.split("\n|")[0].split("\n") if line]
            title = " ".join(word if word == "and" else word[0].upper() + word[1:] for word in title.split())
            out.append(f"<section><name>{inline(title)}</name>")
            if intro:
                out.append(f"<t>{inline(' '.join(intro))}</t>")
            out.append('<dl newline="true">')
            is_question = rows[0][1].strip() == "what"
            for row in rows[1:]:
                if len(row) != 5:
                    raise Missing(f"five columns in errata.md: {row}")
                for section in sections_in(row[0]):
                    self.tracer.said(section)
                names = re.findall(r"`([^`]*)`", row[4])
                if not names:
                    raise Missing(f"where {row[1]} is to be seen")
                for name in names:
                    self.tracer.seen(name)
                seen = ", ".join(f"<tt>{breakable(name)}</tt>" for name in names)
                where, what, here, why = (inline(cell.strip()) for cell in row[:4])
                label = "Open: " if is_question else "Text: "
                out.append(
                    f"<dt>{where}</dt><dd><t>{label}{what}.</t><t>Here: {here}.</t><t>Why: {why}.</t><t>Seen in: {seen}.</t></dd>"
                )
            out.append("</dl></section>")
        return "\n".join(out)

    def errata_07(self):
        """A section for each group, with a list of its entries."""
        out, group = [], None
        for entry in errata.entries():
            if entry["group"] != group:
                out.append("</dl></section>" if group else "")
                group = entry["group"]
                title = " ".join(word if word in ("and", "the") else word[0].upper() + word[1:] for word in group.split())
                out.append(f'<section><name>{inline(title)}</name><dl newline="true">')
            for name in errata.names(entry, "Test"):
                self.tracer.seen(name)
            shown = [(line, inline(entry[line])) for line in errata.LINES[1:]]
            tests = [f"<tt>{breakable(name)}</tt>" for name in errata.names(entry, "Test")]
            shown.append(("Seen in", (", ".join(tests) or "no test yet") + "."))
            body = "".join(f"<t>{name}: {text}</t>" for name, text in shown)
            out.append(f"<dt>{entry['number']}. {inline(entry['title'])} ({entry['Section']})</dt><dd>{body}</dd>")
        return "\n".join(out) + "</dl></section>"

    def entry(self, number):
        """A reference to an entry of errata-07.md."""
        if int(number) not in [entry["number"] for entry in errata.entries()]:
            raise Missing(f"entry {number} of errata-07.md")
        return f"entry {number}"

    def requirements(self, document, *key):
        """A number of the compliance report: {{requirements version-two-07 MUST with tests}}."""
        for counts in self.compliance["documents"]:
            if counts["document"] == document:
                return str(counts[" ".join(key)])
        raise Missing(f"requirements of {document}")

    def octets(self, path, name):
        """An array of words, as they are on the wire."""
        text = (repo.ROOT / path).read_text()
        match = re.search(rf"const {name}: \[u32; (\d+)\] = \[(.*?)\];", text, re.S)
        if not match:
            raise Missing(f"an array {name} in {path}")
        words = re.findall(r"0x([0-9a-f]{4})_([0-9a-f]{4}), // (.*)", match.group(2))
        if len(words) != int(match.group(1)):
            raise Missing(f"the meaning of each word of {name} in {path}")
        out = [" octet  value        field"]
        for at, (high, low, meaning) in enumerate(words):
            number = bytes.fromhex(high + low).hex(" ")
            out.append(f"{4 * at:>6}  {number}  {meaning}")
        return '<artwork type="ascii-art"><![CDATA[\n' + "\n".join(out) + "\n]]></artwork>"

    def compliance_table(self):
        kinds = ["MUST", "SHOULD"]
        out = ["<table><name>Requirements, and How Many Have Tests</name><thead><tr><th>document</th>"]
        out += [f'<th align="right">{kind}</th><th align="right">with tests</th>' for kind in kinds]
        out.append("</tr></thead><tbody>")
        for counts in self.compliance["documents"]:
            cells = "".join(
                f'<td align="right">{counts[kind]}</td><td align="right">{counts[kind + " with tests"]}</td>'
                for kind in kinds
            )
            out.append(f"<tr><td>{counts['document']}</td>{cells}</tr>")
        return "\n".join(out) + "</tbody></table>"

    def gaps(self):
        out = ["<dl>"]
        for row in self.compliance["rows"]:
            if row["level"] in ("MUST", "SHOULD") and not row["tests"]:
                where = f"{row['document']}, {row['section']}"
                out.append(f"<dt>{where}</dt><dd>{inline(row['text'])} Here: {inline(row['kept'])}.</dd>")
        return "\n".join(out) + "</dl>"

    def costs(self):
        """The costs of the simulation, from where its defaults are."""
        out = ['<table anchor="costs"><name>Costs in the Simulation</name>']
        out.append("<thead><tr><th>what</th><th>cost</th></tr></thead><tbody>")
        for path, kind in (("rdma/sim/src/costs.rs", "Costs"), ("sim/src/measure/setting.rs", "Setting")):
            text = (repo.ROOT / path).read_text()
            meanings = {name: meaning for meaning, name in re.findall(r"/// (.*)\n    pub (\w+):", text)}
            defaults = text.partition(f"impl Default for {kind}")[2].partition("\n}\n")[0]
            found = re.findall(r"^ +(\w+): (?:Duration::from_(\w+)\()?([\d_]+)\)?,$", defaults, re.M)
            if not found:
                raise Missing(f"costs in {path}")
            for name, unit, value in found:
                if name == "detection":  # Of lost connections, which there are none of.
                    continue
                number = int(value)
                cost = f"{number} {UNITS[unit]}" if unit else str(number)
                out.append(f"<tr><td>{inline(meanings[name].rstrip('.'))}</td><td>{cost}</td></tr>")
        return "\n".join(out) + "</tbody></table>"

    def oracle(self, what):
        if what in ("values", "disagreements"):
            return str(self.compared[what])
        files = [json.loads(path.read_text()) for path in (repo.ROOT / "drafts/vectors").glob("*.json")]
        return str(len(files) if what == "kinds" else sum(len(file["vectors"]) for file in files))

    def const(self, path, name):
        text = (repo.ROOT / path).read_text()
        match = re.search(rf"const {name}: \w+ = ([\d_]+)(?: << (\d+))?;", text)
        if not match:
            raise Missing(f"a constant {name} in {path}")
        return str(int(match.group(1)) << int(match.group(2) or 0))

    def fields(self, file, struct):
        """Each field with the comment above it or behind it."""
        found = re.search(rf"\bstruct\s+{re.escape(struct)}\s*\{{(.*?)\}}\s*;", xdr_file(file), re.S)
        if not found:
            raise Missing(f"a structure {struct} in {file}")
        out = ["<dl>"]
        for match in re.finditer(r"((?:/\*.*?\*/\s*)*)([^;/]+);((?:[ \t]*/\*.*?\*/)?)", found.group(1), re.S):
            above, declaration, behind = match.groups()
            name = re.findall(r"\w+", re.sub(r"[<\[].*", "", declaration, flags=re.S))[-1]
            comments = re.findall(r"/\*(.*?)\*/", above + behind, re.S)
            comment = " ".join(re.sub(r"\n\s*\*", "\n", " ".join(comments)).split())
            if not comment:
                raise Missing(f"a comment of {name} in {file}")
            out.append(f"<dt>{name}</dt><dd>{inline(comment)}</dd>")
        return "\n".join(out) + "\n</dl>"

    def xdr(self, file):
        text = xdr_file(file)
        return f'<sourcecode type="xdr" name="{file}" markers="true"><![CDATA[\n{text}]]></sourcecode>'

    def extract(self):
        return f'<sourcecode type="shell" name="extract.sh" markers="true"><![CDATA[\n{EXTRACT}]]></sourcecode>'

    def seen(self, *_):
        return ""

    text = plain = seen

    def traces(self):
        return self.tracer.appendix(self.template)

    def expand(self, template):
        self.template = template
        self.tracer.paragraphs(template)

        def one(match):
            name, *words = match.group(1).replace("&lt;", "<").split()
            if name == "docname":
                return self.docname
            if name == "compliance":
                return self.compliance_table()
            return getattr(self, name)(*words)

        return re.sub(r"\{\{(.*?)\}\}", one, template, flags=re.S)


def read(path):
    """What a measurement or a report wrote."""
    try:
        return json.loads(pathlib.Path(path).read_text())
    except FileNotFoundError:
        raise Missing(f"the file {path} (drafts/build makes it)") from None


def xdr_file(name):
    path = repo.ROOT / "drafts/xdr" / name
    if not path.is_file():
        raise Missing(f"the path {path.relative_to(repo.ROOT)}")
    return path.read_text()


def rows_of(figure):
    """The rows that `figures/make` saved, each with what it has in common with all others."""
    return [figure["alike"] | row for row in figure["rows"]]


def inline(text):
    """Markdown within a line as XML."""
    parts = re.split(r"`([^`]*)`", text)
    return "".join(escape(p, quote=False) if i % 2 == 0 else f"<tt>{escape(p)}</tt>" for i, p in enumerate(parts))


def sections_in(where):
    """ "base 4.2, xchar 5.2, 6" as documents with sections."""
    document = None
    for item in where.split(","):
        words = item.split()
        document = " ".join(words[:-1]) or document
        yield f"{document} {words[-1]}"


def traced(template, tracer):
    """What the template names in code style: paths, which must exist, and tests, which too."""
    for name in re.findall(r"<tt>([^<]*)</tt>", template):
        if "/" in name or name.count("_") >= 3:
            tracer.seen(name)


def main(template, figures, compliance, oracle, docname, folder):
    template = pathlib.Path(template).read_text()
    draft = Draft(figures, compliance, oracle, docname)
    try:
        traced(template, draft.tracer)
        text = draft.expand(template)
    except Missing as missing:
        sys.exit(f"the draft refers to {missing}, which is not there")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{docname}.xml").write_text(text)
    (folder / "extract.sh").write_text(EXTRACT)


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
