//! Options of commands that clients connect to: `serve` and `gateway`.

use clap::Args;
use rdma::middleware::{Delay, Rate};
use rpc_transport::limits::LEAST_MEMORY;
use rpc_transport::rdma::Versions;
use rpcrdma_host::CongestionControl;
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::Features;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceName, Policy};
use rpcrdma_setup::inline::InlineSizes;
use rpcrdma_setup::units;

use super::CaptureArgs;
use super::compare::Crc;
use super::tuning::{TuningArgs, features, versions};

/// Options of the connections that clients make, and of their memory.
#[derive(Debug, Args)]
pub(crate) struct AcceptingArgs {
    /// Device under RPC-over-RDMA: iwarp, verbs or verbs:NAME (see `rpcrdma devices`). Default: iwarp
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceName>,

    /// How a verbs device registers memory for clients: auto (the best that it supports), windows,
    /// per-call or persistent-unsafe (clients can access more than they are offered). Default: auto
    #[arg(long, value_name = "WAY")]
    pub(crate) registration: Option<Policy>,

    /// Versions of RPC-over-RDMA that clients may speak: some of 1, 2 (the drafts of 2016) and 2wg
    /// (the working group's draft -07), separated by commas. Default: all
    #[arg(long, value_name = "VERSIONS", value_parser = versions)]
    pub(crate) rpcrdma: Option<Versions>,

    /// Features for fewer round trips that this end uses in version 2: none, or `ddp` (bulk data
    /// placed by Sends) and `cont` (messages of several transmissions), joined by `+`, each alone
    /// or with `:send` or `:receive`. Receiving `ddp` takes 65 KiB for each receive buffer (see
    /// `serve --receive-memory`). Default: ddp+cont
    #[arg(long, value_name = "FEATURES", value_parser = features)]
    pub(crate) features: Option<Features>,

    /// Longest messages without chunks that this end sends and receives, in every version of
    /// RPC-over-RDMA: 1k to 256k, one size for both or two as SEND:RECEIVE. In each direction the
    /// shorter of the sender's and the receiver's size applies (RFC 8797), so clients need `-o inline=`
    /// as well; Linux's have 4096. Receive buffers have the size for receiving, in version 2 at least 4k,
    /// and at least 65 KiB with `ddp:receive`. Default: 4k; clients of version 2 may then also ask for
    /// receives of up to 32k, and receive buffers are as long as that
    #[arg(long, value_name = "SIZE|SEND:RECEIVE")]
    pub(crate) inline: Option<InlineSizes>,

    /// Memory for the calls, replies, fetched data and cached replies of all connections together
    ///
    /// Each connection has 64 KiB of its own, and beyond that a fair share: at its share, it waits
    /// for memory, and it is closed if it holds shared memory without making progress. By default a
    /// quarter of the machine's memory (or of its control group's), between 64M and 4G. Receive
    /// buffers (`serve --receive-memory`) are a part of it
    #[arg(long, value_name = "SIZE", value_parser = memory_limit)]
    pub(crate) memory_limit: Option<u64>,

    /// How long to wait for calls in progress when a signal ends the server or gateway: these are answered.
    /// Clients make all other calls again at the next one. A second signal ends it at once
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) drain: Delay,

    /// Whether to ask for CRC32c in iWARP frames of device iwarp (a client can have it in any case). Default: on
    #[arg(long, value_enum)]
    pub(crate) crc: Option<Crc>,

    /// Congestion control of TCP connections (with device iwarp, also of those under RDMA): cubic,
    /// reno, bbr, ... Default: the system's
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<CongestionControl>,

    /// Delay everything this side sends (a gateway: over RDMA), as a long link would. Default: 0
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Delay>,

    /// Limit what this side sends (a gateway: over RDMA) to this many bits per second; over RDMA that
    /// includes the RDMA Reads that fetch what clients write (see `rpcrdma put --help`)
    #[arg(long, value_name = "BITS")]
    pub(crate) rate: Option<Rate>,

    /// Spin for work instead of sleeping: lower latency, one processor kept busy
    #[arg(long)]
    pub(crate) busy_poll: bool,

    /// The cost model by which transfer modes of replies (a gateway: of calls as well) are chosen:
    /// NAME=VALUE,… or a file that `compare --save-costs` wrote. `explain` prints all names and values
    #[arg(long, value_name = "COSTS", value_parser = CostsArg::parse)]
    pub(crate) costs: Option<CostsArg>,

    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
}

impl AcceptingArgs {
    /// Returns the device under connections of clients.
    pub(crate) fn device(&self) -> DeviceName {
        self.device.clone().unwrap_or_default()
    }

    /// Returns the way in which that device registers memory.
    pub(crate) fn registration(&self) -> Policy {
        self.registration.unwrap_or_default()
    }

    /// Returns the delay of everything that this side sends.
    pub(crate) fn delay(&self) -> Delay {
        self.delay.unwrap_or_default()
    }

    /// Checks that `--crc` has an effect.
    ///
    /// # Errors
    /// The device is not iwarp.
    pub(crate) fn check_crc(&self) -> Result<(), Failure> {
        let device = self.device();
        match self.crc.is_some() && device != DeviceName::Iwarp {
            true => Err(Failure::Usage(format!(
                "--crc: only for device iwarp, and --device is {device}"
            ))),
            false => Ok(()),
        }
    }
}

/// Parses the memory limit and checks that it suffices for a server.
fn memory_limit(text: &str) -> Result<u64, String> {
    let size = units::size(text)?;
    let least = LEAST_MEMORY as u64;
    match size < least {
        true => Err(format!(
            "no call of the greatest length fits into that: at least {} are wanted",
            units::show_size(least)
        )),
        false => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::super::Cli;
    use super::*;

    #[test]
    fn a_limit_that_no_long_call_fits_into_is_refused() {
        assert_eq!(memory_limit("24M"), Ok(24 << 20));
        let wrong = memory_limit("24575k").unwrap_err();
        assert!(wrong.contains("at least 24 MiB"), "{wrong}");
    }

    #[test]
    fn serve_and_gateway_have_the_same_options_for_clients() {
        let command = Cli::command();
        let of = |name: &str| {
            let sub = command.find_subcommand(name).unwrap();
            let options = sub.get_arguments().map(|arg| arg.get_id().to_string());
            options.collect::<Vec<_>>()
        };
        let shared = AcceptingArgs::augment_args(Command::new("shared"));
        for name in ["serve", "gateway"] {
            let own = of(name);
            for arg in shared.get_arguments() {
                let id = arg.get_id().to_string();
                assert!(own.contains(&id), "{name} has no {id}");
            }
        }
        let crc = |words: &[&str]| {
            let parsed = Cli::try_parse_from([&["rpcrdma"], words].concat()).unwrap();
            match parsed.command {
                super::super::Command::Serve(args) => args.accepting.check_crc().is_ok(),
                super::super::Command::Gateway(args) => args.accepting.check_crc().is_ok(),
                other => panic!("{other:?}"),
            }
        };
        let gateway = ["gateway", "--listen", "rdma:0.0.0.0", "--to", "tcp:h"];
        for command in [&["serve"][..], &gateway] {
            assert!(crc(&[command, &["--crc", "off"]].concat()));
            assert!(crc(&[command, &["--device", "verbs"]].concat()));
            assert!(!crc(
                &[command, &["--crc", "off", "--device", "verbs"]].concat()
            ));
        }
    }
}
