//! Options of `gateway`.

use std::fmt;
use std::net::IpAddr;

use clap::Args;
use rpcrdma_setup::mount_options::{Proto, RDMA_PORT, TCP_PORT};
use rpcrdma_setup::units;

use super::serve::connections;
use super::{AcceptingArgs, TraceArgs};

/// Pass RPC between clients and a server, over TCP and RDMA, until interrupted.
///
/// Each client's connection gets a connection to the server of its own, and each message that arrives
/// on one of them is sent on the other, unchanged. Prints one `listening` line for each --listen when
/// it is ready. SIGINT, SIGTERM and SIGHUP end it gracefully (`--drain`).
#[derive(Debug, Args)]
#[command(after_help = "\
A stock client, over version 2, to a stock server, with a gateway on each host:

  rpcrdma gateway --listen tcp:127.0.0.1 --to rdma:SERVER      on the client's host
  rpcrdma gateway --listen rdma:0.0.0.0 --to tcp:127.0.0.1     on the server's host
  mount -t nfs -o vers=4.2 127.0.0.1:/export /mnt

The second one alone is for clients of NFS over RDMA (proto=rdma, version 1) and a server with TCP.
The server sees all clients at the gateway's address. See docs/gateway.md")]
pub(crate) struct GatewayArgs {
    /// Where clients connect (repeatable): tcp: or rdma:, an address or a host name, and a port if
    /// it is not 2049 (tcp) or 20049 (rdma); port 0 takes a free one
    #[arg(long, value_name = "tcp:ADDR[:PORT]|rdma:ADDR[:PORT]", required = true,
          value_parser = Endpoint::parse)]
    pub(crate) listen: Vec<Endpoint>,

    /// The server, in the same form
    #[arg(long, value_name = "tcp:SERVER[:PORT]|rdma:SERVER[:PORT]", value_parser = Endpoint::parse)]
    pub(crate) to: Endpoint,

    /// Options of connections to the server over RDMA, separated by commas: rpcrdma=1|2|2wg|auto,
    /// features=none|ddp|cont|ddp+cont, inline=SIZE|SEND:RECEIVE, device=iwarp|verbs|verbs:NAME,
    /// registration=auto|windows|per-call|persistent-unsafe and clientaddr=ADDR, as in
    /// rpcrdma-mount-options(7)
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,

    /// Room for the results of calls whose length does not follow from the call, such as those of
    /// programs that are not NFS, and the longest record that is taken over TCP. A longer reply is
    /// lost, and its call is answered with SYSTEM_ERR
    #[arg(long, value_name = "SIZE", default_value = "1088k", value_parser = max_reply)]
    pub(crate) max_reply: u32,

    /// Print for each kind of call, when it is first seen and at the end, which of its items were apart,
    /// how it was transferred to the server, and how long the reply could be
    #[arg(long)]
    pub(crate) explain: bool,

    /// Maximum number of connections of clients, each of which has one to the server
    ///
    /// At the limit, a new client replaces the one without calls in progress whose last call is the
    /// longest ago. If all have calls in progress, the new one is closed at once, with a warning in the
    /// log. Default: half of the descriptors (`ulimit -n`), but no more than half of `--memory-limit`
    /// allows at 64 KiB each
    #[arg(long, value_name = "N", value_parser = connections)]
    pub(crate) connections: Option<usize>,

    #[command(flatten)]
    pub(crate) accepting: AcceptingArgs,

    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

/// Where a gateway listens, or what it connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) proto: Proto,
    /// The address or name of a host.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write tcp:ADDR, tcp:ADDR:PORT, rdma:ADDR or rdma:ADDR:PORT".to_owned();
        let (proto, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (proto, default) = match proto {
            "tcp" => (Proto::Tcp, TCP_PORT),
            "rdma" => (Proto::Rdma, RDMA_PORT),
            _ => return Err(wrong()),
        };
        let number = |port: &str| port.parse().map_err(|_| format!("{port:?} is not a port"));
        let (host, port) = if rest.parse::<IpAddr>().is_ok() {
            (rest, default)
        } else if let Some((host, port)) = rest.strip_prefix('[').and_then(|it| it.split_once(']'))
        {
            match port.strip_prefix(':') {
                Some(port) => (host, number(port)?),
                None if port.is_empty() => (host, default),
                None => return Err(wrong()),
            }
        } else if let Some((host, port)) = rest.rsplit_once(':') {
            (host, number(port)?)
        } else {
            (rest, default)
        };
        match host.is_empty() {
            true => Err(wrong()),
            false => Ok(Self {
                proto,
                host: host.to_owned(),
                port,
            }),
        }
    }
}

impl Endpoint {
    /// Returns the same with another port, or with a word for it.
    pub(crate) fn with_port(&self, port: impl fmt::Display) -> String {
        let host = &self.host;
        let proto = match self.proto {
            Proto::Tcp => "tcp",
            Proto::Rdma => "rdma",
        };
        match host.contains(':') {
            true => format!("{proto}:[{host}]:{port}"),
            false => format!("{proto}:{host}:{port}"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_port(self.port))
    }
}

/// The bounds of `--max-reply`, bytes: the longest message of this project's transports, less its headers.
const LEAST_REPLY: u64 = 4 << 10;
const MOST_REPLY: u64 = 4 << 20;

fn max_reply(text: &str) -> Result<u32, String> {
    let size = units::size(text)?;
    let fits = (LEAST_REPLY..=MOST_REPLY).contains(&size);
    let size = u32::try_from(size).ok().filter(|_| fits);
    size.ok_or_else(|| "between 4k and 4M are wanted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_transport_a_host_and_a_port() {
        let shown = |text: &str| Endpoint::parse(text).unwrap().to_string();
        for (text, same) in [
            ("tcp:server", "tcp:server:2049"),
            ("rdma:10.0.0.1", "rdma:10.0.0.1:20049"),
            ("rdma:10.0.0.1:7", "rdma:10.0.0.1:7"),
            ("tcp:::1", "tcp:[::1]:2049"),
            ("tcp:[::1]", "tcp:[::1]:2049"),
            ("rdma:[fe80::1]:0", "rdma:[fe80::1]:0"),
        ] {
            assert_eq!(shown(text), same);
            assert_eq!(shown(same), same, "it is read as it is written");
        }
        for wrong in [
            "",
            "server",
            "udp:server",
            "tcp:",
            "tcp:a:b",
            "tcp:a:65536",
            "tcp:[::1]x",
            "tcp::1",
        ] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn replies_have_room_within_bounds() {
        assert_eq!(max_reply("1088k"), Ok(1088 << 10));
        assert!(max_reply("4095").is_err() && max_reply("4097k").is_err());
    }
}
