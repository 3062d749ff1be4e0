//! The main job: what each way of moving an NFS request costs, measured here and now.

mod calibration;
mod cell;
mod child;
mod differences;
mod explain;
mod floor;
mod latency;
mod network;
mod op;
mod outputs;
mod prediction;
mod processor;
mod reference;
mod report;
mod rig;
mod rows;
mod sample_tree;
mod server_process;
mod set;
mod simulated;
mod table;
mod tree;
mod trips;
mod usage;

use std::thread;
use std::time::Duration;

use nfs_binding::server::MAX_TRANSFER;

use crate::args::{CompareArgs, OpName};
use crate::output;
use crate::progress::Status;
use cell::Cell;
use floor::Floor;
pub(crate) use latency::Latency;
use network::Network;
pub(crate) use op::{LONG, Op, Target};
use outputs::Outputs;
use rig::Budget;
use rows::{Mode, Row};
use rpcrdma_setup::costs::Costs;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::{Context, Failure};
pub(crate) use server_process::run as serve_child;
use set::Setting;
pub(crate) use set::{CHILD, inline};
pub(crate) use simulated::operation;

/// Measures and prints.
///
/// # Errors
/// A process does not start, an operation fails, or the rows cannot be written.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let args = &args.clone().distinct();
    let ops = ops(args)?;
    if args.device == DeviceName::Sim {
        simulated::check(args, &ops)?;
    }
    // Before anything is measured: a file that cannot be written would waste it all.
    let outputs = Outputs::open(args)?;
    if args.device == DeviceName::Sim {
        return simulate(args, &ops, outputs);
    }
    let network = args.set_delay.as_deref();
    let network = network.map(|command| Network::new(command, args.delay.0));
    let network = network.transpose()?;
    let setting = setting(args, &ops, network.as_ref())?;
    let status = Status::new();
    let Measured {
        mut rows,
        device,
        costs,
    } = measure(&setting, &ops, &status)?;
    if let Some(costs) = &costs {
        simulated::predict(args, costs, &ops, &mut rows)?;
    }
    drop(status);
    let summary = summary(&setting, &device);
    let noise = table::noise(&rows);
    let results = outputs.write(&rows, &summary, noise.as_deref(), costs.as_ref())?;
    if !results.tables {
        return prediction::check(&rows, args.check_explain);
    }
    output::line(format_args!("{summary}\n"))?;
    print(&setting, &rows)?;
    noise.map_or(Ok(()), output::line)?;
    results.print_changes()?;
    prediction::report(&rows)?;
    if let Some(costs) = &costs {
        output::line(format_args!("Predictions went by:\n{}", costs.table()))?;
    }
    prediction::check(&rows, args.check_explain)?;
    if args.explain {
        for line in explain::plans(&setting, &ops)? {
            output::line(line)?;
        }
    }
    Ok(())
}

/// The same in a simulation, where nothing of this machine matters.
fn simulate(args: &CompareArgs, ops: &[Op], outputs: Outputs) -> Result<(), Failure> {
    let rows = simulated::rows(args, ops, outputs.has_files())?;
    let summary = simulated::summary(args);
    let results = outputs.write(&rows, &summary, None, None)?;
    if !results.tables {
        return prediction::check(&rows, args.check_explain);
    }
    output::line(format_args!("{summary}\n"))?;
    simulated::print(&rows)?;
    results.print_changes()?;
    prediction::report(&rows)?;
    prediction::check(&rows, args.check_explain)?;
    if args.explain {
        for line in simulated::plans(args, ops)? {
            output::line(line)?;
        }
    }
    Ok(())
}

/// How everything is measured that is not said otherwise. This process gets its processor here.
fn setting<'a>(
    args: &'a CompareArgs,
    ops: &'a [Op],
    network: Option<&'a Network>,
) -> Result<Setting<'a>, Failure> {
    let pair = if args.no_pin { None } else { processor::pair() };
    if let Some((client, _)) = pair {
        processor::pin(client)?;
    }
    Ok(Setting {
        args,
        mode: if args.busy_poll {
            Mode::Busy
        } else {
            Mode::Blocking
        },
        delay: match network {
            Some(_) => Duration::ZERO,
            None => args.delay.0,
        },
        network,
        ops,
        processors: pair,
    })
}

