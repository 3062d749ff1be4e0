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
    # These are built as tests are, as they count and do not measure.
    "batch": ("debug", ["--workspace", "--bin", "batch"]),
    "credits": ("debug", ["--workspace", "--bin", "credits"]),
    "kv": ("debug", ["--workspace", "--bin", "kv"]),
    "timed-batch": ("release", ["--release", "-p", "rpcrdma-ext-batch", "--bin", "batch"]),
}
# What no operation that `compare` measures by itself goes through.
NOT_COMPARED = ["-nfs-mount", "-rpcrdma-sim", "-nfs-copy"]

# Lengths of receives: the least, the greatest, and those at which a WRITE begins to take fewer round trips, each after
# the one that is 1 KiB shorter: what holds 8 KiB or 64 KiB with the headers, and a 64th of 1 MiB with them.
LENGTHS = "4k,8k,9k,16k,17k,32k,64k,65k,256k"
STEP = 1 << 10

# The ladders of README.md.
LADDER = "--ops write --sizes 8k --via v1-inv,v2-cont,v2-ddp-cont"
# Those of the drafts, whose text has room for two side by side.
LADDERS_OF_DRAFTS = {"ladder-drafts": "v1-inv,v2-ddp", "ladder-drafts-wg": "v1-inv,wg-ddp"}

# What the examples compare.
BATCHES = "--ops null --via v2,v2+batch,wg,wg+batch --in-flight 1,4,16,64"
STORED = "--ops kv-put,kv-get --sizes 1k,64k --via v1,v2,v2-ddp,wg,wg-ddp --in-flight 1,16"


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
    # The place of the SVG file among what the command draws into FOLDER; its text is with the data. Those of drafts are
    # black and white, and with the data as well.
    svg: str = ""
    # It is counted each time that the drafts are built (drafts/build), and not saved.
    of_drafts: bool = False

    @property
    def command(self):
        return " ".join(self.words).replace(" --json JSON", "").replace(" JSON", "").replace(" --figures FOLDER", "")


def simulated(name, options, of_drafts=False):
    words = ["rpcrdma", "compare", "--device", "sim", *options.split(), "--json", "JSON"]
    return Figure(name, words, counted=True, of_drafts=of_drafts)


def clocked(name, options, packages):
    return Figure(name, ["rpcrdma", "compare", *options.split(), "--json", "JSON"], packages=["rpcrdma", *packages])


