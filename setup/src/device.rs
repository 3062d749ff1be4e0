//! The choice of devices under RPC-over-RDMA, and opening one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr;
use std::sync::Arc;

use iwarp::{CrcPolicy, Iwarp};
use rdma::middleware::{Linked, Shaper};
use rdma::{ClassCosts, Device, Pool};
use rdma_capture::{Capture, Origin, Reconstructed};
use rdma_core::{self, OpenError, Registration};
use rpcrdma_host::{CongestionControl, LoopSeat};

use crate::{Context, Failure};

/// The default limit of a device's memory pool, bytes, except for servers.
const POOL: usize = 1 << 30;
/// The default maximum number of a device's connections, except for servers.
const CONNECTIONS: usize = 1024;

/// The memory limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// The maximum number of pool bytes in use at the same time.
    pub memory: usize,
    /// The maximum number of free bytes that the pool keeps for reuse. (A verbs device keeps all.)
    pub kept: usize,
    /// The maximum number of connections at the same time.
    pub connections: usize,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            memory: POOL,
            kept: usize::MAX,
            connections: CONNECTIONS,
        }
    }
}

/// A device under RPC-over-RDMA.
pub type AnyDevice = Box<dyn Device>;

/// An open device, and the method by which it registers memory for its peers.
pub struct Opened {
    /// The device.
    pub device: AnyDevice,
    /// The method by which it registers memory: the chosen one, or the best that it supports.
    pub registration: Registration,
}

/// The name of a device in options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// `iwarp`: the software RNIC in this program.
    #[default]
    Iwarp,
    /// `verbs` or `verbs:NAME`: an RDMA device of this machine.
    Verbs(Option<String>),
    /// `sim`: a simulation, available only in `compare`.
    Sim,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "iwarp" => Ok(Self::Iwarp),
            None if text == "verbs" => Ok(Self::Verbs(None)),
            Some(("verbs", name)) if !name.is_empty() => Ok(Self::Verbs(Some(name.to_owned()))),
            _ => Err(format!(
                "no device `{text}`: write iwarp, verbs or verbs:NAME (`rpcrdma devices` lists them)"
            )),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iwarp => f.write_str("iwarp"),
            Self::Sim => f.write_str("sim"),
            Self::Verbs(None) => f.write_str("verbs"),
            Self::Verbs(Some(name)) => write!(f, "verbs:{name}"),
        }
    }
}

/// How a verbs device registers memory for its peers. `None`: the best method that the device
/// supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy(pub Option<Registration>);

/// The name of the `None` policy.
const AUTO: &str = "auto";

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == AUTO {
            return Ok(Self(None));
        }
        let unknown = |_| {
            let names = Registration::ALL.map(Registration::name).join(", ");
            format!("`{text}` is no way to register memory: {AUTO}, {names}")
        };
        text.parse().map(|way| Self(Some(way))).map_err(unknown)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or(AUTO, Registration::name))
    }
}

/// The selection of a device, with its settings.
#[derive(Clone, Debug, Default)]
pub struct DeviceChoice {
    /// The name of the device.
    pub name: DeviceName,
    /// The method by which it must register memory.
    pub registration: Policy,
    /// The local address that selects the device, if it is known.
    pub address: Option<IpAddr>,
    /// The memory limits.
    pub resources: Resources,
    /// Iwarp: the memory pool, which other devices may have as well. `None`: a pool of its own, with the
    /// limits of `resources`.
    pub pool: Option<Pool>,
    /// The capture to which the device's traffic is added.
    pub capture: Option<Capture>,
    /// Iwarp: sockets that listen already ([`iwarp::Options::sockets`]).
    pub sockets: Vec<Arc<TcpListener>>,
    /// The seat of the device's loop among those that listen together.
    pub seat: Option<LoopSeat>,
}

fn only_compare() -> Failure {
    Failure::usage("device sim: only `compare` takes it")
}

impl DeviceChoice {
    /// Checks the settings without opening the device.
    ///
    /// # Errors
    /// The device has no such setting.
    pub fn check(&self) -> Result<(), Failure> {
        match (&self.name, self.registration) {
            (DeviceName::Sim, _) => Err(only_compare()),
            (DeviceName::Iwarp, Policy(Some(way))) => {
                let text = format!("registration {way}: only verbs devices have a choice");
                Err(Failure::Usage(text))
            }
            _ => Ok(()),
        }
    }

