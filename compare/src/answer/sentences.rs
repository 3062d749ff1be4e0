//! The findings, in sentences that are computed from the rows.

use std::ops::RangeInclusive;

use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::units::{count as count_of, show_amount, show_size};

use super::{Pair, count, is_slept, name, receives, rtt};
use crate::interval::Difference;
use crate::least::USUAL_SIZE;
use crate::rows::Least;
use crate::rows::Row;
use crate::summary::kind;
use crate::table;

/// The smallest ratio of times that is said to be longer: less is lost in the noise.
const LONGER: f64 = 1.05;
/// The largest distance from a whole number of round trips at which a row tells what the link adds.
const WHOLE_TRIPS: f64 = 0.1;

/// Returns sentences that are computed from the rows: what other work disturbed; what a WRITE of the
/// usual size costs by each way (or, without one, the first WRITE or operation), also beside version
/// 1 with long receives and beside the memory that they take; and what times consist of here. There
/// are none if no operation was measured by both.
pub(crate) fn sentences(rows: &[Row]) -> Vec<String> {
    let pairs = Pair::all(rows);
    let writes = || pairs.iter().filter(|pair| pair.v1.op == "write");
    let usual = writes().find(|pair| pair.v1.size == Some(USUAL_SIZE));
    let Some(headline) = usual.or(writes().next()).or(pairs.first()) else {
        return Vec::new();
    };
    let mut sentences: Vec<String> = disturbed(&pairs).into_iter().collect();
    sentences.push(round_trips(headline).unwrap_or_else(|| times(headline)));
    match beside_v1_long(&pairs) {
        Some(beside) => sentences.push(beside),
        None => sentences.extend(fewer_round_trips(&pairs)),
    }
    sentences.extend(memory(headline));
    sentences.extend(dearer(&pairs));
    sentences.extend(wake_ups(&pairs));
    sentences.extend(obtained(&pairs));
    sentences
}

/// Returns which operations other work on the machine disturbed, if any, and by how much.
fn disturbed(pairs: &[Pair<'_>]) -> Option<String> {
    let disturbed = pairs.iter().filter(|pair| table::is_disturbed(pair.v1));
    let disturbed: Vec<String> = disturbed
        .filter_map(|pair| {
            let percent = 100.0 * pair.v1.floor_spread?;
            Some(format!("{} ({percent:.0} %)", name(pair.v1)))
        })
        .collect();
    (!disturbed.is_empty()).then(|| {
        format!(
            "DISTURBED by other work: the TCP baseline varied by over {:.0} % beside {}.",
            100.0 * table::QUIET,
            disturbed.join(", ")
        )
    })
}

/// Returns "An" before a size that is spoken with a vowel first, else "A".
fn article(size: &str) -> &'static str {
    match size.starts_with('8') || size.starts_with("11 ") || size.starts_with("18 ") {
        true => "An",
        false => "A",
    }
}

/// Returns "1 round trip" or "2 round trips".
fn plural(value: Option<f64>, what: &str) -> String {
    let count = count(value);
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Returns the number that [`count`] formats, so that equal texts are equal numbers.
fn shown(value: f64) -> f64 {
    count(Some(value)).parse().unwrap_or(value)
}

/// Returns the sentence about the round trips by each way, if they are known: all of them, as each
/// alone says nothing about what the others do. Ways that take as many are named together.
fn round_trips(pair: &Pair<'_>) -> Option<String> {
    let Pair { v1, v2, .. } = pair;
    let (_, _) = (v1.round_trips?, v2.round_trips?);
    let name = name(v1);
    let rows = [pair.v1_long, Some(*v2), pair.v2_cont, pair.tcp];
    let mut rows: Vec<(f64, &Row)> = rows
        .into_iter()
        .flatten()
        .filter_map(|row| Some((shown(row.round_trips?), row)))
        .collect();
    rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let phrases: Vec<String> = rows
        .chunk_by(|(one, _), (other, _)| one == other)
        .map(|alike| {
            let ways: Vec<&str> = alike.iter().map(|(_, row)| row.conveyance).collect();
            let trips = alike.first().map(|(_, row)| count(row.round_trips));
            format!("{} by {}", trips.unwrap_or_default(), list(&ways))
        })
        .collect();
    Some(format!(
        "{} {name} takes {} by {}, {}.",
        article(&name),
        plural(v1.round_trips, "round trip"),
        v1.conveyance,
        phrases.join(", "),
    ))
}

/// Joins names like "a, b and c".
fn list(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.concat(),
    }
}

