"""The published figures: how each is measured, and which passages quote it.

A quote is a function that returns the lines of a passage, from the data of its figures in the order in which it names
them. What a passage says in words, the function claims first (`must`), so that it fails when the data say otherwise.
"""

import itertools
import textwrap
from dataclasses import dataclass, field

WIDTH = 120
# Programs: the profile that each is built in, and the words for cargo, the last of which is the name of its file.
PROGRAMS = {
    "rpcrdma": ("release", ["--release", "-p", "rpcrdma"]),
    "load": ("release", ["--release", "-p", "rpcrdma-benches", "--bin", "load"]),
    # These are built as tests are, as they count and do not measure.
    "batch": ("debug", ["--workspace", "--bin", "batch"]),
    "batch-figure": ("debug", ["--workspace", "--bin", "batch-figure"]),
    "timed-batch-figure": ("release", ["--release", "-p", "rpcrdma-ext-batch", "--bin", "batch-figure"]),
}
# What no operation that `compare` measures by itself goes through.
NOT_COMPARED = ["-nfs-mount", "-rpcrdma-sim", "-nfs-copy"]

# Lengths of receives: powers of two, and what holds a WRITE of 8 or of 64 KiB with its headers.
LENGTHS = "4k..256k,12k,65k"


class Claim(Exception):
    """A claim of a passage that does not hold."""


def must(holds, claim):
    if not holds:
        raise Claim(claim)


@dataclass
class Figure:
    """A measurement. `words`: its command; the name of a program stands for its path, and JSON for a file that the
    command writes. `packages` and `files`: what it depends on, if it is not counted (sources.digests)."""

    name: str
    words: list
    counted: bool = False
    programs: list = field(default_factory=lambda: ["rpcrdma"])
    packages: list = field(default_factory=lambda: ["rpcrdma"])
    files: list = field(default_factory=list)
    needs_root: bool = False
    # It is counted each time that the drafts are built (drafts/build), and not saved.
    of_drafts: bool = False

    @property
    def command(self):
        return " ".join(self.words).replace(" --json JSON", "").replace(" JSON", "")


def simulated(name, options, of_drafts=False):
    words = ["rpcrdma", "compare", "--device", "sim", *options.split(), "--json", "JSON"]
    return Figure(name, words, counted=True, of_drafts=of_drafts)


def clocked(name, options, packages):
    return Figure(name, ["rpcrdma", "compare", *options.split(), "--json", "JSON"], packages=["rpcrdma", *packages])


LIST = [
    simulated("write-8k", "--ops write --sizes 8k"),
    simulated("receives", f"--receives {LENGTHS} --ops write --delay 1ms"),
    simulated("receives-near", f"--receives {LENGTHS} --ops write"),
    Figure("batch", ["batch-figure"], counted=True, programs=["batch-figure"]),
    Figure("batch-compare",
           "batch compare --device sim --ops null --via v2,v2+batch,wg,wg+batch --in-flight 1,4,16,64 --json JSON".split(),
           counted=True, programs=["batch"]),
    Figure("batch-iwarp", ["timed-batch-figure", "--iwarp"], programs=["timed-batch-figure"],
           packages=["rpcrdma-ext-batch"]),
    clocked("answer", "", NOT_COMPARED),
    clocked("copied", "--ops write --sizes 64k,1M --via v1,v2-cont,v2-ddp-cont", NOT_COMPARED),
    clocked("random", "--run random --delay 1ms", ["-rpcrdma-sim", "-nfs-copy"]),
    clocked("tree", "--run tree --via v2-ddp-cont", ["-rpcrdma-sim", "-nfs-copy"]),
    Figure("direct-io", ["testing/direct-io/cost", "rpcrdma", "160", "9", "JSON"],
           packages=["rpcrdma", "-rpcrdma-compare", "-nfs-mount", "-rpcrdma-sim"], files=["testing/direct-io/cost"],
           needs_root=True),
    Figure("threads", ["benches/threads", "rpcrdma", "load", "JSON"], programs=["rpcrdma", "load"],
           packages=["rpcrdma", "rpcrdma-benches", "-rpcrdma-compare", "-nfs-mount", "-rpcrdma-sim", "-nfs-copy"],
           files=["benches/threads"]),
    simulated("drafts", "--ops null,read,write --sizes 1k,8k,64k,1M", of_drafts=True),
    simulated("drafts-long", "--ops read,write --sizes 1k,8k,64k,1M --via wg --inline 65k", of_drafts=True),
]
FIGURES = {figure.name: figure for figure in LIST}


