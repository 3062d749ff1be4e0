//! Several operations in flight, several clients, and operations that arrive at a rate: `--in-flight`,
//! `--clients` and `--arrivals`. Latencies and all counts have a row for each number in flight, or for
//! each rate.

pub(crate) mod clock;
pub(crate) mod simulated;
mod table;

use std::time::Duration;

use rpcrdma_programs::workload::{MOST_WAITING, Pace, Workload};
use rpcrdma_setup::Failure;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_sim::MOST_CLIENTS;

use crate::measurement::ROUNDS;
use crate::network::Network;
use crate::options::{OpName, Options};
use crate::rows::Row;

pub(crate) use table::tables;

/// The maximum number of clients of a measurement by the clock.
const CLIENTS: u32 = 256;

/// Returns whether rows are for several operations in flight, several clients or arrivals.
pub(crate) fn is_asked_for(options: &Options) -> bool {
    !options.in_flight.is_empty() || !options.arrivals.is_empty() || options.clients != [1]
}

/// Checks the options, and leaves out of the lists that are used by default what has no such rows.
///
/// # Errors
/// An option contradicts these, or a number is not permitted.
pub(crate) fn prepare(options: &mut Options) -> Result<(), Failure> {
    if !is_asked_for(options) {
        return Ok(());
    }
    let name = match (options.in_flight.is_empty(), options.arrivals.is_empty()) {
        (false, false) => return Err(Failure::usage("--in-flight: not with --arrivals")),
        (false, true) => "--in-flight",
        (true, false) => "--arrivals",
        (true, true) => "--clients",
    };
    let contradicting = [
        ("--receives", !options.receives.is_empty()),
        ("--save-costs", options.save_costs),
        ("--check-explain", options.exact),
    ];
    if let Some((other, _)) = contradicting.into_iter().find(|(_, given)| *given) {
        return Err(Failure::Usage(format!("{name}: not with {other}")));
    }
    let most = u32::try_from(MOST_WAITING).unwrap_or(u32::MAX);
    if let Some(calls) = options
        .in_flight
        .iter()
        .find(|calls| !(1..=most).contains(calls))
    {
        let text = format!("--in-flight: {calls} is not from 1 to {most}");
        return Err(Failure::Usage(text));
    }
    if let Some(rate) = options
        .arrivals
        .iter()
        .find(|&&rate| !(rate > 0.0 && rate.is_finite()))
    {
        return Err(Failure::Usage(format!("--arrivals: {rate} is no rate")));
    }
    let most = match options.device {
        DeviceName::Sim => MOST_CLIENTS,
        _ => CLIENTS,
    };
    if options.clients.is_empty() {
        return Err(Failure::usage("--clients: how many?"));
    }
    if let Some(clients) = options
        .clients
        .iter()
        .find(|clients| !(1..=most).contains(clients))
    {
        let text = format!("--clients: {clients} is not from 1 to {most}");
        return Err(Failure::Usage(text));
    }
    let least = least_rate(options);
    if let Some(rate) = options.arrivals.iter().find(|&&rate| rate < least) {
        let text = format!(
            "--arrivals: with {rate} in a second, a client has less than one in a ninth of --time, {:?}; the \
             least is {:.1}",
            options.time,
            (least * 10.0).ceil() / 10.0
        );
        return Err(Failure::Usage(text));
    }
    match options.ops == OpName::ALL {
        true => options.ops.retain(|op| *op != OpName::Tree),
        false if options.ops.contains(&OpName::Tree) => {
            let text = format!("{name}: not with --ops tree, of which one is copied at a time");
            return Err(Failure::Usage(text));
        }
        false => {}
    }
    // Round trips are those of an operation that waits for nothing else, and so are predictions.
    options.round_trips = false;
    options.predict = false;
    Ok(())
}

/// Returns the least rate at which each client has an arrival in each turn, on the average. Turns
/// with a number of operations, and simulations, take as long as these do.
fn least_rate(options: &Options) -> f64 {
    match (&options.device, options.count) {
        (DeviceName::Sim, _) | (_, Some(_)) => 0.0,
        _ => {
            let clients = options.clients.iter().copied().max().unwrap_or(1);
            f64::from(clients * ROUNDS) / options.time.as_secs_f64()
        }
    }
}

/// Checks that the operations of all rows were delayed by a network whose delay was set.
///
/// # Errors
/// One took less than the delay.
pub(crate) fn check_delayed(
    network: Option<&Network>,
    rows: &[Row],
    delay: Duration,
) -> Result<(), Failure> {
    let Some(network) = network else {
        return Ok(());
    };
    let mut timed = rows.iter().filter_map(|row| Some((row.op, row.p50_us?)));
    timed.try_for_each(|(op, p50_us)| network.check(op, p50_us, delay))
}

/// A number of clients, and the pace at which each begins operations.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    clients: u32,
    pace: Pace,
}

/// Returns the numbers of clients with their paces, in the order of rows.
fn points(options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    for &clients in &options.clients {
        let rates = options.arrivals.iter();
        let rates = rates.map(|rate| Pace::Arrivals(rate / f64::from(clients.max(1))));
        let numbers = options.in_flight.iter().copied().map(Pace::InFlight);
        let paces: Vec<Pace> = rates.chain(numbers).collect();
        let paces = match paces.is_empty() {
            true => vec![Pace::InFlight(1)],
            false => paces,
        };
        points.extend(paces.into_iter().map(|pace| Point { clients, pace }));
    }
    points
}

