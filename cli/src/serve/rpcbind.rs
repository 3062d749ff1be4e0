//! Registration with rpcbind (RFC 1833), which tells clients that name no ports where a server listens
//! (`--rpcbind`).

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nfs_binding::proto::{MOUNT_PROGRAM, NFS_PROGRAM};
use onc_rpc::rpcbind::{Mapping, socket_address, universal_address};
use rpc_transport::ProgramVersions;
use rpcrdma_setup::Failure;
use rpcrdma_setup::mount_options::Proto;
use socket2::{Domain, Socket, Type};

use crate::args::RpcbindUse;
use crate::output;
pub(super) use daemon::Way;

mod daemon;

/// The port at which clients of NFS look for it without rpcbind.
const NFS_PORT: u16 = 2049;

/// A transport with the address that it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    pub(super) proto: Proto,
    pub(super) address: SocketAddr,
    /// The device under RDMA.
    pub(super) device: Option<String>,
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.proto {
            Proto::Rdma => "rdma",
            Proto::Tcp => "tcp",
        };
        write!(f, "listening {name} {}", self.address)?;
        self.device
            .iter()
            .try_for_each(|device| write!(f, " {device}"))
    }
}

/// Returns the way to rpcbind of a server that is to be registered.
///
/// # Errors
/// The server has to be registered, and there is no rpcbind that it may use.
pub(super) fn way(
    wanted: RpcbindUse,
    addresses: &[IpAddr],
    tcp_port: u16,
) -> Result<Option<Way>, Failure> {
    match wanted {
        RpcbindUse::No => Ok(None),
        RpcbindUse::Yes => match Way::find()? {
            None => Err(Failure::work(
                "--rpcbind yes: no rpcbind runs here: start it (`systemctl start rpcbind`)",
            )),
            way => Ok(way),
        },
        // Another server has the standard port or other hosts cannot connect, so nobody looks for this
        // one through rpcbind.
        RpcbindUse::Auto if tcp_port != NFS_PORT || addresses.iter().all(|ip| ip.is_loopback()) => {
            Ok(None)
        }
        RpcbindUse::Auto => Ok(Way::find().unwrap_or_else(|failure| {
            output::complain(format_args!(
                "note: clients have to name the ports, as this server is not registered: {failure}"
            ));
            None
        })),
    }
}

/// The registration of a server. Dropping it takes it back.
#[derive(Debug)]
pub(super) struct Registration {
    way: Way,
    mappings: Vec<Mapping>,
}

impl Registration {
    /// Registers programs on what a server listens on. Replaces registrations of servers that are gone.
    ///
    /// # Errors
    /// Another server is registered, or rpcbind does not do its part. Nothing stays registered then.
    pub(super) fn new(
        way: Way,
        listening: &[Listening],
        programs: &[ProgramVersions],
    ) -> Result<Self, Failure> {
        let wanted = mappings(listening, programs, &is_dual);
        let own: Vec<SocketAddr> = listening.iter().map(|it| it.address).collect();
        let mut rpcbind = way.open()?;
        let present = rpcbind.mappings()?;
        let same =
            |a: &Mapping, b: &Mapping| (a.prog, a.vers, &a.netid) == (b.prog, b.vers, &b.netid);
        let held = present
            .iter()
            .filter(|old| wanted.iter().any(|new| same(old, new)));
        let held: Vec<&Mapping> = held.collect();
        if let Some(other) = held.iter().find(|old| is_served(&old.address, &own)) {
            return Err(Failure::Work(format!(
                "rpcbind knows another server of {}: stop it, or use --rpcbind no (clients then have to name \
                 the ports of this one)",
                Shown(other)
            )));
        }
        let mut registered = Self {
            way,
            mappings: Vec::new(),
        };
        for old in held {
            // rpcbind accepts a mapping that it has already, whoever its owner is.
            let is_right = wanted
                .iter()
                .any(|new| same(old, new) && old.address == new.address);
            if !rpcbind.unset(old)? && !is_right {
                return Err(Failure::Work(format!(
                    "rpcbind still knows {}, which is gone, and lets only its owner remove that: run `rpcinfo -d \
                     {} {}` as that user or as root, or use --rpcbind no",
                    Shown(old),
                    old.prog,
                    old.vers
                )));
            }
            tracing::info!(mapping = %Shown(old), "rpcbind knew a server that is gone");
        }
        for new in wanted {
            if !rpcbind.set(&new)? {
                return Err(Failure::Work(format!(
                    "rpcbind refuses to register {}: use --rpcbind no (clients then have to name the ports)",
                    Shown(&new)
                )));
            }
            registered.mappings.push(new);
        }
        Ok(registered)
    }