def row(data, **wanted):
    """The row of some data with these values."""
    for one in data["rows"]:
        one = data["alike"] | one
        if all(one.get(key, 0) == value for key, value in wanted.items()):
            return one
    raise Claim(f"a row with {wanted}")


def shown(value):
    """A number without needless digits."""
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}"


def size(count):
    """A number of bytes, as texts have it."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}".replace(".0 ", " ")
    return f"{count} B"


def table(*lines):
    """A table, its headings first."""
    heads = lines[0]
    return [f"| {' | '.join(cells)} |" for cells in lines[:1]] + ["|" + "---|" * len(heads)] + [
        f"| {' | '.join(cells)} |" for cells in lines[1:]]


def wrapped(text, begin=""):
    """A paragraph, each line of which begins with `begin`; a list item has its own beginning in the text."""
    rest = "  " if text.startswith("* ") else ""
    return textwrap.wrap(text, WIDTH - 1, initial_indent=begin, subsequent_indent=begin + rest,
                         break_long_words=False, break_on_hyphens=False)


def paragraphs(output):
    """The sentences of a command's output: lines until the next one that begins a sentence at its margin."""
    out = []
    for line in output:
        if out and line and out[-1] and not out[-1].endswith((".", ":")):
            out[-1] += " " + line
        else:
            out.append(line)
    return out


def sentence(data, beginning, part=""):
    """The sentence of the output that begins like that and has that part."""
    for text in paragraphs(data["output"]):
        if text.startswith(beginning) and part in text:
            return text
    raise Claim(f"the output has a sentence that begins with {beginning!r} and has {part!r}")


def is_optimized(data):
    """Whether a figure was measured by optimized programs: as it says itself, or as its programs are built."""
    built = all(PROGRAMS[word][0] == "release" for word in data["command"].split() if word in PROGRAMS)
    return data.get("alike", {}).get("optimized", built)


def tells_times(data):
    """Whether the times of a figure are good enough for a claim about them in words."""
    return is_optimized(data) and data["other_work"] < 0.5


def must_tell_times(data):
    must(tells_times(data), "its times are of optimized programs on an idle machine")


def measured_on(data):
    """What a figure was measured on."""
    build = "" if is_optimized(data) else ", by a debug build"
    alone = "" if data["other_work"] < 0.05 else f" Just before, other work took {data['other_work']:.1f} processors."
    return f"Measured on {data['date']} at commit {data['commit']}{build}: {data['machine']}.{alone}"


# README.md

MODES = {
    "v1": "version 1",
    "v1-inv": "version 1 with remote invalidation and receives of 4 KiB, like Linux's",
    "v1-long": "the same with receives as long as those of `v2-ddp`",
    "v2-cont": "version 2 of 2016 with message continuation, in receives of 4 KiB",
    "v2-ddp": "version 2 of 2016 with send-based data placement, in receives of 65 KiB",
    "wg-ddp": "version 2 of the working group with the same",
}


