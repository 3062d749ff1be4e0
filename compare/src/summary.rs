//! Sentences that say what a measurement was made on. A figure means little without them: another
//! device, link, congestion control or processor has other figures.

use std::time::Duration;

use rdma::middleware::Rate;
use rpcrdma_setup::device::DeviceName;

use crate::environment::Environment;
use crate::options::{OpName, Options};
use crate::processor;
use crate::variant::Variant;

/// The transports, the device and the link that carried the measured traffic.
pub(crate) struct Carried<'a> {
    pub(crate) options: &'a Options,
    /// The device's name for itself, or that of the option.
    pub(crate) device: &'a str,
    /// The congestion control that the system granted to connections.
    pub(crate) congestion: Option<&'a str>,
    /// The delays of the two links with which round trips are measured.
    pub(crate) trips: Option<[Duration; 2]>,
    /// The ends of the link that a delay is added to, if no command makes it: [`ENDS`], or the gateways.
    pub(crate) ends: &'a str,
}

impl Carried<'_> {
    /// Returns a phrase for the device, its checksums, the network and its congestion control, the
    /// delays and the rate.
    pub(crate) fn describe(&self) -> String {
        let options = self.options;
        let mut parts = Vec::new();
        if options.via.iter().any(|via| via.version().is_some()) {
            parts.push(format!("device {}", self.described_device()));
        }
        let way = match (options.server, options.address.is_loopback()) {
            (Some(host), _) => format!("over the network, servers on the host {}", host.ip()),
            // The kernel routes what is for its own addresses to the loopback interface.
            (None, true) => "over the loopback interface".to_owned(),
            (None, false) => format!(
                "over the loopback interface, servers at {} of this machine",
                options.address
            ),
        };
        parts.push(match options.device {
            DeviceName::Verbs(_) => format!("TCP {way}"),
            _ => way,
        });
        let congestion = self.congestion;
        parts.extend(congestion.map(|name| format!("TCP congestion control {name}")));
        parts.push(self.delays());
        let rate = options.rate;
        parts.extend(rate.map(|rate| format!("{}bit/s each way, by the sender", Rate(rate))));
        parts.extend(settings(options).map(|words| format!("both ends over RDMA with {words}")));
        parts.join("; ")
    }

    fn described_device(&self) -> String {
        let kind = kind(&self.options.device);
        match self.options.device {
            DeviceName::Iwarp => {
                let crc = if self.options.crc { "on" } else { "off" };
                format!("{} ({kind}, CRC {crc})", self.device)
            }
            _ => format!("{} ({kind})", self.device),
        }
    }

    /// Returns a phrase for the delays of the links, and what makes them.
    fn delays(&self) -> String {
        let options = self.options;
        let by = match &options.set_delay {
            Some(_) => "made by the network (--set-delay)".to_owned(),
            None => format!("slept by {} above TCP", self.ends),
        };
        let rate = match options.rate {
            Some(_) => "",
            None => ", rate not limited",
        };
        let [own, other] = [Some(options.delay), self.trips.map(|[_, long]| long)]
            .map(|delay| delay.map(|delay| 2 * delay));
        match (self.trips, own.filter(|own| !own.is_zero()), other) {
            (Some([short, _]), None, Some(long)) => format!(
                "times without delay, RTT {:?} and {long:?} for trips {by}{rate}",
                2 * short
            ),
            (Some(_), Some(own), Some(long)) => {
                format!("RTT {own:?}, and {long:?} for trips, {by}{rate}")
            }
            (_, Some(own), _) => format!("RTT {own:?} {by}{rate}"),
            (..) => "no delay added".to_owned(),
        }
    }
}

/// The maker of a delay where no command makes it.
pub(crate) const ENDS: &str = "client and server";

/// Returns what kind of device this is.
pub(crate) fn kind(device: &DeviceName) -> &'static str {
    match device {
        DeviceName::Iwarp => "software iWARP in user space over kernel TCP",
        DeviceName::Verbs(_) => "RDMA device of the machine, by verbs",
        DeviceName::Sim => "simulation",
    }
}

/// Returns the policy of granting and the settings that all variants have, as on the command line.
pub(crate) fn settings(options: &Options) -> Option<String> {
    let (grants, settings) = options.tuning.words();
    let grants = (!grants.is_empty()).then(|| format!("--credits {grants}"));
    let settings = settings.split_whitespace();
    let settings = settings.map(|setting| format!("--set {setting}"));
    let words: Vec<String> = grants.into_iter().chain(settings).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns what delays the link: null if nothing does.
pub(crate) fn delayed_by(options: &Options) -> Option<String> {
    let by = match &options.set_delay {
        Some(command) => command.clone(),
        None => ENDS.to_owned(),
    };
    (!options.delay.is_zero() || options.round_trips).then_some(by)
}

/// Returns the protocols that are measured.
pub(crate) fn protocols(options: &Options) -> &'static str {
    let tcp = options.via.contains(&Variant::Tcp);
    let rdma = options.via.iter().any(|via| via.version().is_some());
    match (tcp, rdma) {
        (true, true) => "NFSv3 over TCP and RPC-over-RDMA",
        (true, false) => "NFSv3 over TCP",
        (false, _) => "NFSv3 over RPC-over-RDMA",
    }
}

