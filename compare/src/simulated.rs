//! `compare --device sim`: exact counts of the events that each operation had to wait for, in a
//! simulation.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use rdma::Counters;
use rdma::trace::Trace;
use rpc_transport::rdma::CostModel;
use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::columns::Table;
use rpcrdma_setup::costs::{Costs, CostsArg};
use rpcrdma_setup::device::{DeviceChoice, DeviceName, Policy};
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};
use rpcrdma_sim::{CopyCosts, Measured, Setting, consider, measure};

use crate::depth;
use crate::environment::Environment;
use crate::explain::listen;
use crate::options::{OpName, Options};
use crate::rows::{Conditions, Mode, OverDelay, Row, Split};
use crate::simulated_costs;
use crate::simulation_settings::{change_simulation, check_for_simulation};
use crate::summary::{self, kind};
use crate::table;
use crate::variant::{Variant, longest_inline};

/// The delays for latency over delay, as multiples of the delay of the setting.
const DELAYS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Returns the setting of the simulation: the costs, modified by the options.
///
/// # Errors
/// The given costs cannot be used, or two options set the same.
fn setting(options: &Options) -> Result<Setting, Failure> {
    let mut setting = Setting::default();
    // The settings that are set, each with what sets it.
    let mut given: Vec<(&str, String)> = Vec::new();
    if options.device == DeviceName::Sim
        && let Some(costs) = &options.costs
    {
        let set = simulated_costs::set(&mut setting, costs)?.into_iter();
        given.extend(set.map(|(name, cost)| (name, format!("{cost} in --costs"))));
    }
    let link = [
        ("--delay", !options.delay.is_zero(), "link-delay"),
        ("--rate", options.rate.is_some(), "rate"),
    ];
    let link = link.into_iter().filter(|(_, is_given, _)| *is_given);
    let link = link.flat_map(|(option, _, cost)| {
        let each = simulated_costs::directions(cost).into_iter().flatten();
        each.map(move |name| (name, option.to_owned()))
    });
    let set = options.tuning.settings.names();
    for (name, option) in link.chain(set.map(|name| (name, format!("--set {name}")))) {
        if let Some((_, other)) = given.iter().find(|(known, _)| *known == name) {
            let text = format!("{option}: not with {other}, which sets the same");
            return Err(Failure::Usage(text));
        }
        given.push((name, option));
    }
    if !options.delay.is_zero() {
        setting.costs.set_delay(options.delay);
    }
    if let Some(rate) = options.rate {
        setting.costs.set_rate((rate / 8).max(1));
    }
    change_simulation(&options.tuning.settings, &mut setting);
    Ok(setting)
}

/// Checks that the options make sense in a simulation, and that there is something to simulate.
///
/// # Errors
/// An option makes no sense in a simulation, or nothing can be simulated.
pub(crate) fn check(options: &Options, ops: &[Arc<dyn Workload>]) -> Result<(), Failure> {
    let usual = match options.full {
        true => Options::full(),
        false => Options::default(),
    };
    let given = [
        ("--busy-poll", options.busy_poll),
        ("--time", options.time != usual.time),
        // Several operations in flight have none anywhere.
        (
            "--no-trips",
            !options.round_trips && !depth::is_asked_for(options),
        ),
        ("--set-delay", options.set_delay.is_some()),
        ("--crc", options.crc),
        ("--congestion", options.congestion.is_some()),
        ("--count", options.count.is_some()),
        ("--no-pin", !options.pin),
        (
            "--address",
            options.address != IpAddr::V4(Ipv4Addr::LOCALHOST),
        ),
        ("--registration", options.registration != Policy(None)),
        ("--save-costs", options.save_costs),
        ("--capture", options.capture.is_some()),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, given)| *given) {
        let text = format!("--device sim: not with {name}, which has no effect in a simulation");
        return Err(Failure::Usage(text));
    }
    check_for_simulation(&options.tuning)?;
    let noise = setting(options)?.costs.noise;
    if !depth::is_asked_for(options) {
        let noisy = [
            ("jitter", !noise.jitter.is_zero()),
            ("loss", noise.loss > 0),
        ];
        if let Some((name, _)) = noisy.into_iter().find(|(_, is_noisy)| *is_noisy) {
            let text = format!(
                "--device sim: --set {name} makes a single call one draw of many: add --in-flight 1, for the \
                 latencies of many calls"
            );
            return Err(Failure::Usage(text));
        }
    }
    let calls = |op: &&Arc<dyn Workload>| op.calls() > 1 && !depth::is_asked_for(options);
    if let Some(op) = ops.iter().find(calls) {
        let text = format!(
            "--device sim: {op} takes {} calls in flight; the simulation counts one call, of 1 MiB at most",
            op.calls()
        );
        return Err(Failure::Usage(text));
    }
    // In the lists that are used by default, what is not simulated is left out.
    let by_default = options.via == Variant::ALL || options.via == Options::default().via;
    let tcp = !by_default && options.via.contains(&Variant::Tcp);
    let tree = options.ops != OpName::ALL && options.ops.contains(&OpName::Tree);
    match (tcp, tree) {
        (true, _) => Err(Failure::usage(
            "--device sim: not with --via tcp, TCP is not simulated",
        )),
        (_, true) => Err(Failure::usage(
            "--device sim: not with --ops tree, copies of trees are not simulated",
        )),
        (false, false) => Ok(()),
    }
}