def transfer_modes(data, clocked_answer):
    lines = [["transfer mode", "round trips", "interrupts, client", "interrupts, server", "registrations", "RDMA Reads",
              "time, µs"]]
    keys = ("round_trips", "interrupts_requester", "interrupts_responder", "registrations", "rdma_reads")
    for mode, meaning in MODES.items():
        one = row(data, transfer_mode=mode)
        lines.append([f"`{mode}`: {meaning}", *(shown(one[key]) for key in keys), f"{one['p50_us']:.1f}"])
    must(len({tuple(line[1:6]) for line in lines[3:]}) == 1, "receives of 65 KiB alone save as much as version 2 does")
    lengths = {mode: row(data, transfer_mode=mode)["inline_bytes"] >> 10 for mode in MODES}
    must(lengths == {"v1": 4, "v1-inv": 4, "v1-long": 65, "v2-cont": 4, "v2-ddp": 65, "wg-ddp": 65}, "lengths of receives")
    cost = dict(one.split("=") for one in data["alike"]["costs"].split(","))
    unit = lambda name: cost[name].replace("us", " µs").replace("ns", " ns").replace("g", " Gbit/s")
    after = (
        f"An 8 KiB WRITE, alone. The time is virtual, the sum of these costs: a link of {unit('link-delay')} each way and "
        f"{unit('rate')}; {unit('interrupt')} for an interrupt, {unit('registration')} for a registration and "
        f"{unit('registration-page')} for each page of it, {unit('invalidation')} and {unit('invalidation-page')} for an "
        f"invalidation by the client, {unit('read-turnaround')} before an RDMA Read is answered, {unit('post')} to post a work "
        f"request and {unit('completion')} to handle a completion, where a reply waits for it; and copies at "
        f"{unit('receiver-copy-rate')}. Data that arrives inline is copied once, and placed data is not: that is the "
        f"difference of `v1-long` and `v2-ddp` here.{by_the_clock(clocked_answer)} `--costs` has those of other hardware.")
    return [*table(*lines), "", *wrapped(after)]


def by_the_clock(data):
    """What placement takes beside version 1 with receives as long, by the clock, where the simulation has it less."""
    if not tells_times(data):
        return ""
    one = row(data, op="write", size=8 << 10, transfer_mode="v2-ddp-cont")
    found = one["v1_long_ratio"], *one["v1_long_ratio_interval"]
    return (f" By the clock (below), the work of the processors counts too, and beside `v1-long` placement takes "
            f"{of_the_time(found)}{', the opposite order' if found[1] > 1 else ''}.")


SIZES = (8 << 10, 64 << 10, 1 << 20)
# Modes that take as many round trips with each length of receives.
ALIKE = [("v1-inv", "v2"), ("v2-ddp",), ("v2-cont", "wg"), ("v2-ddp-cont", "wg-ddp")]


def trips_by_length(data):
    """For each length of receives: the memory for them, and the round trips of each group of modes, by size."""
    lengths = sorted({one["inline_bytes"] for one in data["rows"]})
    found = {}
    for length in lengths:
        memories, by_modes = set(), []
        for modes in ALIKE:
            each = [[row(data, transfer_mode=mode, size=of, inline_bytes=length) for of in SIZES] for mode in modes]
            memories |= {one["receive_memory_requester"] + one["receive_memory_responder"] for one in sum(each, [])}
            trips = [tuple(shown(one["round_trips"]) for one in of_mode) for of_mode in each]
            must(len(set(trips)) == 1, f"{', '.join(modes)} take as many round trips with receives of {length}")
            by_modes.append(trips[0])
        must(len(memories) == 1, f"all modes have as much memory for receives of {length}")
        found[length] = (memories.pop(), by_modes)
    return found