/// Returns a phrase for the calls that are made, and for the programs at both ends.
pub(crate) fn load(options: &Options) -> String {
    let calls = match options {
        _ if crate::depth::is_asked_for(options) => "as many calls in flight as a row says",
        _ if options.full => "one call at a time (throughput: eight)",
        _ => "one call at a time",
    };
    let unstable = match options.ops.contains(&OpName::Write) {
        true => ", WRITEs unstable",
        false => "",
    };
    let waiting = match options.busy_poll {
        true => "spinning",
        false => "blocking",
    };
    format!("{calls}{unstable}, files in memory; own client and server, {waiting}")
}

/// Returns the sentence about the machine, its processors, and the program. `stolen`: the part of the
/// processors' time that the host of a virtual machine gave to others meanwhile.
pub(crate) fn machine(
    environment: &Environment,
    pinned: Option<(usize, usize)>,
    stolen: Option<f64>,
) -> String {
    let pinned = match pinned {
        Some((client, server)) => {
            let core = match processor::share_a_core((client, server)) {
                Some(true) => ", threads of one core",
                Some(false) => ", of another core",
                None => "",
            };
            format!("client pinned to processor {client}, servers to {server}{core}")
        }
        None => "nothing pinned to a processor".to_owned(),
    };
    let guest = match (environment.virtual_machine, stolen) {
        (Some(true), Some(part)) => format!(", virtual machine ({:.1} % stolen)", part * 100.0),
        (Some(true), None) => ", virtual machine".to_owned(),
        _ => String::new(),
    };
    format!("{environment}{guest}; {pinned}; {}.", environment.program())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(change: impl Fn(&mut Options), trips: Option<[u64; 2]>) -> String {
        let mut options = Options::default();
        change(&mut options);
        let carried = Carried {
            options: &options,
            device: "iwarp",
            congestion: Some("cubic"),
            trips: trips.map(|delays| delays.map(Duration::from_millis)),
            ends: ENDS,
        };
        carried.describe()
    }

    #[test]
    fn device_network_and_what_delays_it_are_named() {
        assert_eq!(
            described(|_| (), Some([1, 2])),
            "device iwarp (software iWARP in user space over kernel TCP, CRC off); over the \
             loopback interface; TCP congestion control cubic; times without delay, RTT 2ms and \
             4ms for trips slept by client and server above TCP, rate not limited"
        );
        let slow = |options: &mut Options| {
            options.delay = Duration::from_millis(5);
            options.rate = Some(10_000_000_000);
            options.set_delay = Some("tc".to_owned());
            options.address = [192, 0, 2, 1].into();
        };
        let said = described(slow, None);
        for part in [
            "over the loopback interface, servers at 192.0.2.1 of this machine",
            "RTT 10ms made by the network (--set-delay)",
            "10gbit/s each way, by the sender",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let there = |options: &mut Options| options.server = Some(([192, 0, 2, 1], 20047).into());
        let said = described(there, None);
        assert!(
            said.contains("; over the network, servers on the host 192.0.2.1; "),
            "{said}"
        );
        let tcp = |options: &mut Options| options.via = vec![Variant::Tcp];
        assert!(!described(tcp, None).contains("device"));
    }

    #[test]
    fn the_machine_is_named_with_what_is_pinned() {
        let environment = Environment::of_machine(Some("0123456789ab"));
        let said = machine(&environment, None, None);
        let (date, system) = said.split_once(", ").unwrap();
        assert!(date.len() == 10 && system.starts_with("Linux "), "{said}");
        assert!(said.contains("; nothing pinned to a processor; rpcrdma "));
        assert!(said.contains(", commit 0123456789ab, "), "{said}");
        let guest = Environment {
            virtual_machine: Some(true),
            ..environment
        };
        let said = machine(&guest, Some((7, 9)), Some(0.0123));
        assert!(said.contains("client pinned to processor 7, servers to 9"));
        assert!(
            said.contains(", virtual machine (1.2 % stolen); "),
            "{said}"
        );
    }

    #[test]
    fn calls_and_both_ends_are_named() {
        let mut options = Options::default();
        assert_eq!(
            load(&options),
            "one call at a time, WRITEs unstable, files in memory; own client and server, blocking"
        );
        options.ops = vec![OpName::Null];
        options.busy_poll = true;
        assert!(load(&options).ends_with("own client and server, spinning"));
        assert!(!load(&options).contains("WRITE"));
        options.in_flight = vec![16];
        assert!(load(&options).starts_with("as many calls in flight as a row says, files"));
    }
}