LIST = [
    simulated("write-8k", "--ops write --sizes 8k"),
    Figure("ladder", f"rpcrdma compare --device sim {LADDER} --figures FOLDER".split(), counted=True, svg="docs/write-8k.svg"),
    simulated("receives", f"--receives {LENGTHS} --ops write --delay 1ms"),
    simulated("receives-near", f"--receives {LENGTHS} --ops write"),
    Figure("batch", f"batch compare --device sim {BATCHES} --json JSON".split(), counted=True, programs=["batch"]),
    Figure("batch-iwarp", f"timed-batch compare {BATCHES} --json JSON".split(), programs=["timed-batch"],
           packages=["rpcrdma-ext-batch", *NOT_COMPARED]),
    Figure("credits",
           "credits compare --device sim --ops write --sizes 4k --in-flight 32 --clients 1,4,16,64 "
           "--via v1-long,wg-ddp --credits all,by-queue --json JSON".split(), counted=True, programs=["credits"]),
    Figure("kv", f"kv compare --device sim {STORED} --json JSON".split(), counted=True, programs=["kv"]),
    clocked("answer", "", NOT_COMPARED),
    clocked("copied", "--ops write --sizes 64k,1M --via v1,v2-cont,v2-ddp-cont", NOT_COMPARED),
    clocked("random", "--run random --delay 1ms", ["-rpcrdma-sim", "-nfs-copy"]),
    clocked("tree", "--run tree --via v2-ddp-cont", ["-rpcrdma-sim", "-nfs-copy"]),
    Figure("direct-io", ["testing/direct-io/cost", "rpcrdma", "160", "9", "JSON"],
           packages=["rpcrdma", "-rpcrdma-compare", "-nfs-mount", "-rpcrdma-sim"], files=["testing/direct-io/cost"],
           needs_root=True),
    Figure("threads", ["benches/threads", "rpcrdma", "JSON"], packages=["rpcrdma", "-rpcrdma-compare", "-nfs-mount", "-rpcrdma-sim", "-nfs-copy"],
           files=["benches/threads"]),
    simulated("drafts", "--ops null,read,write --sizes 1k,8k,64k,1M", of_drafts=True),
    *(Figure(name, f"rpcrdma compare --device sim --ops write --sizes 8k --via {via} --figures FOLDER".split(), counted=True,
             svg="-", of_drafts=True) for name, via in LADDERS_OF_DRAFTS.items()),
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


def wrapped(text, begin="", width=WIDTH):
    """A paragraph, each line of which begins with `begin`; a list item has its own beginning in the text."""
    rest = "  " if text.startswith("* ") else ""
    return textwrap.wrap(text, width - 1, initial_indent=begin, subsequent_indent=begin + rest,
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
    return f"Measured on {data['date']} at commit {data['commit']}{build}: {data['machine']}.{alone}{disturbed(data)}"


# How much the TCP baseline may move beside an operation, as for the tables of `compare` (docs/compare.md).
QUIET = 0.1


def disturbed(data):
    """The operations of `compare` that other work disturbed while they were measured, in a sentence."""
    found = {}
    for one in data.get("rows", []):
        spread = one.get("tcp_baseline_spread", 0)
        if spread > QUIET:
            of_size = f"{size(one['size'])} " if "size" in one else ""
            found[of_size + one["op"].upper()] = spread
    if not found:
        return ""
    each = ", ".join(f"{name} ({spread:.0%})".replace("%", " %") for name, spread in found.items())
    return f" Disturbed by other work: the TCP baseline varied by more than {QUIET:.0%} during ".replace("%", " %") + f"{each}."


# README.md

# The width of README.md.
NARROW = 100

MODES = {
    "v1-inv": "version 1 as Linux runs it: remote invalidation, receives of 4 KiB",
    "v1-long": "as `v1-inv`, with receives of 65 KiB",
    "v2-cont": "version 2 of 2016, with messages continued in receives of 4 KiB",
    "v2-ddp-cont": "version 2 of 2016, with both: data placed by Sends into receives of 65 KiB, and continuation",
    "wg-ddp": "version 2 of 2022, with data placed in the same way",
}


def transfer_modes(data, clocked_answer):
    lines = [["one WRITE of 8 KiB by", "round trips", "interrupts, client", "server", "registrations", "RDMA Reads", "time, µs"]]
    keys = ("round_trips", "interrupts_requester", "interrupts_responder", "registrations", "rdma_reads")
    for mode, meaning in MODES.items():
        one = row(data, transfer_mode=mode)
        lines.append([f"`{mode}`: {meaning}", *(shown(one[key]) for key in keys), f"{one['p50_us']:.0f}"])
    must(len({tuple(line[1:6]) for line in lines[2:]}) == 1, "receives of 65 KiB alone save as much as version 2 does")
    lengths = {mode: row(data, transfer_mode=mode)["inline_bytes"] >> 10 for mode in MODES}
    must(lengths == {"v1-inv": 4, "v1-long": 65, "v2-cont": 4, "v2-ddp-cont": 65, "wg-ddp": 65}, "lengths of receives")
    after = (
        "A simulation counted this (`compare --device sim --ops write --sizes 8k`). Its times are sums of [assumed "
        "costs](docs/results.md#the-same-write-in-a-simulation). In version 1 with its usual receives, the server fetches the "
        "data by an RDMA Read, which takes a second round trip. Longer receives alone (`v1-long`) save as much as version 2 "
        "does. Message continuation (`v2-cont`) saves the same with receives of 4 KiB.")
    return [*table(*lines), "", *wrapped(after, width=NARROW), *measured_too(clocked_answer)]


def measured_too(data):
    """The same WRITE by the clock, as a paragraph; nothing if its times are not good enough."""
    if not tells_times(data):
        return []
    each = {mode: row(data, op="write", size=8 << 10, transfer_mode=mode) for mode in ("v1-long", "v2-cont", "v2-ddp-cont", "tcp")}
    each = {mode: with_interval((one["baseline_ratio"], *one["baseline_ratio_interval"])) for mode, one in each.items()}
    run = " Other work was running on the machine." if disturbed(data) else ""
    text = (
        f"Measured over a software device on TCP, relative to `v1-inv`, this WRITE takes {each['v1-long']} times as long with "
        f"`v1-long`, {each['v2-cont']} with `v2-cont`, {each['v2-ddp-cont']} with `v2-ddp-cont`, and {each['tcp']} with NFS "
        f"over TCP. Brackets give 95 % confidence intervals. Both ends were this project, not Linux.{run} [All results](docs/results.md).")
    return ["", *wrapped(text, width=NARROW)]


# docs/results.md


def assumed_costs(data, clocked_answer):
    cost = dict(one.split("=") for one in data["alike"]["costs"].split(","))
    unit = lambda name: cost[name].replace("us", " µs").replace("ns", " ns").replace("g", " Gbit/s")
    texts = [
        f"* Link: {unit('link-delay')} each way, {unit('rate')}.",
        f"* An interrupt: {unit('interrupt')}.",
        f"* A registration: {unit('registration')}, and {unit('registration-page')} for each page. An invalidation by the client: "
        f"{unit('invalidation')}, and {unit('invalidation-page')} for each page.",
        f"* An RDMA Read is answered after {unit('read-turnaround')}.",
        f"* To post a work request: {unit('post')}. To handle a completion that a reply waits for: {unit('completion')}.",
        f"* Copies: {unit('receiver-copy-rate')}.",
    ]
    after = (
        "Data that arrives inline is copied once, and placed data is not copied. This makes the difference between `v1-long` and "
        f"`v2-ddp` in this simulation.{by_the_clock(clocked_answer)}")
    return [*itertools.chain.from_iterable(map(wrapped, texts)), "", *wrapped(after)]


def by_the_clock(data):
    """What version 2 with placement takes beside version 1 with receives as long, by the clock, where the simulation
    has it less. What part of that is placement was not measured there."""
    if not tells_times(data):
        return ""
    write, read = (row(data, op=op, size=8 << 10, transfer_mode="v2-ddp-cont") for op in ("write", "read"))
    write, read = ((one["v1_long_ratio"], *one["v1_long_ratio_interval"]) for one in (write, read))
    order = ": the opposite order" if write[1] > 1 else ""
    run = " (a disturbed run)" if disturbed(data) else ""
    return (f" In the measurement above, the work of the processors counts too. Compared with `v1-long`, `v2-ddp-cont` takes "
            f"{times_as_long(write)} for this WRITE and {times_as_long(read)} for a READ of 8 KiB{run}{order}.")


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
            must(last is None or length - STEP in found, f"{size(length)} is the first length with these round trips")
            lines.append([size(length), size(memory), *(", ".join(each) for each in trips)])
        last = trips
    linux, _, continued, _ = zip(*(trips for _, trips in found.values()))
    lengths = list(found)
    of_one_trip = lambda mode, at: lengths[[trips[at] for trips in mode].index("1")]
    must(found[16 << 10][1][2][2] == "2" and found[17 << 10][1][2][2] == "1", "the credits are too few for receives of 16 KiB")
    must(of_one_trip(linux, 1) == 65 << 10, "version 1 takes one round trip for 64 KiB with receives of 65 KiB")
    must(of_one_trip(continued, 1) == 4 << 10, "continuation takes one round trip for 64 KiB with receives of 4 KiB")
    must(all(trips[2] == "2" for trips in linux), "version 1 takes two round trips for 1 MiB")
    must(trips_by_length(near)[32 << 10][1][2][2] == "2" and trips_by_length(near)[256 << 10][1][2][2] == "2",
         "over the shorter link, 1 MiB is not continued")
    said = (
        "Receives of 65 KiB alone save as much, in any version. Version 2 adds message continuation (`v2-cont`, `wg`). It saves "
        "the round trip with receives of 4 KiB, which take a fraction of that memory, and for 1 MiB with receives of "
        f"{size(of_one_trip(continued, 2))}. Version 2 also adds placement (`v2-ddp`): data arrives aligned and in one piece.")
    before = (
        "The table has the round trips of a WRITE of 8 KiB, 64 KiB and 1 MiB, in this order, over a link of 1 ms each way. Memory "
        "is that of the receives of one connection, at both ends. Each line has the first length, in steps of 1 KiB, that changes "
        f"a round trip (`rpcrdma compare --device sim --receives {LENGTHS} --ops write --delay 1ms`).")
    after = (
        "With receives of 16 KiB, 1 MiB and its headers take more Sends than there are credits (64). In version 2 of 2016, no "
        "further credits can be granted before the message is complete, so the server fetches the data by an RDMA Read. It also "
        "fetches 1 MiB, with any of these lengths, where a round trip takes less time than a copy of the data, such as over a link "
        "of 5 µs each way. The client does not measure the round-trip time: `--delay` gives it, or `link-delay` in `--costs`. [More about longer "
        "receives](compare-receives.md).")
    return [*wrapped(said), "", *wrapped(before), "", *table(*lines), "", *wrapped(after)]


def answer(data):
    lines = [["WRITE of 8 KiB", "receives of", "memory, client + server", "round trips", "wake-ups, client / server",
              "registrations", "p50, µs", "beside `v1-inv`", "at RTT 2 ms, slept"]]
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
    words = [*itertools.chain.from_iterable(map(wrapped, what_times_say(data))), ""] if tells_times(data) else []
    ratios = ("A ratio is the median over many turns. In a turn, all transfer modes run one after the other. So a ratio differs "
              "from the quotient of two p50. For the last column, client and server hold each message back for 1 ms.")
    return [*table(*lines), "", *words, *wrapped(f"{ratios} {measured_on(data)}")]


def what_times_say(data):
    """What the times say beside the table, as a list."""
    beside = lambda op, mode: times_as_long([(one := row(data, op=op, size=8 << 10, transfer_mode=mode))["v1_long_ratio"],
                                           *one["v1_long_ratio_interval"]])
    null = row(data, op="null", transfer_mode="v1-inv")
    own, bare = null["p50_us"], null["tcp_baseline_p50_us"]
    mostly = " Most of both is the time to wake up." if 0.5 <= bare / own <= 1 else ""
    long = row(data, op="write", size=1 << 20, transfer_mode="v2-ddp-cont")
    baseline = row(data, op="write", size=1 << 20, transfer_mode="v1-inv")
    woken = lambda one: f"{one['interrupts_requester'] + one['interrupts_responder']:.2g}"
    return [
        f"* With receives of equal length, compared with `v1-long`, version 2 takes {beside('write', 'v2-ddp-cont')} for this WRITE and "
        f"{beside('read', 'v2-ddp-cont')} for a READ of 8 KiB (`v2-ddp-cont`). By `v2-cont`, with its short receives, the WRITE "
        f"takes {beside('write', 'v2-cont')}.",
        f"* A WRITE of 1 MiB wakes both ends {woken(long)} times together by `v2-ddp-cont`, which takes {long['sends']:.0f} "
        f"Sends, and {woken(baseline)} times by `v1-inv`.",
        f"* NULL takes {own:.0f} µs by `v1-inv`, and an exchange of as many bytes over the TCP baseline {bare:.0f} µs.{mostly}",
    ]


def random(data):
    must_tell_times(data)
    said = sentence(data, "`random` takes", " by v2-ddp-cont and ")
    must(" by v1-inv over " in said, "the baseline has receives of Linux's default")
    modes = {one["transfer_mode"]: one for one in data["rows"]}
    # Version 1 with receives as long has no advantage of version 2 but them.
    if "v1-long" in modes:
        said += " " + sentence(data, "`random` takes", " by v1-long and ")
    long = [f"`{mode}`" for mode in ("v2-ddp-cont", "v1-long") if modes.get(mode, {}).get("inline_bytes") == 65 << 10]
    linux = row(data, transfer_mode="v1-inv")
    must(linux["inline_bytes"] == 4 << 10 and long, "lengths of receives")
    calls = linux["procedures"]
    after = (f"The command takes somewhat more than a minute. It runs {linux['runs']} rounds, in which all transports take turns. "
             f"Each run makes {calls['WRITE']} WRITEs and {calls['READ']} READs, {size(linux['rpc_bytes'])} in all. `v1-inv` has "
             f"receives of 4 KiB, {' and '.join(long)} of 65 KiB. Plain TCP took {modes['tcp']['elapsed_s']:.2f} s: the software "
             "iWARP device runs over TCP, so only round trips make a difference here.")
    return [*wrapped(said, "> "), "", *wrapped(f"{after} {measured_on(data)}")]


# docs/compare-receives.md


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
        f"* Longer receives: a WRITE that fits into a receive takes one round trip in every version, version 1 included: "
        f"8 KiB with receives of {size(short)}, 64 KiB with receives of {size(long)}. All "
        "receives have that length, also for short calls.",
        "* Continuation (`v2-cont`, `wg`): a WRITE of 8 or 64 KiB takes one round trip with receives of 4 KiB. The limit is "
        f"the memory of all credits together: with 64 credits, 1 MiB takes one round trip with receives of "
        f"{size(least(continued, 1 << 20))}. In version 1, 1 MiB takes two round trips with every length that RFC 8797 allows.",
        "* Placement (`v2-ddp`): by itself it saves no round trip beside version 1 with receives as long. Data arrives aligned and "
        "in one piece, which pays for a receiver that needs it so. The server and the clients of this project take data from "
        "wherever it lies, without a copy.",
    ]
    return list(itertools.chain.from_iterable(map(wrapped, texts)))


# docs/compare-run.md


def tree_trips(data):
    one = row(data, transfer_mode="v2-ddp-cont")
    return wrapped(
        "The slope can be some percent too high. For example, the preset `tree` made "
        f"{one['operations']:.0f} calls, none of which overlap, and {one['round_trips']:.0f} round trips were measured (on two "
        "processors of a virtual machine). The likely reason, which was not tested: over the longer link, "
        "processes sleep longer while they wait, and a wake-up after a longer sleep takes more time. This time is counted as "
        "round trips.")


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
    """A ratio with its interval, like `compare` says it: with so many decimals that what differs from 1 looks so."""
    value, low, high = found
    alike = lambda digits: any(f"{one:.{digits}f}" == f"{1:.{digits}f}" for one in found)
    digits = 2 if low <= 1 <= high else next((digits for digits in (2, 3) if not alike(digits)), 4)
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def times_as_long(found):
    """A ratio in words, like `compare` says it."""
    value, low, high = found
    if low <= 1 <= high:
        return f"{value:.2f} times as long ({low:.2f} to {high:.2f}, which includes 1)"
    ratio, _, interval = with_interval(found).partition(" ")
    return f"{ratio} times as long {interval}"


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
    beside = lambda of_size, way: times_as_long(ratio(data, of_size, ("placement", "direct"), (way, "direct")))
    copied = {(one["way"], one["size"]): one.get("copied", 0) for one in data["rows"] if one["mode"] == "direct"}
    must(pays("1 MiB", "version 1")[2] < 1, "with WRITEs of 1 MiB, --direct-io takes the server less time")
    must(copied["version 1", "64 KiB"] == copied["placement", "64 KiB"] == 0, "RDMA Reads and placement are aligned")
    must(0 < copied["continuation", "64 KiB"] < 0.5, "of continued data, a small part is copied for alignment")
    texts = [
        f"* With WRITEs of 1 MiB, a server with `--direct-io` takes {times_as_long(pays('1 MiB', 'version 1'))} by version 1 as through the page "
        f"cache, because nothing is copied. With WRITEs of 64 KiB it takes {times_as_long(pays('64 KiB', 'version 1'))}, because each waits for the "
        "device: use a large `wsize`, which is the default.",
        "* An RDMA Read puts data into aligned memory, as placement does, so neither needs a copy for alignment. Compared with version 1, "
        f"a server with placement takes {beside('64 KiB', 'version 1')} at 64 KiB, and {beside('1 MiB', 'version 1')} at 1 MiB. "
        "Placement saves a round trip and a registration.",
        "* Receives of 65 KiB alone save these too, but the data does not arrive aligned: "
        f"{copied['long receives', '64 KiB']:.0%} of it was copied. Compared with them, a server with placement takes "
        f"{beside('64 KiB', 'long receives')} at 64 KiB.",
        "* Data that is continued over several Sends does not arrive aligned either. Compared with it, a server with placement takes "
        f"{beside('64 KiB', 'continuation')} at 64 KiB. Only {copied['continuation', '64 KiB']:.0%} of the continued data was copied "
        "for alignment: 17 Sends for each WRITE use up the credits, so the rest was fetched by RDMA Reads. WRITEs of 1 MiB "
        "are always fetched, because a message has at most 64 transmissions of 4 KiB.",
    ]
    return [line for text in texts for line in wrapped(text.replace("%", " %"))]


def copied(data):
    counts = {
        of: [f"{row(data, op='write', size=of, transfer_mode=mode)['copied_bytes']:,.0f}"
             for mode in ("v1", "v2-cont", "v2-ddp-cont")] for of in (64 << 10, 1 << 20)}
    said = lambda of: "{}, {} and {}".format(*counts[of])
    return wrapped(
        "Copies for alignment come on top of those of the transport, which do not depend on the export. The transport copied, at "
        f"both ends together, {said(64 << 10)} bytes for a WRITE of 64 KiB by `v1`, `v2-cont` and `v2-ddp-cont`, and "
        f"{said(1 << 20)} bytes for 1 MiB (`rpcrdma compare --ops write --sizes 64k,1M --via v1,v2-cont,v2-ddp-cont`).")


# docs/threads.md

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
        f"{one['waits'] / one['calls'] * 10_000:.2g} times in 10,000 calls with {NUMBERS[one['threads']]}"
        for one in data["waits"] if one["transport"] == transport and one["threads"] != "1")
    said = (
        "The load is 16 connections with eight calls in flight on each. Threads had to wait for a lock that another "
        f"one held: over TCP, {waited('tcp')} threads; by version 2, {waited('v2')} threads. The table has the calls "
        "for each second of the server's processor time, divided by those with one thread (95 % interval):")
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