/// The operations asked for, one for each size.
fn ops(args: &CompareArgs) -> Result<Vec<Op>, Failure> {
    let mut sizes = Vec::new();
    for &size in &args.sizes {
        match u32::try_from(size) {
            Ok(size) if (1..=MAX_TRANSFER).contains(&size) => sizes.push(size),
            _ => {
                let text = format!("--sizes: {size} is not from 1 to {MAX_TRANSFER} bytes");
                return Err(Failure::Usage(text));
            }
        }
    }
    let mut ops = Vec::new();
    for op in &args.ops {
        match op {
            OpName::Null => ops.push(Op::Null),
            OpName::Getattr => ops.push(Op::Getattr),
            OpName::Read => ops.extend(sizes.iter().copied().map(Op::Read)),
            OpName::Write => ops.extend(sizes.iter().copied().map(Op::Write)),
            OpName::Readdirplus => ops.push(Op::Readdirplus(LONG)),
            OpName::LongCall => ops.push(Op::LongCall(LONG)),
            OpName::LongBoth => ops.push(Op::LongBoth(LONG)),
            OpName::Tree => {}
        }
    }
    Ok(ops)
}

/// What came of it.
struct Measured {
    rows: Vec<Row>,
    /// What the device calls itself.
    device: String,
    /// What everything costs, if that was looked for.
    costs: Option<Costs>,
}

fn measure(setting: &Setting<'_>, ops: &[Op], status: &Status) -> Result<Measured, Failure> {
    let &Setting { args, mode, .. } = setting;
    let delay = args.delay.0;
    let budget = Budget {
        time: args.time.0,
        count: args.count,
    };
    let (_floor_process, address) = set::floor(setting)?;
    let mut floor = Floor::connect(address).context("cannot connect to the floor process")?;

    let cell = |op, mode| Cell {
        op,
        mode,
        delay,
        slowed: !setting.delay.is_zero() || args.rate.is_some(),
        exact: args.check_explain,
    };
    status.show("measuring what everything costs");
    let costs = calibration::costs(setting, &mut floor, ops)?;
    let mut rows = Vec::new();
    let mut rigs = set::rigs(setting)?;
    let device = rigs
        .iter()
        .find_map(|rig| rig.mounted().reached.device_name());
    for (index, &op) in ops.iter().enumerate() {
        let of = ops.len();
        status.show(format_args!("measuring {op} ({} of {of})", index + 1));
        rows.extend(cell::measure(
            cell(op, mode),
            &mut floor,
            &mut rigs,
            budget,
        )?);
    }
    if args.ops.contains(&OpName::Tree) {
        status.show("copying trees");
        rows.extend(tree::measure(mode, delay, &mut rigs)?);
    }
    drop(rigs);

    // What spinning gains shows best where there is nothing but latency. It needs a processor for
    // each side.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let two = setting.processors.is_some() || processors > 1;
    if mode == Mode::Blocking && ops.contains(&Op::Null) && two {
        let (op, mode) = (Op::Null, Mode::Busy);
        status.show(format_args!("measuring {op}, spinning"));
        let mut rigs = set::rigs(&Setting { mode, ..*setting })?;
        let busy = cell::measure(cell(op, mode), &mut floor, &mut rigs, budget)?;
        let after = rows
            .iter()
            .take_while(|row: &&Row| row.op == op.name())
            .count();
        rows.splice(after..after, busy);
    }

    if !args.no_trips {
        status.show("measuring round trips");
        trips::measure(setting, trips_delay(args), ops, &mut rows)?;
    }
    let device = device.unwrap_or_default();
    Ok(Measured {
        rows,
        device,
        costs,
    })
}

/// The delay that round trips are measured with.
fn trips_delay(args: &CompareArgs) -> Duration {
    match args.delay.0 {
        Duration::ZERO => trips::DELAY,
        delay => delay,
    }
}

/// By the network, if it is the network.
fn by(setting: &Setting<'_>) -> &'static str {
    match setting.network {
        Some(_) => " by the network",
        None => "",
    }
}

/// What was measured, in a sentence.
fn summary(setting: &Setting<'_>, device: &str) -> String {
    let args = setting.args;
    let delay = match args.delay.0 {
        Duration::ZERO => "no added delay".to_owned(),
        delay => format!("{delay:?} added each way{}", by(setting)),
    };
    let rate = args
        .rate
        .map_or(String::new(), |rate| format!(", {rate}bit/s each way"));
    let crc = match args.device {
        DeviceName::Iwarp => format!(", CRC {}", args.crc.name()),
        DeviceName::Verbs(_) | DeviceName::Sim => String::new(),
    };
    format!("NFS over TCP and RPC-over-RDMA 1 and 2 (device {device}{crc}), {delay}{rate}.")
}

fn print(setting: &Setting<'_>, rows: &[Row]) -> Result<(), Failure> {
    let args = setting.args;
    output::line(table::speed(rows))?;
    output::line(table::costs(rows))?;
    let [short, long] = trips::delays(setting.network, trips_delay(args));
    let trips = match args.no_trips {
        true => String::new(),
        false => format!(
            "trips: measured with {short:?} and {long:?} added each way{}. ",
            by(setting)
        ),
    };
    output::line(format_args!(
        "{trips}`rpcrdma compare --help` explains the columns."
    ))
}