/// Returns the sentence about times alone, where round trips are not known.
fn times(pair: &Pair<'_>) -> String {
    let &Pair { v1, v2, .. } = pair;
    let name = name(v1);
    let here = v2.beside_baseline();
    let here = here.map(|shown| format!("{} here", shown.times_as_long()));
    let over_link = pair.over_link(v2).zip(pair.link());
    let over_link = over_link.map(|(shown, delay)| {
        format!(
            "{} over a link of RTT {}",
            shown.times_as_long(),
            rtt(delay)
        )
    });
    let times: Vec<String> = here.into_iter().chain(over_link).collect();
    format!(
        "Compared with {}, {} {name} by {} takes {}.",
        v1.conveyance,
        article(&name).to_lowercase(),
        v2.conveyance,
        times.join(", ")
    )
}

/// Returns the sentence about version 2 beside version 1 with receives as long as those for
/// placement: whether version 2 is better or only has more memory for receives. It is about all
/// operations for which these receives change anything, not the one that looks best.
fn beside_v1_long(pairs: &[Pair<'_>]) -> Option<String> {
    let differs = |pair: &&Pair<'_>| pair.v1_long.is_some_and(|long| !pair.is_like_v1(long));
    let pairs: Vec<&Pair<'_>> = pairs.iter().filter(differs).collect();
    let long = pairs.first()?.v1_long?;
    let operation = |pair: &&Pair<'_>| {
        let cont = pair.v2_cont.filter(|row| !pair.is_like_v1(row));
        let ways = [Some(pair.v2), cont].into_iter().flatten();
        let ways = ways.filter_map(|row| {
            let shown = row.beside_v1_long()?;
            Some((shown.cell(), format!("by {}", row.conveyance)))
        });
        let ways: Vec<(String, String)> = ways.collect();
        let name = name(pair.v1);
        let article = article(&name).to_lowercase();
        let (first, others) = ways.split_first()?;
        let others: String = others
            .iter()
            .map(|(cell, by)| format!(", {cell} {by}"))
            .collect();
        let (cell, by) = first;
        Some(format!(
            "{article} {name} takes {cell} times as long {by}{others}"
        ))
    };
    let operations: Vec<String> = pairs.iter().filter_map(operation).collect();
    let apart = match pairs.iter().any(|pair| pair.v2.conveyance.contains("ddp")) {
        true => format!(
            " `--receives {}` shows placement alone.",
            receives(long).to_lowercase()
        ),
        false => String::new(),
    };
    (!operations.is_empty())
        .then(|| format!("Compared with v1-long, {}.{apart}", operations.join("; ")))
}

/// Returns the sentence about the memory for receives: the least with which each way needs one
/// round trip, with what a call takes of it, and that of the receives that version 2 had.
fn memory(pair: &Pair<'_>) -> Option<String> {
    let amount = |bytes: u64| show_amount(bytes).replace(".0 ", " ");
    let both = |one: u64, other: u64| format!("{} + {}", amount(one), amount(other));
    let ways = [Some(pair.v1), pair.v2_cont].into_iter().flatten();
    let ways: Vec<(&Row, Least)> = ways
        .filter_map(|row| Some((row, row.least_receives?)))
        .collect();
    let credits = ways.first()?.1.credits;
    let ways: Vec<String> = ways
        .into_iter()
        .map(|(row, least)| {
            format!(
                "{} by {} ({}; a call takes {}, so {} calls fit at a time)",
                show_size(least.length.into()),
                row.conveyance,
                both(least.requester, least.responder),
                count_of(least.taken.into(), "receive", "receives"),
                least.credits / least.taken.max(1),
            )
        })
        .collect();
    let v2 = pair.v2;
    let had = v2.receive_memory_requester.zip(v2.receive_memory_responder);
    let had =
        had.map(|(one, other)| format!(" Receives of {} take {}.", receives(v2), both(one, other)));
    Some(format!(
        "Shortest receives for 1 round trip (memory for {credits} credits, client + server): {}.{}",
        ways.join(", "),
        had.unwrap_or_default()
    ))
}

/// Returns how many round trips fewer version 2 needs than another row.
fn saved(pair: &Pair<'_>, row: &Row) -> Option<f64> {
    Some(row.round_trips? - pair.v2.round_trips?)
}