def receives(data, near):
    heads = ["receives of", "memory for them"] + [", ".join(f"`{mode}`" for mode in modes) for modes in ALIKE]
    lines, last = [heads], None
    found = trips_by_length(data)
    for length, (memory, trips) in found.items():
        # Lengths that change nothing are left out.
        if trips != last:
            lines.append([size(length), size(memory), *(", ".join(each) for each in trips)])
        last = trips
    linux, _, continued, _ = zip(*(trips for _, trips in found.values()))
    lengths = list(found)
    of_one_trip = lambda mode, at: lengths[[trips[at] for trips in mode].index("1")]
    must(of_one_trip(linux, 1) == 65 << 10, "version 1 takes one round trip for 64 KiB with receives of 65 KiB")
    must(of_one_trip(continued, 1) == 4 << 10, "continuation takes one round trip for 64 KiB with receives of 4 KiB")
    must(all(trips[2] == "2" for trips in linux), "version 1 takes two round trips for 1 MiB")
    must(trips_by_length(near)[32 << 10][1][2][2] == "2" and trips_by_length(near)[256 << 10][1][2][2] == "2",
         "over the shorter link, 1 MiB is not continued")
    said = (
        "So receives of 65 KiB alone save as much here, in any version. What version 2 adds is message continuation "
        "(`v2-cont`, `wg`), which does it with receives of 4 KiB, a fraction of that memory, and for 1 MiB with receives of "
        f"{size(of_one_trip(continued, 2))}; and, with placement (`v2-ddp`), data that arrives aligned and in one piece. The round "
        "trips of a WRITE of 8 KiB, 64 KiB and 1 MiB, in this order, over a link of 1 ms each way, by the length of the receives "
        "at both ends and the memory that these take for one connection (`rpcrdma compare --device sim --receives "
        f"{LENGTHS} --ops write --delay 1ms`; lengths between take what the line above says):")
    after = (
        "A message in more Sends than the 64 credits would have to wait for more of them, and version 2 of 2016 has none: with "
        f"12 KiB, 1 MiB is at least {-(-(1 << 20) // (12 << 10))} Sends, and it is fetched by an RDMA Read. So it is with all of these lengths where a round trip "
        "takes less time than to copy the data, here over a link of 5 µs each way. The sender chooses by the round-trip time that it "
        "is told (`--delay`, or `link-delay` in `--costs`); it measures none. "
        "[More about longer receives](docs/compare.md#longer-receives).")
    return [*wrapped(said), "", *table(*lines), "", *wrapped(after)]


def answer(data):
    text = " ".join(data["output"])
    begin, end = text.index("An 8 KiB WRITE takes"), text.index(" v1: RFC 8166")
    lines = [["WRITE of 8 KiB", "receives of", "memory, client + server", "round trips", "wake-ups, client / server",
              "registrations", "p50, µs", "beside `v1-inv`", "at RTT 2 ms"]]
    for mode in ("tcp", "v1-inv", "v1-long", "v2-cont", "v2-ddp-cont"):
        one = row(data, op="write", size=8 << 10, transfer_mode=mode)
        rdma = mode != "tcp"
        over = next(point for point in one["latency_over_delay"] if point["delay_us"] == 1000)
        ratios = [(of["baseline_ratio"], *of["baseline_ratio_interval"]) for of in (one, over)]
        lines.append([
            f"`{mode}`", size(one["inline_bytes"]) if rdma else "-",
            f"{size(one['receive_memory_requester'])} + {size(one['receive_memory_responder'])}" if rdma else "-",
            f"{one['round_trips']:.0f}", f"{one['interrupts_requester']:.0f} / {one['interrupts_responder']:.0f}",
            f"{one['registrations']:.0f}" if rdma else "-", f"{one['p50_us']:.1f}",
            *("1" if mode == "v1-inv" else with_interval(found) for found in ratios)])
    words = [*wrapped(text[begin:end], "> "), ""] if tells_times(data) else []
    return [*table(*lines), "", *words, *wrapped(measured_on(data))]


def random(data):
    must_tell_times(data)
    said = sentence(data, "`random` takes", " by v2-ddp-cont and ")
    must(" by v1-inv over " in said, "the baseline is version 1 as Linux uses it")
    tcp = row(data, transfer_mode="tcp")["elapsed_s"]
    after = (f"It takes about a minute. In that run plain TCP took {tcp:.2f} s, as the software iWARP device runs over TCP "
             "itself: what counts here are the round trips.")
    return [*wrapped(said, "> "), "", *wrapped(f"{after} {measured_on(data)}")]


# docs/compare.md