    /// Removes what is still registered of this server.
    fn take_back(&mut self) -> Result<(), Failure> {
        let mut rpcbind = self.way.open()?;
        let present = rpcbind.mappings()?;
        for mapping in self.mappings.drain(..) {
            // If rpcbind was restarted, another server may have been registered since.
            let is_same = |old: &Mapping| {
                (old.prog, old.vers, &old.netid, &old.address)
                    == (mapping.prog, mapping.vers, &mapping.netid, &mapping.address)
            };
            if present.iter().any(is_same) && !rpcbind.unset(&mapping)? {
                return Err(Failure::Work(format!(
                    "rpcbind does not let this user remove {}",
                    Shown(&mapping)
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.mappings.is_empty() {
            return;
        }
        let names = self.to_string();
        let said = match self.take_back() {
            Ok(()) => output::line(format_args!("unregistered {names} with rpcbind")),
            Err(failure) => {
                output::complain(format_args!(
                    "note: still registered with rpcbind: {failure}"
                ));
                Ok(())
            }
        };
        // The server ends, whether somebody reads that or not.
        drop(said);
    }
}

/// The network identifiers, once each.
impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.mappings.iter().map(|it| &it.netid).collect();
        names.dedup();
        let names = names.into_iter().map(|name| String::from_utf8_lossy(name));
        write!(f, "{}", names.collect::<Vec<_>>().join(" "))
    }
}

/// A mapping as text.
struct Shown<'a>(&'a Mapping);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mapping {
            prog,
            vers,
            netid,
            address,
            owner,
        } = self.0;
        match *prog {
            NFS_PROGRAM => write!(f, "NFS")?,
            MOUNT_PROGRAM => write!(f, "MOUNT")?,
            prog => write!(f, "program {prog}")?,
        }
        write!(f, " version {vers} over {}", String::from_utf8_lossy(netid))?;
        match socket_address(address) {
            Some(address) => write!(f, " at {address}")?,
            None => write!(f, " at {}", String::from_utf8_lossy(address))?,
        }
        match &owner[..] {
            [] => Ok(()),
            owner => write!(f, " (owner {})", String::from_utf8_lossy(owner)),
        }
    }
}

/// Returns the mappings of programs that are served on what a server listens on. There can be one for
/// each network identifier. `is_dual` tells whether sockets of IPv6 receive connections of IPv4, too.
fn mappings(
    listening: &[Listening],
    programs: &[ProgramVersions],
    is_dual: &dyn Fn() -> bool,
) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    for (proto, names) in [
        (Proto::Tcp, ["tcp", "tcp6"]),
        (Proto::Rdma, ["rdma", "rdma6"]),
    ] {
        let of_proto = listening.iter().filter(|it| it.proto == proto);
        let mut addresses: Vec<SocketAddr> = of_proto.map(|it| it.address).collect();
        let any6 = addresses
            .iter()
            .find(|it| it.is_ipv6() && it.ip().is_unspecified());
        if let Some(port) = any6.map(SocketAddr::port).filter(|_| is_dual()) {
            addresses.push((Ipv4Addr::UNSPECIFIED, port).into());
        }
        // Other hosts are told an address that they can reach.
        addresses.sort_by_key(|it| it.ip().is_loopback());
        for (netid, is_ipv6) in names.into_iter().zip([false, true]) {
            let Some(&address) = addresses.iter().find(|it| it.is_ipv6() == is_ipv6) else {
                continue;
            };
            for program in programs {
                mappings.extend((program.low..=program.high).map(|vers| Mapping {
                    prog: program.prog,
                    vers,
                    netid: netid.into(),
                    address: universal_address(address).into(),
                    ..Mapping::default()
                }));
            }
        }
    }
    mappings
}