    /// Opens the device with counters, behind `link` if there is one. `crc`: whether the iwarp
    /// device asks for CRC32c in its frames. `congestion`: the congestion control of that device's
    /// TCP connections.
    ///
    /// # Errors
    /// The device does not exist, or does not support a requested setting.
    pub fn open(
        &self,
        link: Option<Shaper>,
        crc: bool,
        congestion: Option<CongestionControl>,
    ) -> Result<Opened, Failure> {
        self.check()?;
        let resources = self.resources;
        match &self.name {
            DeviceName::Sim => Err(only_compare()),
            DeviceName::Iwarp => {
                let options = iwarp::Options {
                    crc: if crc {
                        CrcPolicy::Request
                    } else {
                        CrcPolicy::IfAsked
                    },
                    congestion,
                    max_connections: resources.connections,
                    sockets: self.sockets.clone(),
                    seat: self.seat.clone(),
                    ..iwarp::Options::default()
                };
                let own = || Pool::keeping(resources.memory, resources.kept);
                let pool = self.pool.clone().unwrap_or_else(own);
                let device = Iwarp::new(options, pool);
                let mut device = device.context("cannot open device iwarp")?;
                if let Some(capture) = &self.capture {
                    let tap = capture.tap("iwarp", Origin::Stream);
                    device.set_tap(Box::new(match &link {
                        Some(link) => tap.behind(link.clone()),
                        None => tap,
                    }));
                }
                Ok(Opened {
                    device: wrap(device, link),
                    // Each region has a handle of its own.
                    registration: Registration::PerCall,
                })
            }
            DeviceName::Verbs(device) => {
                let options = rdma_core::Options {
                    device: device.clone(),
                    address: self.address,
                    registration: self.registration.0,
                    memory: resources.memory,
                    max_connections: resources.connections,
                    seat: self.seat.clone(),
                    ..rdma_core::Options::default()
                };
                let opened = rdma_core::open(&options);
                let device = opened.map_err(|error| not_opened(&self.name, &error))?;
                let registration = device.registration();
                let device = match &self.capture {
                    Some(capture) => {
                        let tap = capture.tap(&device.attributes().name, Origin::Reconstructed);
                        let device = wrap(device, link);
                        Box::new(Reconstructed::new(device, tap, self.address))
                    }
                    None => wrap(device, link),
                };
                Ok(Opened {
                    registration,
                    device,
                })
            }
        }
    }

    /// Returns what operations cost on devices of the class of this one, which is opened for that.
    ///
    /// # Errors
    /// See [`DeviceChoice::open`].
    pub fn class_costs(&self) -> Result<ClassCosts, Failure> {
        let opened = self.open(None, false, None)?;
        Ok(opened.device.attributes().costs)
    }

    /// Returns the same choice with the local address that leads to `remote`, unless one is set, so
    /// that the right one of several verbs devices is opened.
    pub fn towards(&self, remote: SocketAddr) -> Self {
        let mut choice = self.clone();
        if choice.name == DeviceName::Verbs(None) {
            choice.address = choice.address.or_else(|| address_towards(remote));
        }
        choice
    }
}

/// Explains why a verbs device cannot be opened. Refers to the list of devices if the error
/// contains no advice.
fn not_opened(name: &DeviceName, error: &OpenError) -> Failure {
    let advice = match error {
        OpenError::NoDevice(_) | OpenError::Unsupported { .. } => " (see `rpcrdma devices`)",
        _ => "",
    };
    Failure::Work(format!("cannot open device {name}: {error}{advice}"))
}

fn wrap(device: impl Device + 'static, link: Option<Shaper>) -> AnyDevice {
    match link {
        Some(link) => Box::new(Linked::new(device, link)),
        None => Box::new(device),
    }
}

/// Returns the local address that packets to `remote` leave from. This only looks up the routing
/// table: connecting a UDP socket sends nothing.
fn address_towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn devices_and_policies_are_named_as_they_are_shown() {
        for name in ["iwarp", "verbs", "verbs:rxe0"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        for wrong in ["", "rxe0", "verbs:", "iwarp:x", "sim"] {
            assert!(wrong.parse::<DeviceName>().is_err(), "{wrong}");
        }
        for policy in ["auto", "windows", "per-call", "persistent-unsafe"] {
            assert_eq!(policy.parse::<Policy>().unwrap().to_string(), policy);
        }
        assert!(
            "persistent"
                .parse::<Policy>()
                .unwrap_err()
                .contains("persistent-unsafe")
        );
    }

    #[test]
    fn the_way_to_this_machine_starts_here() {
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 20049));
        assert_eq!(address_towards(remote), Some(Ipv4Addr::LOCALHOST.into()));
        let iwarp = DeviceChoice::default();
        assert_eq!(iwarp.towards(remote).address, None, "it needs none");
        let verbs = DeviceChoice {
            name: DeviceName::Verbs(None),
            ..iwarp
        };
        assert_eq!(
            verbs.towards(remote).address,
            Some(Ipv4Addr::LOCALHOST.into())
        );
    }

    #[test]
    fn a_device_that_cannot_be_had_comes_with_one_piece_of_advice() {
        let name = DeviceName::Verbs(None);
        for (error, advice) in [
            (OpenError::Cm(io::Error::other("no")), "rdma_ucm"),
            (OpenError::NoDevice(" rxe7".into()), "`rpcrdma devices`"),
        ] {
            let text = not_opened(&name, &error).to_string();
            assert!(text.contains(advice), "{text}");
            assert_eq!(text.matches('(').count(), 1, "{text}");
        }
    }

    #[test]
    fn a_policy_for_a_device_without_one_is_a_slip() {
        let choice = DeviceChoice {
            registration: Policy(Some(Registration::Windows)),
            ..DeviceChoice::default()
        };
        let Err(failure) = choice.open(None, false, None) else {
            panic!("it was ignored");
        };
        assert!(matches!(failure, Failure::Usage(_)), "{failure}");
    }
}