def longer_receives(data):
    by_length = {length: trips for length, (_, trips) in trips_by_length(data).items()}
    linux, placement, continued, both = (
        {of: [(length, trips[at][index]) for length, trips in by_length.items()] for index, of in enumerate(SIZES)}
        for at in range(4))
    least = lambda found, of: min(length for length, trips in found[of] if trips == "1")
    must(placement == linux, "placement saves no round trip by itself")
    must(both == continued, "placement saves no round trip beside continuation")
    must(all(trips == "2" for _, trips in linux[1 << 20]), "1 MiB takes two round trips in version 1")
    must(least(continued, 8 << 10) == least(continued, 64 << 10) == 4 << 10, "continuation takes one round trip at 4 KiB")
    short, long = least(linux, 8 << 10), least(linux, 64 << 10)
    texts = [
        f"* Longer receives: a WRITE takes one round trip in every version, version 1 included, if it fits into a receive: "
        f"of the lengths measured, 8 KiB with receives of {size(short)}, 64 KiB with receives of {size(long)}. All "
        "receives are as long, whether calls are or not.",
        "* Continuation (`v2-cont`, `wg`): a WRITE of 8 or 64 KiB takes one round trip with receives of 4 KiB. What counts is "
        f"the memory of all credits together: with 64 of them, 1 MiB takes one round trip with receives of "
        f"{size(least(continued, 1 << 20))}. In version 1, 1 MiB takes two round trips with all lengths that RFC 8797 has.",
        "* Placement (`v2-ddp`): by itself no round trip less than version 1 with receives as long. Data comes aligned and in "
        "one piece, which pays where a receiver has to have it so. The server and the clients here take it from wherever it "
        "lies, and copy none.",
    ]
    return list(itertools.chain.from_iterable(map(wrapped, texts)))


def tree_trips(data):
    one = row(data, transfer_mode="v2-ddp-cont")
    return wrapped(
        "The slope can be some percent too high: on the development machine, "
        f"{one['round_trips']:.0f} round trips for the {one['operations']:.0f} calls of `tree`, of which none overlap. The likely "
        "reason, which was not tested, is that to wake up takes longer after a longer sleep.")


# docs/direct-io.md

WAYS = {
    "version 1": "version 1 (RDMA Read)",
    "long receives": "version 1, receives of 65 KiB",
    "continuation": "continuation",
    "placement": "placement",
}


def ratio(data, of_size, of, over):
    """A ratio of the server's times, with its interval."""
    for one in data["ratios"]:
        if (one["size"], one["of"], one["over"]) == (of_size, list(of), list(over)):
            return one["ratio"], *one["interval"]
    raise Claim(f"a ratio of {of} and {over} at {of_size}")


def with_interval(found):
    return "{:.2f} ({:.2f} to {:.2f})".format(*found)


def of_the_time(found):
    """A ratio in words, like `compare` says it: none, if the interval has 1."""
    value, low, high = found
    if low <= 1 <= high:
        return f"the same time within the interval ({low:.2f} to {high:.2f})"
    return f"{value:.2f} ({low:.2f} to {high:.2f}) of the time"


def direct_io(data):
    lines = [["WRITE", "way", "client, direct", "server, direct", "client, cached", "server, cached",
              "server, direct / cached (96 % interval)"]]
    for of_size, (way, name) in itertools.product(("64 KiB", "1 MiB"), WAYS.items()):
        times = {one["mode"]: one for one in data["rows"] if (one["way"], one["size"]) == (way, of_size)}
        if not times:
            continue
        cells = [f"{times[mode][key]:.0f}" for mode in ("direct", "cached") for key in ("client_us", "server_us")]
        pays = ratio(data, of_size, (way, "direct"), (way, "cached"))
        lines.append([of_size, name, *cells, with_interval(pays)])
    return [*table(*lines), "", *wrapped(measured_on(data))]