/// Returns whether sockets of IPv6 receive connections of IPv4 as well, unless they are told otherwise.
fn is_dual() -> bool {
    let setting = fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    setting.is_ok_and(|setting| setting.trim() == "0")
}

/// Returns whether another server listens at a universal address. `own`: the addresses of this one.
///
/// RDMA on an adapter is not seen. A server that registers it registers TCP as well.
fn is_served(address: &[u8], own: &[SocketAddr]) -> bool {
    // What is no IP address is none of a server of this program.
    let Some(address) = socket_address(address) else {
        return true;
    };
    let covers = |own: &SocketAddr| {
        own.port() == address.port() && (own.ip() == address.ip() || own.ip().is_unspecified())
    };
    if own.iter().any(covers) {
        return false;
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None);
    let bound = socket.and_then(|socket| {
        // Connections that have ended do not count.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())
    });
    match bound {
        Ok(()) => false,
        // The machine had the address once.
        Err(error) => error.kind() != std::io::ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn at(proto: Proto, address: &str) -> Listening {
        Listening {
            proto,
            address: address.parse().unwrap(),
            device: None,
        }
    }

    fn shown(listening: &[Listening], dual: bool) -> Vec<String> {
        let programs = [ProgramVersions::only(NFS_PROGRAM, 3)];
        let mappings = mappings(listening, &programs, &|| dual);
        mappings.iter().map(|it| Shown(it).to_string()).collect()
    }

    #[test]
    fn each_network_identifier_has_an_address_that_others_reach() {
        let both = [
            at(Proto::Rdma, "127.0.0.1:20049"),
            at(Proto::Rdma, "10.0.0.1:20049"),
            at(Proto::Tcp, "10.0.0.1:2049"),
            at(Proto::Tcp, "10.0.0.2:2049"),
            at(Proto::Tcp, "[fd00::1]:2049"),
        ];
        let expected = [
            "NFS version 3 over tcp at 10.0.0.1:2049",
            "NFS version 3 over tcp6 at [fd00::1]:2049",
            "NFS version 3 over rdma at 10.0.0.1:20049",
        ];
        assert_eq!(shown(&both, true), expected);
    }

    #[test]
    fn a_socket_of_both_families_is_registered_for_both() {
        let any = [at(Proto::Tcp, "[::]:2049")];
        let ipv6 = "NFS version 3 over tcp6 at [::]:2049";
        let ipv4 = "NFS version 3 over tcp at 0.0.0.0:2049";
        assert_eq!(shown(&any, true), [ipv4, ipv6]);
        assert_eq!(shown(&any, false), [ipv6]);
    }

    #[test]
    fn every_version_of_every_program_is_registered() {
        let (prog, low, high) = (7, 1, 3);
        let programs = [ProgramVersions { prog, low, high }];
        let mappings = mappings(&[at(Proto::Tcp, "10.0.0.1:1")], &programs, &|| true);
        let versions: Vec<_> = mappings.iter().map(|it| (it.prog, it.vers)).collect();
        assert_eq!(versions, [(7, 1), (7, 2), (7, 3)]);
    }

    #[test]
    fn a_server_is_gone_once_nobody_else_listens_where_it_did() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let universal = universal_address(address);
        assert!(is_served(universal.as_bytes(), &[]));
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        assert!(
            !is_served(universal.as_bytes(), &[any]),
            "it is this one's own"
        );
        assert!(is_served(
            universal.as_bytes(),
            &["127.0.0.2:1".parse().unwrap()]
        ));
        drop(other);
        assert!(!is_served(universal.as_bytes(), &[]));
        // TEST-NET-1 (RFC 5737) is no machine's.
        assert!(!is_served(b"192.0.2.1.8.1", &[]));
        assert!(is_served(b"/run/other.sock", &[]));
    }
}
