//! The findings, in sentences that are computed from the rows.

use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::units::{show_amount, show_size};

use super::{Pair, count, name, rtt};
use crate::interval::Difference;
use crate::least::USUAL_SIZE;
use crate::rows::Least;
use crate::rows::Row;
use crate::summary::kind;

/// The smallest ratio of times that is said to be longer: less is lost in the noise.
const LONGER: f64 = 1.05;
/// The largest distance from a whole number of round trips at which a row tells what the link adds.
const WHOLE_TRIPS: f64 = 0.1;

/// Returns sentences that are computed from the rows: what a WRITE of the usual size costs by each
/// way (or, without one, the first WRITE or operation), also with receives of equal length and
/// beside the memory that they take, and which operations need fewer round trips by version 2.
/// There are none if no operation was measured by both.
pub(crate) fn sentences(rows: &[Row]) -> Vec<String> {
    let pairs = Pair::all(rows);
    let writes = || pairs.iter().filter(|pair| pair.v1.op == "write");
    let usual = writes().find(|pair| pair.v1.size == Some(USUAL_SIZE));
    let Some(headline) = usual.or(writes().next()).or(pairs.first()) else {
        return Vec::new();
    };
    let mut sentences = vec![round_trips(headline).unwrap_or_else(|| times(headline))];
    match with_equal_receives(headline, &pairs) {
        Some(equal) => sentences.push(equal),
        None => sentences.extend(fewer_round_trips(&pairs)),
    }
    sentences.extend(memory(headline));
    sentences.extend(dearer(&pairs));
    sentences.extend(obtained(&pairs));
    sentences
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

/// Returns the length of the receives of a row.
fn length(row: &Row) -> Option<String> {
    let length = row.conditions.inline_bytes?;
    Some(show_size(length.into()))
}

/// Returns the number that [`count`] formats, so that equal texts are equal numbers.
fn shown(value: f64) -> f64 {
    count(Some(value)).parse().unwrap_or(value)
}

/// Returns the sentence about the round trips by each way, if they are known: all of them, as each
/// alone says nothing about what the others do.
fn round_trips(pair: &Pair<'_>) -> Option<String> {
    let Pair { v1, v2, .. } = pair;
    let (_, _) = (v1.round_trips?, v2.round_trips?);
    let name = name(v1);
    // Ways that take as many are named together, and among these those with receives as long.
    let mut others: Vec<(String, Option<String>, Vec<&str>)> = Vec::new();
    let rows = [pair.v1_long, Some(*v2), pair.v2_cont, pair.tcp];
    let mut rows: Vec<(f64, &Row)> = rows
        .into_iter()
        .flatten()
        .filter_map(|row| Some((shown(row.round_trips?), row)))
        .collect();
    rows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    for (_, row) in rows {
        let (trips, length) = (count(row.round_trips), length(row));
        let way = length
            .as_ref()
            .map_or_else(|| over_tcp(v1), |_| row.conveyance);
        match others
            .iter_mut()
            .find(|it| (&it.0, &it.1) == (&trips, &length))
        {
            Some((.., ways)) => ways.push(way),
            None => others.push((trips, length, vec![way])),
        }
    }
    let mut last = None;
    let mut phrases = Vec::new();
    for (trips, length, ways) in &others {
        let by = match last.replace(trips) == Some(trips) {
            true => String::new(),
            false => format!("{trips} by "),
        };
        let length = length
            .as_ref()
            .map_or_else(String::new, |length| format!(" ({length})"));
        phrases.push(format!("{by}{}{length}", ways.join(" and ")));
    }
    let length = length(v1).map_or_else(String::new, |length| format!(" (receives of {length})"));
    Some(format!(
        "{} {name} takes {} by {}{length}, {}.",
        article(&name),
        plural(v1.round_trips, "round trip"),
        v1.conveyance,
        phrases.join(", "),
    ))
}

/// Returns what is said of TCP. The software device uses it, so its rows are never faster; adapters
/// do not.
fn over_tcp(v1: &Row) -> &'static str {
    match v1.conditions.device_kind == Some(kind(&DeviceName::Iwarp)) {
        true => "TCP, on which this software iWARP runs: an adapter would differ",
        false => "TCP",
    }
}

/// Returns the sentence about times alone, where round trips are not known.
fn times(pair: &Pair<'_>) -> String {
    let &Pair { v1, v2, .. } = pair;
    let name = name(v1);
    let here = v2.beside_baseline();
    let here = here.map(|shown| format!("{} here", shown.of_the_time()));
    let over_link = pair.over_link(v2).zip(pair.link());
    let over_link = over_link
        .map(|(shown, delay)| format!("{} over a link of RTT {}", shown.of_the_time(), rtt(delay)));
    let times: Vec<String> = here.into_iter().chain(over_link).collect();
    format!(
        "{} {name} by {} takes, beside {}, {}.",
        article(&name),
        v2.conveyance,
        v1.conveyance,
        times.join(", ")
    )
}