/// Returns a row that says what was in flight, and has nothing else.
fn row(op: &dyn Workload, Point { clients, pace }: Point) -> Row {
    let (in_flight, arrivals_per_s) = match pace {
        Pace::InFlight(calls) => (Some(calls), None),
        Pace::Arrivals(rate) => (None, Some(rate * f64::from(clients))),
    };
    Row {
        op: op.name(),
        size: op.size().map(u64::from),
        clients: Some(clients),
        in_flight,
        arrivals_per_s,
        ..Row::default()
    }
}

/// Returns a phrase for progress messages.
fn describe(Point { clients, pace }: Point) -> String {
    let each = match clients {
        1 => String::new(),
        clients => format!("{clients} clients, each with "),
    };
    match pace {
        Pace::InFlight(calls) => format!("{each}{calls} in flight"),
        Pace::Arrivals(rate) => format!("{each}{rate} arriving per second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(change: impl FnOnce(&mut Options)) -> Result<Options, String> {
        let mut options = Options::default();
        change(&mut options);
        prepare(&mut options).map_err(|failure| failure.to_string())?;
        Ok(options)
    }

    #[test]
    fn only_what_is_asked_for_changes_the_options() {
        let usual = prepared(|_| ()).unwrap();
        assert!(!is_asked_for(&usual) && usual.round_trips);
        let asked = prepared(|options| {
            options.in_flight = vec![1, 16];
            options.ops = OpName::ALL.to_vec();
        })
        .unwrap();
        assert!(is_asked_for(&asked) && !asked.round_trips);
        assert!(!asked.ops.contains(&OpName::Tree));
        let paces = [Pace::InFlight(1), Pace::InFlight(16)];
        assert_eq!(points(&asked), paces.map(|pace| Point { clients: 1, pace }));
        let asked = prepared(|options| options.clients = vec![1, 64]).unwrap();
        let pace = Pace::InFlight(1);
        assert_eq!(
            points(&asked),
            [1, 64].map(|clients| Point { clients, pace })
        );
    }

    #[test]
    fn a_rate_is_that_of_all_clients_together() {
        let asked = prepared(|options| {
            options.arrivals = vec![900.0];
            options.clients = vec![3];
        })
        .unwrap();
        let point = points(&asked)[0];
        assert_eq!(point.pace, Pace::Arrivals(300.0));
        let row = row(&rpcrdma_programs::workload::Op::Null, point);
        assert_eq!((row.arrivals_per_s, row.in_flight), (Some(900.0), None));
    }

    #[test]
    fn rates_that_a_turn_has_an_arrival_with_are_permitted() {
        let rate = |rate, change: fn(&mut Options)| {
            prepared(|options| {
                options.arrivals = vec![rate];
                change(options);
            })
        };
        assert!(rate(18.0, |_| ()).is_ok());
        assert!(rate(17.9, |_| ()).is_err());
        assert!(rate(17.9, |options| options.time *= 2).is_ok());
        assert!(rate(0.1, |options| options.count = Some(9)).is_ok());
        assert!(rate(0.1, |options| options.device = DeviceName::Sim).is_ok());
    }

    #[test]
    fn operations_that_the_network_did_not_delay_are_an_error() {
        let network = Network::new("true", Duration::ZERO, |_| ()).unwrap();
        let check = |p50_us: Option<f64>| {
            let row = Row {
                op: "null",
                p50_us,
                ..Row::default()
            };
            check_delayed(Some(&network), &[row], Duration::from_millis(1))
        };
        assert!(check(Some(2000.0)).is_ok() && check(None).is_ok());
        let error = check(Some(30.0)).unwrap_err().to_string();
        assert!(error.contains("null took 30 µs"), "{error}");
        assert!(check_delayed(None, &[Row::default()], Duration::MAX).is_ok());
    }

    #[test]
    fn contradictions_and_numbers_out_of_bounds_are_refused() {
        let refused = |change: fn(&mut Options)| prepared(change).unwrap_err();
        for (said, part) in [
            (
                refused(|options| {
                    options.in_flight = vec![4];
                    options.arrivals = vec![1.0];
                }),
                "--in-flight: not with --arrivals",
            ),
            (refused(|options| options.in_flight = vec![0]), "from 1 to"),
            (refused(|options| options.arrivals = vec![0.0]), "no rate"),
            (
                refused(|options| options.arrivals = vec![f64::NAN]),
                "no rate",
            ),
            (
                refused(|options| {
                    options.arrivals = vec![1000.0, 35.9];
                    options.clients = vec![1, 2];
                }),
                "the least is 36.0",
            ),
            (
                refused(|options| options.clients = vec![0]),
                "from 1 to 256",
            ),
            (refused(|options| options.clients.clear()), "how many"),
            (
                refused(|options| {
                    options.clients = vec![1, 128];
                    options.device = DeviceName::Sim;
                }),
                "from 1 to 127",
            ),
            (
                refused(|options| {
                    options.in_flight = vec![4];
                    options.receives = vec![4096];
                }),
                "not with --receives",
            ),
            (
                refused(|options| {
                    options.clients = vec![2];
                    options.ops = vec![OpName::Tree];
                }),
                "not with --ops tree",
            ),
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