def both_ends(one, key):
    """A count of both ends of a row together; None if they do not have it."""
    counts = [value for name, value in one.items() if name.startswith(key) and isinstance(value, (int, float))]
    return sum(counts) if counts else None


def batches(data):
    """The rows with batches and without, and what they show whatever they were measured with."""
    heads = ["in flight", "transfer mode", "time of a call, µs", "p50, µs", "Sends", "interrupts", "system calls"]
    lines, calls = [], {}
    for in_flight in (1, 4, 16, 64):
        for mode in ("v2", "wg"):
            alone, batched = (row(data, in_flight=in_flight, transfer_mode=of) for of in (mode, f"{mode}+batch"))
            interrupts = [both_ends(one, "interrupts_") for one in (alone, batched)]
            sends = [one["sends"] * in_flight for one in (alone, batched)]
            must((sends[1] < 0.6 * sends[0]) == (in_flight > 1), "batches save Sends where several calls are in flight")
            must(interrupts[1] < 1.02 * interrupts[0], "batches cost no interrupts")
            calls[mode, in_flight] = sends[1], interrupts[1] * in_flight, batched["ops_per_s"] / alone["ops_per_s"]
            for one, woken in zip((alone, batched), interrupts):
                system = both_ends(one, "system_calls")
                lines.append([str(in_flight), f"`{one['transfer_mode']}`", f"{1e6 / one['ops_per_s']:.2f}",
                              f"{one['p50_us']:.1f}", f"{one['sends']:.3f}", f"{woken:.3f}",
                              "-" if system is None else f"{system:.2f}"])
    columns = [at for at in range(len(heads)) if any(line[at] != "-" for line in lines)]
    return table(*([line[at] for at in columns] for line in [heads, *lines])), calls