/// Returns the sentence about version 1 and version 2 with receives of one length, if that was
/// measured: whether version 2 is better or only has more memory for receives. It names the
/// operations for which version 2 needs fewer round trips even so.
fn with_equal_receives(pair: &Pair<'_>, pairs: &[Pair<'_>]) -> Option<String> {
    let (long, v2) = (pair.v1_long?, pair.v2);
    let length =
        length(long).filter(|_| v2.conditions.inline_bytes == long.conditions.inline_bytes)?;
    let time = v2.beside_v1_long()?.of_the_time();
    let trips = match (count(long.round_trips), count(v2.round_trips)) {
        _ if long.round_trips.is_none() || v2.round_trips.is_none() => String::new(),
        (one, other) if one == other => {
            let trips = plural(v2.round_trips, "round trip");
            format!("versions 1 and 2 both take {trips}, ")
        }
        (one, other) => format!("version 1 takes {one} round trips and version 2 {other}, "),
    };
    let fewer = names(pairs, &|pair| {
        let saved = pair.v1_long.and_then(|long| saved(pair, long));
        saved.is_some_and(|saved| saved > 0.5)
    });
    let fewer = fewer.map_or_else(String::new, |names| format!("; 2 has fewer for {names}"));
    Some(format!(
        "With equal receives of {length}, {trips}version 2 {time}{fewer}."
    ))
}

/// Returns the sentence about the memory for receives: the least with which each way needs one
/// round trip, and that of the receives that version 2 had.
fn memory(pair: &Pair<'_>) -> Option<String> {
    let amount = |bytes: u64| show_amount(bytes).replace(".0 ", " ");
    let both = |one: u64, other: u64| format!("{} + {}", amount(one), amount(other));
    let ways = [("version 1", Some(pair.v1)), ("v2-cont", pair.v2_cont)];
    let ways: Vec<String> = ways
        .into_iter()
        .filter_map(|(way, row)| {
            let Least {
                length,
                requester,
                responder,
            } = row?.least_receives?;
            let length = show_size(length.into());
            Some(format!(
                "{length} by {way} ({})",
                both(requester, responder)
            ))
        })
        .collect();
    let (v2, length) = (pair.v2, length(pair.v2)?);
    let had = v2.receive_memory_requester.zip(v2.receive_memory_responder);
    let had = had.map(|(one, other)| format!("; {length} take {}", both(one, other)));
    (!ways.is_empty()).then(|| {
        format!(
            "Least receives for 1 round trip (memory of a connection, client + server): {}{}.",
            ways.join(", "),
            had.unwrap_or_default()
        )
    })
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
        ("fewer round trips for", beside_v1(|saved| saved > 0.5)),
        ("as many for", beside_v1(|saved| saved.abs() <= 0.5)),
        ("more for", beside_v1(|saved| saved < -0.5)),
    ];
    let lists = lists
        .into_iter()
        .filter_map(|(what, names)| Some(format!("{what} {}", names?)));
    let lists: Vec<String> = lists.collect();
    (!lists.is_empty()).then(|| format!("Version 2 needs {}.", lists.join("; ")))
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
            format!("{v2} times, on an adapter up to {sends}; version 1 {v1}")
        })
    });
    let longer = longer.map(|list| format!("Version 2 takes longer for {list}."));
    let more = more.map(|list| format!("It wakes more for {list}."));
    longer.into_iter().chain(more).collect()
}

/// Returns the sentence about what a round trip of the link really takes: by how much longer than
/// without it the first operation takes that waits for one round trip in every way. Differences
/// show what the link does not do alike.
fn obtained(pairs: &[Pair<'_>]) -> Option<String> {
    let waits_once = |row: &Row| {
        let trips = row.round_trips.unwrap_or(f64::NAN);
        (trips - 1.0).abs() <= WHOLE_TRIPS
    };
    let pair = pairs.iter().find(|pair| pair.rows().all(waits_once))?;
    let link = pair
        .link()
        .filter(|_| !pair.v1.is_exact() && pair.v1.delay_us == 0.0)?;
    let added: Vec<String> = pair
        .rows()
        .filter_map(|row| {
            let points = row.latency_over_delay.as_ref()?;
            let over = points.iter().find(|point| point.delay_us == link)?;
            let added = (over.p50_us - row.p50_us?) / 1e3;
            Some(format!("{added:.2} ({})", row.conveyance))
        })
        .collect();
    (!added.is_empty()).then(|| {
        format!(
            "RTT {} adds to {}, in ms: {}.",
            rtt(link),
            name(pair.v1),
            added.join(", ")
        )
    })
}
