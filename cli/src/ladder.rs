//! The `ladder` command: draws calls of a capture.

use std::fs::File;
use std::time::Duration;

use rpcrdma_ladder::{
    Arrow, ArrowKind, Ladder, Mark, MarkKind, Picture, Style, TextOptions, svg, text,
};
use rpcrdma_reading::{
    At, Call, Connection, List, MessageKind, OperationKind, Outcome, Side as End, Sink,
};
use rpcrdma_setup::Failure;

use crate::args::LadderArgs;
use crate::{lint, output};

/// Reads a capture and prints the ladders of some of its calls.
///
/// # Errors
/// The capture cannot be read, or has no such call.
pub(crate) fn run(args: &LadderArgs) -> Result<(), Failure> {
    let name = args.capture.display();
    let unreadable = |error: &dyn std::fmt::Display| Failure::work(format_args!("{name}: {error}"));
    let file = File::open(&args.capture).map_err(|error| unreadable(&error))?;
    let mut chosen = Chosen {
        args,
        found: 0,
        kept: Vec::new(),
    };
    let summary = rpcrdma_reading::read(file, &mut chosen).map_err(|error| unreadable(&error))?;
    let Chosen { found, kept, .. } = chosen;
    let cut = lint::not_to_the_end(&summary);
    if kept.is_empty() {
        let reason = match summary.connections {
            0 => lint::NO_CONNECTION,
            _ => "it has no such call.",
        };
        let cut = cut.map(|it| format!(" {it}")).unwrap_or_default();
        let text = format!("{name}: {reason}{cut}");
        return Err(Failure::work(text.trim_end_matches('.')));
    }
    let which = match (args.slowest, found - kept.len() as u64) {
        (_, 0) => String::new(),
        (true, rest) => format!(" {rest} more were faster."),
        (false, rest) => format!(" {rest} more follow: --count, --slowest and --procedure choose."),
    };
    let times = format!(
        "Times are those of the capture, which sees each packet once: what is one packet is level.{which}"
    );
    let picture = Picture {
        title: format!("Calls in {name}"),
        ladders: kept.into_iter().map(|(_, ladder)| ladder).collect(),
        notes: cut.into_iter().chain([times]).collect(),
    };
    match args.svg {
        true => output::line(svg(&picture, Style::Screen).trim_end()),
        false => output::line(text(&picture, &TextOptions::default()).trim_end()),
    }
}

/// Keeps the calls that are wanted.
struct Chosen<'a> {
    args: &'a LadderArgs,
    found: u64,
    kept: Vec<(Duration, Ladder)>,
}

impl Sink for Chosen<'_> {
    fn call(&mut self, connection: &Connection, call: Call) {
        if !self.is_wanted(&call) {
            return;
        }
        self.found += 1;
        let count = self.args.count as usize;
        let took = call.duration().unwrap_or_default();
        let slower = |kept: &(Duration, Ladder)| kept.0 >= took;
        let at = match self.args.slowest {
            true => self.kept.partition_point(slower),
            false => self.kept.len(),
        };
        if at < count {
            self.kept.insert(at, (took, drawn(connection, &call)));
            self.kept.truncate(count);
        }
    }
}

impl Chosen<'_> {
    fn is_wanted(&self, call: &Call) -> bool {
        let LadderArgs {
            procedure,
            packet,
            xid,
            ..
        } = self.args;
        let name = call.procedure.and_then(|it| it.name());
        let named = |wanted: &String| name.is_some_and(|name| name.eq_ignore_ascii_case(wanted));
        procedure.as_ref().is_none_or(named)
            && xid.is_none_or(|xid| xid == call.xid)
            && packet.is_none_or(|packet| has(call, packet))
    }
}

/// Returns whether a packet belongs to a call. Packets of other calls may be among those of a message.
fn has(call: &Call, packet: u64) -> bool {
    let within = |first: At, last: At| (first.packet..=last.packet).contains(&packet);
    call.messages.iter().any(|it| within(it.first, it.last))
        || call.operations.iter().any(|it| {
            within(it.first, it.last) || it.request.is_some_and(|request| request.packet == packet)
        })
}