def direct_io_pays(data):
    """What the table says of --direct-io, and of placement beside the other ways."""
    must_tell_times(data)
    pays = lambda of_size, way: ratio(data, of_size, (way, "direct"), (way, "cached"))
    beside = lambda of_size, way: of_the_time(ratio(data, of_size, ("placement", "direct"), (way, "direct")))
    copied = {(one["way"], one["size"]): one.get("copied", 0) for one in data["rows"] if one["mode"] == "direct"}
    must(pays("1 MiB", "version 1")[2] < 1, "with WRITEs of 1 MiB, --direct-io takes the server less time")
    must(copied["version 1", "64 KiB"] == copied["placement", "64 KiB"] == 0, "RDMA Reads and placement are aligned")
    must(0 < copied["continuation", "64 KiB"] < 0.5, "of continued data, a small part is copied for alignment")
    texts = [
        f"* With WRITEs of 1 MiB, `--direct-io` takes the server {of_the_time(pays('1 MiB', 'version 1'))} by version 1, because "
        f"nothing is copied. With WRITEs of 64 KiB it takes {of_the_time(pays('64 KiB', 'version 1'))}, because each waits for the "
        "device: use a large `wsize`, which is the default.",
        "* An RDMA Read puts data into aligned memory, as placement does. Beside version 1, placement takes the server "
        f"{beside('64 KiB', 'version 1')} at 64 KiB, and {beside('1 MiB', 'version 1')} at 1 MiB. In both, nothing was copied for "
        "alignment. What placement saves is a round trip and a registration.",
        "* Receives of 65 KiB alone save the same, but the data does not arrive aligned: "
        f"{copied['long receives', '64 KiB']:.0%} of it was copied. Beside them, placement takes the server "
        f"{beside('64 KiB', 'long receives')} at 64 KiB.",
        "* Beside continuation, whose data does not arrive aligned either, placement takes the server "
        f"{beside('64 KiB', 'continuation')} at 64 KiB. Only {copied['continuation', '64 KiB']:.0%} of the continued data was copied "
        "for alignment: 17 Sends for each WRITE use up the credits, and the rest was fetched by RDMA Reads. WRITEs of 1 MiB "
        "are always fetched then, as a message has at most 64 transmissions of 4 KiB.",
    ]
    return [line for text in texts for line in wrapped(text.replace("%", " %"))]


def copied(data):
    counts = {
        of: [f"{row(data, op='write', size=of, transfer_mode=mode)['copied_bytes']:,.0f}"
             for mode in ("v1", "v2-cont", "v2-ddp-cont")] for of in (64 << 10, 1 << 20)}
    said = lambda of: "{}, {} and {}".format(*counts[of])
    return wrapped(
        "Copies for alignment come on top of those of the transport, which do not depend on the export. `rpcrdma compare "
        f"--ops write --sizes 64k,1M --via v1,v2-cont,v2-ddp-cont` counted {said(64 << 10)} bytes for a WRITE of 64 KiB at both "
        f"ends together, and {said(1 << 20)} bytes for 1 MiB.")


# docs/load.md

NUMBERS = {"2": "two", "4": "four"}
OPS = {"getattr": "GETATTR", "read": "READ", "write": "WRITE"}


def of_threads(data, connections, **wanted):
    """A ratio of calls per second of processor time, with its interval."""
    for one in data["rows"]:
        if all(one[key] == value for key, value in (wanted | {"connections": connections}).items()):
            return one["ratio"], *one["interval"]
    raise Claim(f"a ratio with {wanted}")


def threads(data):
    waited = lambda transport: " and ".join(
        f"{one['waits']:,} times in {one['calls'] / 1e6:.2f} million calls with {NUMBERS[one['threads']]} threads"
        for one in data["waits"] if one["transport"] == transport and one["threads"] != "1")
    said = (
        "With 16 connections and eight calls in flight on each, threads waited for one another, over TCP, "
        f"{waited('tcp')}; by version 2, {waited('v2')}. Calls for each second of the server's processor time, in proportion to "
        "one thread (95 % interval):")
    lines = [["operation", "TCP, two threads", "TCP, four", "version 2, two", "version 2, four"]]
    for op, name in OPS.items():
        cells = [of_threads(data, 16, transport=transport, threads=count, op=op)
                 for transport in ("tcp", "v2") for count in ("2", "4")]
        must_tell_times(data)
        must(all(low <= 1 for _, low, _ in cells), f"{name} does not cost less with several threads")
        lines.append([name, *map(with_interval, cells)])
    return [*wrapped(said), "", *table(*lines), "", *wrapped(measured_on(data))]