def batch(data):
    """The table of the simulation; the words around it are claims about its rows."""
    lines, calls = batches(data)
    for (_, in_flight), (sends, interrupts, faster) in calls.items():
        parts = 2 if in_flight == 64 else 1
        must(abs(sends - 2 * parts) < 0.1, "all calls in flight take one Send, 64 take two, and so do their replies")
        must(interrupts < 2.1 * parts, "one interrupt at each end for all calls in flight")
        must((faster > 1.7) == (in_flight == 64), "only with 64 in flight is it faster")
        must(faster > 0.98, "it is never slower")
        must(in_flight > 1 or abs(faster - 1) < 1e-6, "one call costs the same")
    return lines


def batch_of_wg(data):
    """The rows of that table of version 2 of the working group."""
    return [line for line in batch(data) if "`v2" not in line]


def credits(data):
    """The table of what a policy that shares a queue among all clients brings, beside the default one."""
    lines = [["clients", "transfer mode and policy", "memory for receives", "calls per second", "p50, µs", "p99, µs"]]
    for clients in (1, 4, 16, 64):
        for mode in ("v1-long", "wg-ddp"):
            all_, queue = (row(data, clients=clients, transfer_mode=f"{mode}:{of}") for of in ("all", "by-queue"))
            must(clients == 1 or queue["receives_taken_responder"] < 0.75 * all_["receives_taken_responder"],
                 "with the policy, the receives of several clients take less memory")
            must(queue["ops_per_s"] > 0.98 * all_["ops_per_s"], "the server does as much with the policy")
            for one in (all_, queue):
                lines.append([str(clients), f"`{one['transfer_mode']}`", size(one["receives_taken_responder"]),
                              f"{one['ops_per_s']:,.0f}", *(f"{one[key]:,.0f}" for key in ("p50_us", "p99_us"))])
    return table(*lines)


