//! Options of `conform`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use rdma::middleware::Delay;
use rpcrdma_conform::client::case::Operation;
use rpcrdma_setup::Failure;
use rpcrdma_setup::device::{DeviceChoice, DeviceName, Policy};

use super::CaptureArgs;
use super::files::MountArgs;

/// Judge a server or a client of any make: say which rules of RPC-over-RDMA it breaks.
#[derive(Debug, Args)]
#[command(after_help = "\
Each case has an address, a level (MUST, SHOULD or robustness), one sentence of what is sent, and
one of what must come. It has a connection of its own, over iWARP or --device. The server is tested
in version 1, and in draft -07 (rpcrdma2-07) and the version 2 of 2016 (rpcrdma2-01) if it speaks
these. The export must be writable: a folder is made in it, and removed at the end (with
--read-only, nothing is written). A case whose rule a simpler one found broken already is skipped.
The connection options are for the mount that makes the folder; of these, the cases take the
server's port alone.

An address is DOCUMENT/SECTION/NUMBER, as rfc8166/4.5.2/3. --only and --skip take an address, or its
first components: rfc8166, rfc8166/4, rfc8166/4.5, rfc8166/4.5.2. The documents of built-in cases:

  rpcrdma1                  all of version 1: rfc8166, rfc8267, rfc8797, rfc1813, rfc5531, rfc5040
  rpcrdma2-07               draft -07
  rpcrdma2-01               the version 2 of 2016
  rpcrdma2                  both of these versions 2
  send-placement-00         an extension of draft -07 (cases for clients alone)
  xcharext-02, rtrext-00    extensions of the version 2 of 2016 (cases for clients alone)

Cases can be written without programming, in files (--cases, docs/conform-cases.md), or made of a
capture (--from), and edited.

With --listen, it is a server that judges clients, in version 1 and in both versions 2: it grants
one credit, returns less than was asked for, sends errors and stray messages, closes connections,
and looks at all that the client sends. --run gives the commands that use the client. The client is
started once for each combination of version, operation and server behaviour; cases that share these
share one run. Cases of a version that the client does not speak are not applicable.

Exit status: 0 if the server or client passes, 1 if it deviates, 2 if it could not be tested. With
--known, 0 if it deviates just where the file says so.

  rpcrdma conform nfs://server/export                       all cases
  rpcrdma conform --list --only rfc8166/4.5                 what those of a section send and expect
  rpcrdma conform --list nfs://server/export                the cases for servers alone
  rpcrdma conform --only rpcrdma2-07 --json report.json nfs://server/export
  rpcrdma conform --known deviations --junit report.xml nfs://localhost/export
  rpcrdma conform --device verbs:rxe0 nfs://server/export   over RoCE
  rpcrdma conform --cases mine.case --xdr mine.x nfs://server/export
  rpcrdma conform --from traffic.pcap >traffic.case
  rpcrdma conform --listen 127.0.0.1:0 --run own            this program's client
  rpcrdma conform --listen 192.0.2.1:20049 --run 'read=get-it {host} {port} /conform/file'")]
pub(crate) struct ConformArgs {
    /// Export of the server under test, or a folder in it, as nfs://SERVER[:PORT]/PATH
    #[arg(value_name = "URL", required_unless_present_any = ["list", "listen", "from"])]
    pub(crate) url: Option<String>,

    /// Judge clients that connect to this address (docs/conform-clients.md). Port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["url", "hostile", "options", "read_only"])]
    pub(crate) listen: Option<SocketAddr>,

    /// Command line for an operation of the client under test, run by sh: ping, read, write or list. It can be
    /// given several times; without an operation, the command is for all. `own` stands for this program's own
    /// client
    ///
    /// In the command, {address} stands for ADDR:PORT, {host} and {port} for its parts, {mountport} for the port
    /// of MOUNT over TCP, {operation} for the operation, {version} for the version to speak (1, 2wg or 2), and
    /// {file} for the local file that `write` copies. `read` may write the file to standard output, and `list`
    /// the names: both are compared, unless there is no output. Without --run, what to do is printed, and the
    /// client is started by hand.
    #[arg(long, value_name = "[OPERATION=]COMMAND", requires = "listen")]
    pub(crate) run: Vec<Run>,

    /// List the cases, and connect to nothing: with a URL, those for servers alone, with --listen, those for
    /// clients alone. --only, --skip, --hostile and --cases select as in a test
    #[arg(long, conflicts_with_all = ["strict", "known", "junit", "json", "capture"])]
    pub(crate) list: bool,

