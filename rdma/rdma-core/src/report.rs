//! A report on the machine's RDMA devices, their capabilities, and missing prerequisites. Plain
//! values for a program to print; making the report changes nothing.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::addresses;
use super::caps::{self, Capabilities};
use super::sysfs::{entries, line};
use rdma_core_sys::{self as sys, LoadError};

/// Kernel modules that are required (true), and those that make a device of an Ethernet interface.
const MODULES: [(&str, bool); 4] = [
    ("ib_uverbs", true),
    ("rdma_ucm", true),
    ("rdma_rxe", false),
    ("siw", false),
];
/// Folder of the kernel's RDMA device nodes.
const NODES: &str = "/dev/infiniband";
const SYS_DEVICES: &str = "/sys/class/infiniband";
/// Limits on locked memory below this many bytes are reported as a problem: the receives of a few connections
/// use them up.
const LITTLE_MEMLOCK: u64 = 64 << 20;

/// The state of the machine's RDMA support, as far as it can be known without opening a device.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether the libraries can be loaded.
    pub libraries: Result<(), LoadError>,
    /// Kernel modules.
    pub modules: Vec<Module>,
    /// Device nodes.
    pub nodes: Vec<Node>,
    /// Limit on memory that this process may lock and so register.
    pub memlock: Memlock,
    /// The devices known to the kernel.
    pub devices: Vec<DeviceReport>,
}

/// A kernel module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Name of the module.
    pub name: &'static str,
    /// Whether the module is required. (The others make a device in software.)
    pub needed: bool,
    /// Whether the module is loaded or built in.
    pub loaded: bool,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Path of the node.
    pub path: PathBuf,
    /// Whether this process may read and write it; otherwise the reason.
    pub usable: Result<(), String>,
}

/// Limits on locked memory in bytes; `None` for no limit. Most drivers do not apply them to a
/// process with `CAP_IPC_LOCK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// The limit in force.
    pub soft: Option<u64>,
    /// The limit to which this process could raise it.
    pub hard: Option<u64>,
}

/// An RDMA device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Name of the device, such as `rxe0`.
    pub name: String,
    /// The network interface of the device, if it has one.
    pub interface: Option<String>,
    /// Addresses of that interface, to connect from and listen on.
    pub addresses: Vec<IpAddr>,
    /// The ports of the device.
    pub ports: Vec<PortReport>,
    /// The capabilities of the device, or the reason why they cannot be determined.
    pub capabilities: Result<Capabilities, String>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// Number of the port, from 1.
    pub number: u8,
    /// State of the port: `ACTIVE`, `DOWN`, ...
    pub state: String,
    /// Link layer: `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// Rate, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
}

impl PortReport {
    /// Returns whether the port can carry traffic.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

impl Report {
    /// Describes what prevents the use of RDMA devices, with a remedy for each problem. Empty if a
    /// usable device exists.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = &self.libraries {
            problems.push(error.to_string());
        }
        for module in self.modules.iter().filter(|m| m.needed && !m.loaded) {
            let name = module.name;
            problems.push(format!(
                "kernel module {name} is not loaded: modprobe {name}"
            ));
        }
        for node in &self.nodes {
            if let Err(reason) = &node.usable {
                let path = node.path.display();
                problems.push(format!("{path} cannot be used: {reason}"));
            }
        }
        if self.devices.is_empty() {
            problems.push(
                "there is no device: rdma link add NAME type rxe|siw netdev INTERFACE makes one \
                 in software"
                    .to_owned(),
            );
        }
        for device in &self.devices {
            let name = &device.name;
            if !device.ports.iter().any(PortReport::is_active) {
                problems.push(format!("no port of device {name} is active"));
            }
            if let Err(reason) = &device.capabilities {
                problems.push(format!("device {name} cannot be opened: {reason}"));
            }
        }
        if let Some(soft) = self.memlock.soft.filter(|&soft| soft < LITTLE_MEMLOCK) {
            problems.push(format!(
                "only {soft} bytes of memory may be locked: raise it (ulimit -l, LimitMEMLOCK=)"
            ));
        }
        problems
    }
}

/// Examines this machine.
#[must_use]
pub fn devices() -> Report {
    let libraries = sys::library();
    let mut capabilities = libraries
        .as_ref()
        .map(|found| caps::of_all(found))
        .unwrap_or_default();
    let interfaces = addresses::interfaces();
    let names = entries(Path::new(SYS_DEVICES));
    let devices = names.into_iter().map(|name| {
        let path = Path::new(SYS_DEVICES).join(&name);
        let interface = addresses::interface_of(&path);
        let has = |one: &&addresses::Address| Some(&one.interface) == interface.as_ref();
        let addresses = interfaces.iter().filter(has).map(|one| one.ip).collect();
        DeviceReport {
            capabilities: match &libraries {
                Ok(_) => capabilities
                    .remove(&name)
                    .unwrap_or_else(|| Err("no provider for it is installed".to_owned())),
                Err(error) => Err(error.to_string()),
            },
            ports: ports(&path),
            interface,
            addresses,
            name,
        }
    });
    Report {
        devices: devices.collect(),
        libraries: libraries.map(drop),
        modules: MODULES.map(|(name, needed)| module(name, needed)).to_vec(),
        nodes: nodes(),
        memlock: memlock(),
    }
}