def batch_iwarp(data):
    return [*batches(data)[0], "", *wrapped(measured_on(data))]


# examples/kv/README.md


def kv(data):
    """The cost of one call of each kind, by the version that places its value."""
    heads = ["call", "value", "transfer mode", "Sends", "RDMA Reads", "RDMA Writes", "registrations", "copied bytes", "p50, µs",
             "calls per second, 16 in flight"]
    lines = [heads]
    for op in ("kv-put", "kv-get"):
        for length in (1 << 10, 64 << 10):
            for mode in ("v1", "v2", "v2-ddp", "wg", "wg-ddp"):
                one, many = (row(data, op=op, size=length, transfer_mode=mode, in_flight=calls) for calls in (1, 16))
                counts = (shown(one[key] if key in one else data["alike"].get(key, 0))
                          for key in ("sends", "rdma_reads", "rdma_writes", "registrations"))
                lines.append([op, size(length), f"`{mode}`", *counts, f"{one.get('copied_bytes', 0):,.0f}",
                              f"{one['p50_us']:.1f}", f"{many['ops_per_s']:,.0f}"])
    return table(*lines)


@dataclass
class Quote:
    """A passage of a text that figures are quoted in."""

    path: str
    name: str
    figures: list
    lines: object


def ladder(data):
    """The ladders as text."""
    return ["```text", *data["text"], "```"]