def one_call(data):
    must_tell_times(data)
    found = [of_threads(data, 1, transport=transport, threads="auto", op=op)
             for transport in ("tcp", "v2") for op in ("getattr", "write")]
    least, most = (f"{edge(ratio for ratio, _, _ in found):.2f}" for edge in (min, max))
    return wrapped(
        f"One client with one call in flight gets {least} to {most} times as many calls for each second of the server's processor "
        "time with `auto` as with one thread (GETATTR and WRITE of 8 KiB, TCP and version 2).")


# docs/tutorial.md


def batch(data):
    """The table, and what it shows; the words are claims about its rows."""
    rows = {}
    for line in data["output"][1:]:
        version, in_flight, rest = line.split(", ", 2)
        how, numbers = ("batched", rest[7:]) if rest.startswith("batched") else ("one by one", rest[10:])
        numbers = [float(word) for word in numbers.replace("µs", "").split()]
        rows[version, int(in_flight.split()[0]), how] = numbers
    for version in ("2", "2wg"):
        for in_flight in (4, 16, 64):
            single, batched = rows[version, in_flight, "one by one"], rows[version, in_flight, "batched"]
            must(abs(batched[1] * in_flight - 2) < 0.1, "all calls in flight take one Send, and so do their replies")
            must(batched[2] * in_flight < 2.1, "one interrupt at each end for all calls in flight")
            must((batched[0] < 0.6 * single[0]) == (in_flight == 64), "only with 64 in flight is it faster")
            must(batched[0] < 1.02 * single[0], "it is never slower")
        must(rows[version, 1, "one by one"] == rows[version, 1, "batched"], "one call costs the same")
    return ["```text", *data["output"], "```"]


def batch_compare(data):
    """The table of `compare` with several calls in flight, with batches and without."""
    lines = [["in flight", "transfer mode", "p50, µs", "calls per second", "Sends", "interrupts, client", "interrupts, server"]]
    for in_flight in (1, 4, 16, 64):
        for mode in ("v2", "wg"):
            alone, batched = (row(data, in_flight=in_flight, transfer_mode=of) for of in (mode, f"{mode}+batch"))
            must((batched["sends"] < alone["sends"]) == (in_flight > 1), "batches save Sends where several calls are in flight")
            for one in (alone, batched):
                lines.append([str(in_flight), f"`{one['transfer_mode']}`", f"{one['p50_us']:.1f}", f"{one['ops_per_s']:,.0f}",
                              *(f"{one[key]:.2f}" for key in ("sends", "interrupts_requester", "interrupts_responder"))])
    return table(*lines)


def batch_iwarp(data):
    return ["```text", *data["output"], "```", "", *wrapped(measured_on(data))]


@dataclass
class Quote:
    """A passage of a text that figures are quoted in."""

    path: str
    name: str
    figures: list
    lines: object


QUOTES = [
    Quote("README.md", "transfer-modes", ["write-8k", "answer"], transfer_modes),
    Quote("README.md", "receives", ["receives", "receives-near"], receives),
    Quote("README.md", "answer", ["answer"], answer),
    Quote("README.md", "random", ["random"], random),
    Quote("docs/compare.md", "longer-receives", ["receives"], longer_receives),
    Quote("docs/compare.md", "tree-trips", ["tree"], tree_trips),
    Quote("docs/direct-io.md", "direct-io", ["direct-io"], direct_io),
    Quote("docs/direct-io.md", "direct-io-pays", ["direct-io"], direct_io_pays),
    Quote("docs/direct-io.md", "copied", ["copied"], copied),
    Quote("docs/load.md", "threads", ["threads"], threads),
    Quote("docs/load.md", "one-call", ["threads"], one_call),
    Quote("docs/tutorial.md", "batch-compare", ["batch-compare"], batch_compare),
    Quote("docs/tutorial.md", "batch", ["batch"], batch),
    Quote("examples/batch/README.md", "batch-compare", ["batch-compare"], batch_compare),
    Quote("examples/batch/README.md", "batch", ["batch"], batch),
    Quote("examples/batch/README.md", "batch-iwarp", ["batch-iwarp"], batch_iwarp),
]