    /// Cases from this file, or from all files NAME.case of this folder, instead of the built-in ones
    /// (docs/conform-cases.md). It can be given several times
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "listen")]
    pub(crate) cases: Vec<PathBuf>,

    /// With --cases: the built-in cases as well
    #[arg(long, requires = "cases")]
    pub(crate) built_in: bool,

    /// Header types, fields and constants for --cases or --from, in the XDR language, beside those of the
    /// versions. It can be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub(crate) xdr: Vec<PathBuf>,

    /// Print cases made of the exchanges in this capture (pcap or pcapng, of any implementation), and connect
    /// to nothing
    #[arg(
        long,
        value_name = "CAPTURE",
        conflicts_with_all = [
            "url", "listen", "list", "only", "skip", "cases", "strict", "known", "hostile", "read_only", "loopback",
            "junit", "json", "capture"
        ]
    )]
    pub(crate) from: Option<PathBuf>,

    /// Only cases whose address begins with these components (below): rfc8166, rfc8166/4.5, rfc8166/4.5.2/3.
    /// The option can be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) only: Vec<String>,

    /// Leave out cases whose address begins with this, and those that need one of them. It can be given several
    /// times
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) skip: Vec<String>,

    /// Count deviations from a SHOULD as well
    #[arg(long)]
    pub(crate) strict: bool,

    /// File with the addresses of known deviations, one a line; # begins a comment. The exit status is 0 if the
    /// deviations are just these, and 1 if there is another one, or a known one passes
    #[arg(long, value_name = "FILE")]
    pub(crate) known: Option<PathBuf>,

    /// Longest wait for each message that must come
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) timeout: Delay,

    /// Also perform cases that can exhaust a server
    #[arg(long)]
    pub(crate) hostile: bool,

    /// Write nothing: perform only cases that need no file, or only read the folder of the URL and a file in it.
    /// Cases of --cases that have handles of their own can write nevertheless
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Refuse all addresses but those of the loopback interface, before anything is sent
    #[arg(long)]
    pub(crate) loopback: bool,

    /// Write the results to this file in the XML of JUnit
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Write the results to this file as JSON, with the first octets of the messages of failed cases
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Judge over this device: iwarp, verbs or verbs:NAME (see `rpcrdma devices`), as RoCE and InfiniBand
    /// need it. Cases that a device cannot perform are not applicable (docs/conform-devices.md). Default:
    /// iWARP without a device, which sees all octets
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceName>,

    /// How a verbs device registers memory for its peer: auto (the best that it supports), windows,
    /// per-call or persistent-unsafe (peers can access more than they are offered). Default: auto
    #[arg(long, value_name = "WAY", requires = "device")]
    pub(crate) registration: Option<Policy>,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

impl ConformArgs {
    /// Returns the options of the mount that makes the folder of the cases, which is on the device of the cases.
    pub(crate) fn mount(&self) -> MountArgs {
        let mut mount = self.mount.clone();
        let device = self.device.iter().map(|it| format!("device={it}"));
        let registration = self
            .registration
            .iter()
            .map(|it| format!("registration={it}"));
        mount.options.extend(device.chain(registration));
        mount
    }

    /// Returns the device for the judgement of a client that connects to this address, if there is a device.
    ///
    /// # Errors
    /// The device has no such setting.
    pub(crate) fn listening(&self, address: IpAddr) -> Result<Option<DeviceChoice>, Failure> {
        let Some(name) = &self.device else {
            return Ok(None);
        };
        let choice = DeviceChoice {
            name: name.clone(),
            registration: self.registration.unwrap_or_default(),
            address: (!address.is_unspecified()).then_some(address),
            ..DeviceChoice::default()
        };
        choice.check()?;
        Ok(Some(choice))
    }
}

/// A command line of the client under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The operation, or all.
    pub(crate) operation: Option<Operation>,
    /// The command, or `own`.
    pub(crate) command: String,
}

impl FromStr for Run {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Operation::ALL.into_iter().find_map(|operation| {
            let rest = text.strip_prefix(operation.name())?.strip_prefix('=')?;
            Some((Some(operation), rest))
        });
        let (operation, command) = named.unwrap_or((None, text));
        if command.trim().is_empty() {
            return Err("there is no command".into());
        }
        Ok(Self {
            operation,
            command: command.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_for_one_operation_or_for_all() {
        let run = |operation, command: &str| {
            let command = command.to_owned();
            Ok(Run { operation, command })
        };
        assert_eq!(
            "read=cat a=b".parse(),
            run(Some(Operation::Read), "cat a=b")
        );
        assert_eq!("a=b client".parse(), run(None, "a=b client"));
        assert_eq!("own".parse(), run(None, "own"));
        assert!("list= ".parse::<Run>().is_err());
    }
}