/// Returns the predicted latency, which is the cost by `model` of the chosen transfer mode, and
/// that mode's plan.
fn predicted(
    op: &dyn Workload,
    setting: &Setting,
    model: &CostModel,
) -> Result<Option<(f64, String)>, Failure> {
    let ways = consider(setting, op).context(op)?;
    let taken = ways.into_iter().find(|way| way.chosen);
    // A reply can be shorter than its maximum length, equally in all variants.
    Ok(taken.map(|way| {
        let plan = format!("{}: {}", way.effort, way.plan);
        (micros(model.estimate(&way.effort)), plan)
    }))
}

/// Adds predictions to rows that were measured. The ends choose transfer modes as in the
/// measurement, with the measured costs.
///
/// # Errors
/// An operation cannot be simulated.
pub(crate) fn predict(
    options: &Options,
    costs: &Costs,
    ops: &[Arc<dyn Workload>],
    rows: &mut [Row],
) -> Result<(), Failure> {
    let choice = DeviceChoice {
        name: options.device.clone(),
        registration: options.registration,
        address: options.server.is_none().then_some(options.address),
        ..DeviceChoice::default()
    };
    let choice = match options.server {
        Some(host) => choice.towards(host),
        None => choice,
    };
    let ends = CostsArg::load(options.costs.as_ref())?.or_of(&choice.class_costs()?);
    // What the simulation counts is one call.
    for op in ops.iter().map(|op| &**op).filter(|op| op.calls() == 1) {
        for &via in &options.via {
            let Some(mut setting) = configured(options, via)? else {
                continue;
            };
            setting.chosen_by = Some(ends.model());
            let predicted = predicted(op, &setting, &costs.model())?;
            let (predicted_us, plan) = predicted.unzip();
            let size = op.size().map(u64::from);
            let of_op = rows
                .iter_mut()
                .filter(|row| (row.op, row.size, row.conveyance) == (op.name(), size, via.name()));
            of_op.for_each(|row| {
                row.predicted_us = predicted_us;
                row.plan.clone_from(&plan);
            });
        }
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the delay of the link, microseconds: the mean of both directions.
pub(crate) fn delay_us(setting: &Setting) -> f64 {
    micros(setting.costs.round_trip()) / 2.0
}

/// Returns the latency over links with other delays.
fn over_delay(op: &dyn Workload, setting: &Setting) -> Result<Vec<OverDelay>, Failure> {
    let points = DELAYS.iter().map(|&times| {
        let mut setting = setting.clone();
        setting.costs.up.delay *= times;
        setting.costs.down.delay *= times;
        let what = measure(&setting, op).context(op)?;
        Ok(OverDelay {
            delay_us: delay_us(&setting),
            p50_us: micros(what.latency),
            baseline_ratio: None,
            baseline_ratio_interval: None,
        })
    });
    points.collect()
}

/// Returns the parts of a latency: the time that an operation saves in simulations in which one
/// cost is zero.
fn split(op: &dyn Workload, setting: &Setting, latency: Duration) -> Result<Split, Failure> {
    let less = |change: fn(&mut Setting)| {
        let mut setting = setting.clone();
        // The transfer mode stays the same, because a zero cost might change the choice.
        setting.chosen_by = Some(setting.model());
        change(&mut setting);
        let what = measure(&setting, op).context(op)?;
        Ok::<_, Failure>(Some(micros(latency) - micros(what.latency)))
    };
    Ok(Split {
        link_us: less(|setting| {
            setting.costs.set_delay(Duration::ZERO);
            setting.costs.set_rate(u64::MAX);
        })?,
        interrupts_us: less(|setting| setting.interrupt = Duration::ZERO)?,
        registration_us: less(|setting| {
            let costs = &mut setting.costs;
            for cost in [
                &mut costs.register,
                &mut costs.register_page,
                &mut costs.invalidate,
                &mut costs.invalidate_page,
            ] {
                *cost = Duration::ZERO;
            }
        })?,
        copies_us: less(|setting| setting.copies = CopyCosts::NONE)?,
    })
}

/// Simulates each operation once more. Returns a line with its plan.
///
/// # Errors
/// An operation cannot be simulated.
pub(crate) fn plans(options: &Options, ops: &[Arc<dyn Workload>]) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for &via in &options.via {
        let Some(setting) = configured(options, via)? else {
            continue;
        };
        for op in ops.iter().map(|op| &**op) {
            // Both ends run in this process. The client's plan, which describes the call, is the
            // last one.
            let (measured, plan) = listen(|| measure(&setting, op));
            measured.context(op)?;
            lines.extend(plan.map(|plan| format!("{op}, {}: {plan}", via.name())));
        }
    }
    Ok(lines)
}

/// Returns the simulated configuration of a variant, or `None` for TCP, which is not simulated.
pub(crate) fn configured(options: &Options, via: Variant) -> Result<Option<Setting>, Failure> {
    let Some(version) = via.version() else {
        return Ok(None);
    };
    let mut setting = setting(options)?;
    setting.version = version;
    let receives = options.receive_lengths()?;
    for end in [&mut setting.requester, &mut setting.responder] {
        via.configure(end, receives, &options.tuning);
    }
    Ok(Some(setting))
}

/// Simulates each operation once. With `more`, also over other links and with other costs.
///
/// # Errors
/// An operation cannot be simulated.
pub(crate) fn rows(
    options: &Options,
    ops: &[Arc<dyn Workload>],
    more: bool,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for op in ops.iter().map(|op| &**op) {
        let of_op = rows.len();
        for &via in &options.via {
            let Some(setting) = configured(options, via)? else {
                continue;
            };
            let traced = Setting {
                trace: traced(options, op, via),
                ..setting.clone()
            };
            let what = measure(&traced, op).context(op)?;
            let mut row = row(op, via, &setting, &what);
            row.conditions = conditions(options, &setting);
            (row.predicted_us, row.plan) = predicted(op, &setting, &setting.model())?.unzip();
            if more {
                row.latency_over_delay = Some(over_delay(op, &setting)?);
                row.split = split(op, &setting, what.latency)?;
            }
            rows.push(row);
        }
        compare(&mut rows[of_op..], Variant::baseline(&options.via));
    }
    Ok(rows)
}

/// Returns the observer of the calls of a row, if calls are traced.
fn traced(options: &Options, op: &dyn Workload, via: Variant) -> Option<Trace> {
    let trace = options.trace.clone()?;
    let size = op
        .size()
        .map(|size| format!(" {}", show_size(u64::from(size))));
    let label = format!("{} {}{}", via.name(), op.name(), size.unwrap_or_default());
    Some(trace.labelled(&label))
}

/// Returns what rows of a simulation are made with.
pub(crate) fn conditions(options: &Options, setting: &Setting) -> Conditions {
    Conditions {
        inline_bytes: Some(longest_inline(&setting.requester, setting.version)),
        // Directions with rates of their own are in the settings.
        rate_bits_per_s: Some(setting.costs.up.rate)
            .filter(|rate| *rate == setting.costs.down.rate)
            .and_then(|rate| rate.checked_mul(8)),
        costs: Some(simulated_costs::list(setting)),
        device_kind: Some(kind(&options.device)),
        settings: summary::settings(options),
        environment: Environment::of_program(options.commit.as_deref()),
        ..Conditions::default()
    }
}

/// Stores the ratios to the baseline and to version 1 in the rows of one operation.
pub(crate) fn compare(rows: &mut [Row], baseline: Option<Variant>) {
    let of = |rows: &[Row], variant: Variant| {
        let mut rows = rows.iter();
        rows.find(|row| row.conveyance == variant.name()).cloned()
    };
    let [v1, long] =
        [Variant::V1, Variant::V1Long].map(|variant| of(rows, variant).and_then(|row| row.p50_us));
    let baseline = baseline.and_then(|variant| of(rows, variant));
    for row in rows {
        row.v1_ratio = row.p50_us.zip(v1).map(|(own, v1)| own / v1);
        row.v1_long_ratio = row.p50_us.zip(long).map(|(own, long)| own / long);
        let Some(baseline) = &baseline else {
            continue;
        };
        row.baseline = Some(baseline.conveyance);
        let both = row.p50_us.zip(baseline.p50_us);
        row.baseline_ratio = both.map(|(own, other)| own / other);
        let others = baseline.latency_over_delay.iter().flatten();
        for (own, other) in row.latency_over_delay.iter_mut().flatten().zip(others) {
            own.baseline_ratio = Some(own.p50_us / other.p50_us);
        }
    }
}

fn row(op: &dyn Workload, via: Variant, setting: &Setting, what: &Measured) -> Row {
    let Measured {
        requester,
        responder,
        ..
    } = what;
    let both = |of: fn(&Counters) -> u64| Some((of(requester) + of(responder)) as f64);
    Row {
        op: op.name(),
        size: op.size().map(u64::from),
        conveyance: via.name(),
        device: Some("sim".to_owned()),
        mode: Mode::Blocking,
        delay_us: delay_us(setting),
        count: 1,
        p50_us: Some(micros(what.latency)),
        round_trips: Some(what.round_trips),
        sends: both(|counters| counters.sends),
        rdma_reads: both(|counters| counters.rdma_reads),
        rdma_writes: both(|counters| counters.rdma_writes),
        registrations: Some(f64::from(what.registrations)),
        invalidations: both(|counters| {
            counters.local_invalidations + counters.remote_invalidations
        }),
        interrupts_requester: Some(f64::from(what.requester_interrupts)),
        interrupts_responder: Some(f64::from(what.responder_interrupts)),
        grants: what.grants.map(|grants| grants.messages),
        grant_interrupts: what.grants.map(|grants| grants.interrupts),
        receive_memory_requester: Some(what.requester_receives),
        receive_memory_responder: Some(what.responder_receives),
        copied_bytes: both(|counters| counters.copied_bytes),
        wire_bytes: both(|counters| counters.wire_bytes_sent),
        ..Row::default()
    }
}

/// Returns a sentence that describes the simulation, and one with all of its costs unless they are the
/// defaults in the short answer.
///
/// # Errors
/// The given costs cannot be used.
pub(crate) fn summary(options: &Options) -> Result<String, Failure> {
    let setting = setting(options)?;
    let mut text = format!(
        "NFS over RPC-over-RDMA 1 and 2, simulated: {}, interrupts of {:?}.",
        link(&setting),
        setting.interrupt,
    );
    if let Some(words) = summary::settings(options) {
        text.push_str(&format!(" With {words}."));
    }
    // The short answer has those of the help.
    if options.full || options.costs.is_some() {
        let all = simulated_costs::list(&setting).replace(',', ", ");
        text.push_str(&format!(" Costs: {all}."));
    }
    Ok(text)
}

/// Describes the link of a simulation.
fn link(setting: &Setting) -> String {
    let describe = |delay: Duration, rate: u64| {
        let rate = match rate {
            CostModel::UNLIMITED => "no limit of the rate".to_owned(),
            rate => format!("{} Gbit/s", rate as f64 * 8.0 / 1e9),
        };
        (format!("{delay:?}"), rate)
    };
    let (up, down) = (&setting.costs.up, &setting.costs.down);
    let (delay, rate) = describe(up.delay, up.rate);
    let (delay_down, rate_down) = describe(down.delay, down.rate);
    match up == down {
        true => format!("{delay} each way, {rate}"),
        false => format!("{delay} and {rate} to the server, {delay_down} and {rate_down} back"),
    }
}

/// Returns a sentence with the assumed costs that a call in a simulation mostly consists of.
///
/// # Errors
/// The given costs cannot be used.
pub(crate) fn assumed(options: &Options) -> Result<String, Failure> {
    let setting = setting(options)?;
    let costs = &setting.costs;
    let settings = summary::settings(options);
    let settings = settings.map_or_else(String::new, |words| format!(" With {words}."));
    Ok(format!(
        "A simulation with assumed costs: link {}; an interrupt {:?}, a registration {:?} and {:?} for each \
         page, an RDMA Read answered after {:?}.{settings}",
        link(&setting),
        setting.interrupt,
        costs.register,
        costs.register_page,
        costs.read_response,
    ))
}

/// Formats the rows as two tables, with a remark on how to read them.
pub(crate) fn text(rows: &[Row]) -> Vec<String> {
    let count = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let mut waited = Table::new(
        3,
        [
            "op",
            "size",
            "via",
            "trips",
            "intr c",
            "intr s",
            "reg",
            "time µs",
            &table::against(rows),
        ],
    );
    let mut done = Table::new(
        3,
        [
            "op", "size", "via", "inv", "Sends", "Reads", "Writes", "copied B", "wire B",
        ],
    );
    for row in rows {
        let names = || {
            [
                row.op.to_owned(),
                row.size.map_or_else(String::new, show_size),
                row.conveyance.to_owned(),
            ]
        };
        let [op, size, via] = names();
        waited.push([
            op,
            size,
            via,
            count(row.round_trips),
            count(row.interrupts_requester),
            count(row.interrupts_responder),
            count(row.registrations),
            row.p50_us
                .map_or_else(String::new, |time| format!("{time:.3}")),
            table::ratio(row.beside_baseline()),
        ]);
        let [op, size, via] = names();
        done.push([
            op,
            size,
            via,
            count(row.invalidations),
            count(row.sends),
            count(row.rdma_reads),
            count(row.rdma_writes),
            count(row.copied_bytes),
            count(row.wire_bytes),
        ]);
    }
    let remark = "Counted on the way of each reply: round trips, interrupts and registrations that it had\n\
                  to wait for; the rest is what both devices did. Time is virtual.";
    let mut parts = vec![waited.render(), done.render()];
    parts.extend(table::grants(rows));
    parts.push(remark.to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use rpcrdma_setup::catalog::Tuning;

    use super::*;
    use crate::simulation_settings::catalog;

    #[test]
    fn what_two_options_set_is_refused() {
        let refused = |costs: Option<&str>, delay: u64, rate: Option<u64>, set: &[&str]| {
            let catalog = catalog();
            let assignment = |set: &&str| catalog.parse_assignment(set).unwrap();
            let set: Vec<_> = set.iter().map(assignment).collect();
            let options = Options {
                device: DeviceName::Sim,
                costs: costs.map(CostsArg::unchecked),
                delay: Duration::from_millis(delay),
                rate,
                tuning: Tuning::new(catalog, None, &set).unwrap(),
                ..Options::default()
            };
            setting(&options).err().map(|failure| failure.to_string())
        };
        let giga = Some(1_000_000_000);
        for (costs, delay, rate, set, what) in [
            (None, 1, None, "up-delay=2ms", "up-delay: not with --delay,"),
            (
                None,
                0,
                giga,
                "down-rate=10g",
                "down-rate: not with --rate,",
            ),
            (
                Some("link-delay=1ms"),
                0,
                None,
                "up-delay=2ms",
                "--set up-delay: not with link-delay in --costs,",
            ),
            (
                Some("cache=cold"),
                0,
                None,
                "cold-cache=off",
                "--set cold-cache: not with cache in --costs,",
            ),
        ] {
            let text = refused(costs, delay, rate, &[set]).expect(set);
            assert!(text.contains(what), "{text}");
        }
        let text = refused(Some("up-delay=5ms"), 1, None, &[]).unwrap();
        assert!(
            text.contains("--delay: not with up-delay in --costs, which sets the same"),
            "{text}"
        );
        let others = ["down-delay=1ms", "up-rate=10g", "cold-cache=on"];
        assert_eq!(
            refused(Some("up-delay=5ms,post=1us"), 0, None, &others),
            None
        );
    }

    #[test]
    fn settings_of_one_end_are_refused() {
        let with = |set: &str| {
            let catalog = catalog();
            let set = [catalog.parse_assignment(set).unwrap()];
            let options = Options {
                device: DeviceName::Sim,
                tuning: Tuning::new(catalog, None, &set).unwrap(),
                ..Options::default()
            };
            check(&options, &[]).map_err(|failure| failure.to_string())
        };
        assert_eq!(with("credits=3"), Ok(()));
        for name in ["patience", "progress-timeout"] {
            let refused = with(&format!("{name}=1s")).unwrap_err();
            assert!(
                refused.contains(&format!("--set {name}: only for")),
                "{refused}"
            );
        }
        for name in ["jitter=1us", "loss=1%"] {
            assert!(
                with(name).unwrap_err().contains("add --in-flight 1"),
                "{name}"
            );
        }
        let idle = with("retransmit-after=1ms").unwrap_err();
        assert!(idle.contains("without effect unless loss is set"), "{idle}");
        assert_eq!(with("jitter=0s"), Ok(()));
    }
}