/// Returns the limit on locked memory.
pub(super) fn memlock() -> Memlock {
    let limit = getrlimit(Resource::Memlock);
    Memlock {
        soft: limit.current,
        hard: limit.maximum,
    }
}

fn module(name: &'static str, needed: bool) -> Module {
    let loaded = Path::new("/sys/module").join(name).exists();
    Module {
        name,
        needed,
        loaded,
    }
}

fn nodes() -> Vec<Node> {
    let mut names = entries(Path::new(NODES));
    names.retain(|name| name == "rdma_cm" || name.starts_with("uverbs"));
    if !names.iter().any(|name| name == "rdma_cm") {
        names.insert(0, "rdma_cm".to_owned());
    }
    let usable = |path: &Path| {
        let answer = access(path, Access::READ_OK | Access::WRITE_OK);
        answer.map_err(|error| io::Error::from(error).to_string())
    };
    let nodes = names.into_iter().map(|name| Path::new(NODES).join(name));
    let nodes = nodes.map(|path| Node {
        usable: usable(&path),
        path,
    });
    nodes.collect()
}

fn ports(device: &Path) -> Vec<PortReport> {
    let ports = device.join("ports");
    let numbers = entries(&ports).into_iter();
    let numbers = numbers.filter_map(|name| name.parse::<u8>().ok());
    let ports = numbers.map(|number| {
        let port = ports.join(number.to_string());
        let state = line(&port.join("state"));
        PortReport {
            number,
            // "4: ACTIVE"
            state: state.rsplit(": ").next().unwrap_or(&state).to_owned(),
            link_layer: line(&port.join("link_layer")),
            rate: line(&port.join("rate")),
        }
    });
    ports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without problems.
    fn complete() -> Report {
        let port = PortReport {
            number: 1,
            state: "ACTIVE".to_owned(),
            link_layer: "Ethernet".to_owned(),
            rate: "100 Gb/sec (4X EDR)".to_owned(),
        };
        let capabilities = Capabilities {
            kind: caps::Kind::Adapter,
            max_qp_wr: 1,
            max_qp: 1,
            max_cqe: 1,
            max_sge: 1,
            max_sge_rd: 1,
            max_mr: 1,
            max_mr_size: 1,
            max_mw: 1,
            max_inbound_reads: 1,
            max_outbound_reads: 1,
            max_srq: 0,
            max_srq_wr: 0,
            max_srq_sge: 0,
            max_message: 1,
            windows_2b: true,
            windows_2a: false,
            invalidation: true,
        };
        Report {
            libraries: Ok(()),
            modules: MODULES
                .map(|(name, needed)| Module {
                    name,
                    needed,
                    loaded: needed,
                })
                .to_vec(),
            nodes: vec![Node {
                path: "/dev/infiniband/rdma_cm".into(),
                usable: Ok(()),
            }],
            memlock: Memlock {
                soft: None,
                hard: None,
            },
            devices: vec![DeviceReport {
                name: "mlx5_0".to_owned(),
                interface: None,
                addresses: Vec::new(),
                ports: vec![port],
                capabilities: Ok(capabilities),
            }],
        }
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        assert_eq!(complete().problems(), Vec::<String>::new());
        type Spoil = fn(&mut Report);
        let spoil: [(&str, Spoil); 7] = [
            ("libibverbs.so.1", |report| {
                report.libraries = Err(LoadError::Library {
                    library: sys::load::LIBIBVERBS,
                    reason: "not found".to_owned(),
                });
            }),
            ("modprobe rdma_ucm", |report| {
                report.modules[1].loaded = false
            }),
            ("rdma_cm cannot be used: not yours", |report| {
                report.nodes[0].usable = Err("not yours".to_owned());
            }),
            ("8388608 bytes", |report| {
                report.memlock.soft = Some(8 << 20)
            }),
            ("rdma link add", |report| report.devices.clear()),
            ("no port of device mlx5_0", |report| {
                report.devices[0].ports[0].state = "DOWN".to_owned();
            }),
            ("mlx5_0 cannot be opened: why", |report| {
                report.devices[0].capabilities = Err("why".to_owned());
            }),
        ];
        for (words, spoil) in spoil {
            let mut report = complete();
            spoil(&mut report);
            let problems = report.problems();
            assert!(
                problems.len() == 1 && problems[0].contains(words),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn windows_are_used_if_they_can_be_invalidated() {
        let mut can = complete().devices[0].capabilities.clone().unwrap();
        assert_eq!(can.best(), super::super::Registration::Windows);
        assert!(can.remote_invalidation(can.best()));
        can.invalidation = false;
        assert_eq!(can.best(), super::super::Registration::PerCall);
        assert!(!can.remote_invalidation(can.best()));
        assert!(
            !can.registrations()
                .any(|one| one == super::super::Registration::Windows)
        );
    }
}