/// Returns the names of the operations that are wanted, if there are any.
fn names(pairs: &[Pair<'_>], wanted: &dyn Fn(&Pair<'_>) -> bool) -> Option<String> {
    let wanted = pairs.iter().filter(|pair| wanted(pair));
    let names: Vec<String> = wanted.map(|pair| name(pair.v1)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the sentence that lists the operations by whether version 2 needs fewer round trips.
/// Counts that are closer than half a round trip are the same.
fn fewer_round_trips(pairs: &[Pair<'_>]) -> Option<String> {
    let beside_v1 =
        |wanted: fn(f64) -> bool| names(pairs, &|pair| saved(pair, pair.v1).is_some_and(wanted));
    let lists = [
        ("fewer", "than", beside_v1(|saved| saved > 0.5)),
        ("as many", "as", beside_v1(|saved| saved.abs() <= 0.5)),
        ("more", "than", beside_v1(|saved| saved < -0.5)),
    ];
    let lists = lists.into_iter();
    let lists = lists.filter_map(|(what, than, names)| Some((what, than, names?)));
    // Only the first one says what is counted.
    let phrases = lists
        .enumerate()
        .map(|(index, (what, than, names))| match index {
            0 => format!("{what} round trips {than} version 1 for {names}"),
            _ => format!("{what} for {names}"),
        });
    let phrases: Vec<String> = phrases.collect();
    (!phrases.is_empty()).then(|| format!("Version 2 needs {}.", phrases.join("; ")))
}

/// Returns the sentences about what version 2 costs: the operations that take longer by it, and
/// those that wake more, which are those whose messages take several Sends.
fn dearer(pairs: &[Pair<'_>]) -> Vec<String> {
    let list = |cost: &dyn Fn(&Pair<'_>) -> Option<String>| {
        let found = pairs.iter().filter_map(|pair| {
            let cost = cost(pair)?;
            Some(format!("{} ({cost})", name(pair.v1)))
        });
        let found: Vec<String> = found.collect();
        (!found.is_empty()).then(|| found.join(", "))
    };
    let longer = list(&|pair| {
        let shown = pair.v2.beside_baseline()?;
        let is_longer = shown.difference() == Difference::More && shown.ratio >= LONGER;
        is_longer.then(|| format!("{:.2}", shown.ratio))
    });
    let wakes = |row: &Row| Some(row.interrupts_requester? + row.interrupts_responder?);
    let more = list(&|pair| {
        let (v1, v2) = (wakes(pair.v1)?, wakes(pair.v2)?);
        let sends = pair.v2.sends?;
        (v2 - v1 > 0.5).then(|| {
            let (v1, v2, sends) = (count(Some(v1)), count(Some(v2)), count(Some(sends)));
            format!("{v2} times, up to {sends} on an adapter; version 1: {v1}")
        })
    });
    let longer = longer.map(|list| format!("Version 2 takes longer for {list}."));
    let more = more.map(|list| format!("Version 2 wakes both ends more often for {list}."));
    longer.into_iter().chain(more).collect()
}

/// Returns the pair of the first operation that waits for one round trip in every way.
fn waits_once<'a>(pairs: &'a [Pair<'a>]) -> Option<&'a Pair<'a>> {
    let waits_once = |row: &Row| {
        let trips = row.round_trips.unwrap_or(f64::NAN);
        (trips - 1.0).abs() <= WHOLE_TRIPS
    };
    let is_measured = |pair: &&Pair<'_>| !pair.v1.is_exact() && pair.v1.delay_us == 0.0;
    let mut pairs = pairs.iter().filter(is_measured);
    pairs.find(|pair| pair.rows().all(waits_once))
}

/// The parts of the time of NULL that the TCP baseline takes at which waking up is most of both.
const MOSTLY: RangeInclusive<f64> = 0.5..=1.0;

/// Returns the sentence about the time of NULL, which moves no data, and that of the TCP baseline,
/// whose ends sleep and are woken as often: if that is most of it, so is waking up.
fn wake_ups(pairs: &[Pair<'_>]) -> Option<String> {
    let v1 = waits_once(pairs).filter(|pair| pair.v1.size.is_none())?.v1;
    let virtual_machine = match v1.conditions.environment.virtual_machine {
        Some(true) => " (virtual machine)",
        _ => "",
    };
    let adapter = match v1.conditions.device_kind == Some(kind(&DeviceName::Iwarp)) {
        true => "; an adapter changes times, not round trips",
        false => "",
    };
    let (time, floor) = (v1.p50_us?, v1.floor_p50_us?);
    let mostly = match MOSTLY.contains(&(floor / time)) {
        true => ", mostly to wake up",
        false => "",
    };
    Some(format!(
        "{} takes {time:.0} µs and the TCP baseline {floor:.0} µs{mostly}{virtual_machine}{adapter}.",
        name(v1),
    ))
}

/// Returns the sentence about what a round trip of the link really takes: by how much longer than
/// without it the first operation takes that waits for one round trip in every way. A range shows
/// what the link does not do alike.
fn obtained(pairs: &[Pair<'_>]) -> Option<String> {
    let pair = waits_once(pairs)?;
    let link = pair.link()?;
    let added = pair.rows().filter_map(|row| {
        let points = row.latency_over_delay.as_ref()?;
        let over = points.iter().find(|point| point.delay_us == link)?;
        Some((over.p50_us - row.p50_us?) / 1e3)
    });
    let added: Vec<f64> = added.collect();
    let least = added.iter().copied().min_by(f64::total_cmp)?;
    let most = added.iter().copied().max_by(f64::total_cmp)?;
    let why = match is_slept(pair.v1) && least > 2.0 * link / 1e3 {
        true => " (processes that sleep wake late)",
        false => "",
    };
    Some(format!(
        "A link of RTT {} adds {least:.2} to {most:.2} ms to {}{why}.",
        rtt(link),
        name(pair.v1),
    ))
}
