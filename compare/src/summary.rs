//! Sentences that say what a measurement was made on. A figure means little without them: another
//! device, link, congestion control or processor has other figures.

use std::time::Duration;

use rdma::middleware::Rate;
use rpcrdma_setup::device::DeviceName;

use crate::environment::Environment;
use crate::options::Options;
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
        let at = match options.address.is_loopback() {
            true => String::new(),
            false => format!(", servers at {} of this machine", options.address),
        };
        // The kernel routes what is for its own addresses to the loopback interface.
        parts.push(match options.device {
            DeviceName::Verbs(_) => format!("TCP over the loopback interface{at}"),
            _ => format!("over the loopback interface{at}"),
        });
        let congestion = self.congestion;
        parts.extend(congestion.map(|name| format!("TCP congestion control {name}")));
        parts.push(self.delays());
        let rate = options.rate;
        parts.extend(rate.map(|rate| format!("{}bit/s each way, by the sender", Rate(rate))));
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
            Some(_) => "by the network (--set-delay)",
            None => "by client and server",
        };
        let trips = self.trips.map(|[short, long]| match options.delay {
            Duration::ZERO => {
                format!("no delay added, but {short:?} and {long:?} each way {by} for round trips")
            }
            delay => format!("{delay:?} added each way {by}, and {long:?} for round trips"),
        });
        trips.unwrap_or_else(|| match options.delay {
            Duration::ZERO => "no delay added".to_owned(),
            delay => format!("{delay:?} added each way {by}"),
        })
    }
}

/// Returns what kind of device this is.
pub(crate) fn kind(device: &DeviceName) -> &'static str {
    match device {
        DeviceName::Iwarp => "software iWARP in user space over kernel TCP",
        DeviceName::Verbs(_) => "RDMA device of the machine, by verbs",
        DeviceName::Sim => "simulation",
    }
}

/// Returns what delays the link: null if nothing does.
pub(crate) fn delayed_by(options: &Options) -> Option<String> {
    let by = match &options.set_delay {
        Some(command) => command.clone(),
        None => "client and server".to_owned(),
    };
    (!options.delay.is_zero() || options.round_trips).then_some(by)
}

/// Returns the protocols that are measured.
pub(crate) fn protocols(options: &Options) -> &'static str {
    let tcp = options.via.contains(&Variant::Tcp);
    let rdma = options.via.iter().any(|via| via.version().is_some());
    match (tcp, rdma) {
        (true, true) => "NFS over TCP and RPC-over-RDMA",
        (true, false) => "NFS over TCP",
        (false, _) => "NFS over RPC-over-RDMA",
    }
}

/// Returns the sentence about the machine, its processors, and the program.
pub(crate) fn machine(environment: &Environment, pinned: Option<(usize, usize)>) -> String {
    let pinned = match pinned {
        Some((client, server)) => {
            let core = match processor::share_a_core((client, server)) {
                true => ", threads of one core",
                false => "",
            };
            format!("client pinned to processor {client}, servers to {server}{core}")
        }
        None => "nothing pinned to a processor".to_owned(),
    };
    format!("{environment}; {pinned}; {}.", environment.program())
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
        };
        carried.describe()
    }

    #[test]
    fn device_network_and_what_delays_it_are_named() {
        assert_eq!(
            described(|_| (), Some([1, 2])),
            "device iwarp (software iWARP in user space over kernel TCP, CRC off); over the \
             loopback interface; TCP congestion control cubic; no delay added, but 1ms and 2ms \
             each way by client and server for round trips"
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
            "5ms added each way by the network (--set-delay)",
            "10gbit/s each way, by the sender",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let tcp = |options: &mut Options| options.via = vec![Variant::Tcp];
        assert!(!described(tcp, None).contains("device"));
    }

    #[test]
    fn the_machine_is_named_with_what_is_pinned() {
        let environment = Environment::of_machine(Some("0123456789ab"));
        let said = machine(&environment, None);
        assert!(said.starts_with("Linux "), "{said}");
        assert!(said.contains("; nothing pinned to a processor; rpcrdma "));
        assert!(said.contains(", commit 0123456789ab, "), "{said}");
        let said = machine(&environment, Some((7, 9)));
        assert!(said.contains("client pinned to processor 7, servers to 9"));
    }
}