QUOTES = [
    Quote("README.md", "transfer-modes", ["write-8k", "answer"], transfer_modes),
    Quote("docs/results.md", "answer", ["answer"], answer),
    Quote("docs/results.md", "assumed-costs", ["write-8k", "answer"], assumed_costs),
    Quote("docs/results.md", "receives", ["receives", "receives-near"], receives),
    Quote("docs/results.md", "random", ["random"], random),
    Quote("docs/ladders.md", "ladder", ["ladder"], ladder),
    Quote("docs/compare-receives.md", "longer-receives", ["receives"], longer_receives),
    Quote("docs/compare-run.md", "tree-trips", ["tree"], tree_trips),
    Quote("docs/direct-io.md", "direct-io", ["direct-io"], direct_io),
    Quote("docs/direct-io.md", "direct-io-pays", ["direct-io"], direct_io_pays),
    Quote("docs/direct-io.md", "copied", ["copied"], copied),
    Quote("docs/threads.md", "threads", ["threads"], threads),
    Quote("docs/threads.md", "one-call", ["threads"], one_call),
    Quote("docs/tutorial.md", "batch", ["batch"], batch_of_wg),
    Quote("examples/credits/README.md", "credits", ["credits"], credits),
    Quote("examples/kv/README.md", "kv", ["kv"], kv),
    Quote("examples/batch/README.md", "batch", ["batch"], batch),
    Quote("examples/batch/README.md", "batch-iwarp", ["batch-iwarp"], batch_iwarp),
]