/// Returns the ladder of a call.
fn drawn(connection: &Connection, call: &Call) -> Ladder {
    let side = |end: End| match end == call.caller {
        true => rpcrdma_ladder::Side::Left,
        false => rpcrdma_ladder::Side::Right,
    };
    let since = |at: At| at.time.saturating_sub(call.started.time);
    let mut arrows = Vec::new();
    let mut marks = Vec::new();
    for message in &call.messages {
        let kind = match message.invalidates {
            Some(_) => ArrowKind::SendWithInvalidate,
            None => ArrowKind::Send,
        };
        arrows.push(Arrow {
            from: side(message.from),
            start: since(message.first),
            end: since(message.last),
            octets: message.octets,
            kind,
            name: name(call, message.kind),
            critical: message.kind != MessageKind::Control,
        });
        if message.waited {
            // It left when the grant had come.
            marks.push(Mark {
                at: side(message.from),
                start: since(message.first),
                end: since(message.first),
                kind: MarkKind::CreditWait,
                name: "waited for credits".to_owned(),
            });
        }
    }
    let mut reads: Vec<(Duration, Duration)> = Vec::new();
    for operation in &call.operations {
        let by = side(operation.by);
        let (start, end) = (since(operation.first), since(operation.last));
        let arrow = |from, start, end, kind, name: &str| Arrow {
            from,
            start,
            end,
            octets: operation.octets,
            kind,
            name: name.to_owned(),
            critical: true,
        };
        match operation.kind {
            OperationKind::Write => {
                arrows.push(arrow(by, start, end, ArrowKind::Write, "RDMA Write"))
            }
            OperationKind::Read => {
                if let Some(request) = operation.request {
                    let at = since(request);
                    arrows.push(arrow(by, at, at, ArrowKind::ReadRequest, "RDMA Read"));
                }
                let name = "data of the Read";
                arrows.push(arrow(by.other(), start, end, ArrowKind::ReadResponse, name));
                reads.push((operation.request.map_or(start, since), end));
            }
        }
    }
    marks.extend(round_trips(reads));
    let answered = call.replied.map(since);
    let last = arrows
        .iter()
        .map(|arrow| arrow.end)
        .max()
        .unwrap_or_default();
    let packets = match call.replied {
        Some(last) => format!("packets {} to {}", call.started.packet, last.packet),
        None => format!("from packet {}", call.started.packet),
    };
    let [client, server] = &connection.ends;
    let ends = match call.caller {
        End::Client => ["client", "server"],
        End::Server => ["server", "client"],
    };
    Ladder {
        name: call
            .procedure
            .map_or_else(|| "a call".to_owned(), |it| it.to_string()),
        about: format!(
            "XID {:#010x}, version {}, {packets}; {client} to {server}",
            call.xid, call.version
        ),
        ends: ends.map(str::to_owned),
        arrows,
        marks,
        took: answered.unwrap_or(last),
        totals: totals(call),
    }
}

fn name(call: &Call, kind: MessageKind) -> String {
    let has = |wanted: fn(&List) -> bool| call.segments.iter().any(|it| wanted(&it.list));
    let offered: Vec<&str> = [
        ("read chunk", has(|list| matches!(list, List::Read(_)))),
        ("write chunk", has(|list| matches!(list, List::Write(_)))),
        ("reply chunk", has(|list| *list == List::Reply)),
    ]
    .into_iter()
    .filter_map(|(name, there)| there.then_some(name))
    .collect();
    match (kind, &offered[..]) {
        (MessageKind::Call | MessageKind::CallPart, []) => "call".to_owned(),
        (MessageKind::Call | MessageKind::CallPart, [one]) => format!("call, {one}"),
        (MessageKind::Call | MessageKind::CallPart, _) => "call, chunks".to_owned(),
        (MessageKind::Reply | MessageKind::ReplyPart, _) => "reply".to_owned(),
        (MessageKind::Error, _) => "error".to_owned(),
        (MessageKind::Control, _) => "control".to_owned(),
        (MessageKind::Unknown, _) => "message".to_owned(),
    }
}

/// Returns the brackets of RDMA Reads; those that overlap have one.
fn round_trips(mut reads: Vec<(Duration, Duration)>) -> Vec<Mark> {
    reads.sort_unstable();
    let mut marks: Vec<Mark> = Vec::new();
    for (start, end) in reads {
        match marks.last_mut() {
            Some(mark) if start <= mark.end => mark.end = mark.end.max(end),
            _ => marks.push(Mark {
                at: rpcrdma_ladder::Side::Right,
                start,
                end,
                kind: MarkKind::RoundTrip,
                name: "one more round trip".to_owned(),
            }),
        }
    }
    marks
}

fn totals(call: &Call) -> Vec<String> {
    let some = |count: usize, one: &str| match count {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let of = |kind| call.operations.iter().filter(|it| it.kind == kind).count();
    let mut totals = vec![some(call.round_trips() as usize, "round trip")];
    let mut memory = some(call.registrations() as usize, "registration");
    for (count, name) in [
        (of(OperationKind::Read), "RDMA Read"),
        (of(OperationKind::Write), "RDMA Write"),
    ] {
        if count > 0 {
            memory = format!("{memory}, {}", some(count, name));
        }
    }
    totals.push(memory);
    if call.outstanding > 0 {
        totals.push(format!(
            "beside {}",
            some(call.outstanding as usize, "other call")
        ));
    }
    match &call.outcome {
        Outcome::Replied => {}
        Outcome::Failed(error) => totals.push(format!("failed: {error}")),
        Outcome::Unanswered => totals.push("no reply".to_owned()),
        Outcome::Replaced => totals.push("no reply; its XID was used again".to_owned()),
    }
    if call.is_incomplete {
        totals.push("packets are missing".to_owned());
    }
    totals
}
