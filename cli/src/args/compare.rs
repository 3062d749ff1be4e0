//! Options of `compare` and of the processes that it starts.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{EnumValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, ValueEnum};
use nfs_binding::server::Network;
use rdma::middleware::{Delay, ParseLinkError, Rate};
use rpcrdma_compare::{GatewayComparison, OpName, Options, RunOptions, Variant};
use rpcrdma_host::CongestionControl;
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::{Catalog, Tuning};
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::{DeviceName, Policy};
use rpcrdma_setup::units;

use super::tuning::{TuningArgs, ViaParser};
use super::{CaptureArgs, TraceArgs};

/// Checksums in iWARP frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Crc {
    /// CRC32c over every frame
    On,
    /// No checksum besides TCP's
    Off,
}

impl Crc {
    /// Returns whether frames carry a CRC.
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Hidden subcommand that children run.
pub(crate) const CHILD: &str = "internal-child";

/// The long help: what is measured, and the meaning of the columns.
const COLUMNS: &str = "\
Starts a server process for each transport, with a file system in memory, and a process that
echoes over plain TCP (the TCP baseline). Everything is measured in this run, in rounds in
which that and the transports take turns, so that other work on the machine affects all of
them. The client runs on one processor and the servers on another, as on two machines: of another
core, if there are several.

  p50, p99, p99.9
               latency, one call at a time
  x v1-inv     p50 divided by that of version 1 with remote invalidation, as Linux uses it, or
               of v1, or else of the first of --via; computed like x baseline. In brackets:
               the confidence interval of 95 % within this run, from the medians of rounds. ?: the
               interval includes 1, so that either can be faster. ~: too few rounds for an interval
  x T slept    in the short table: the same ratio over a link with a round-trip time of T; its
               interval is from turns of a few calls, not from rounds. Client and server hold each
               message back for half of T, in every transport alike. TCP below does not notice:
               there is no window, slow start or loss of a long link
  recv         in the short table: length of the receives at both ends, in KiB (K)
  DISTURBED    below the tables: operations that other work disturbed. The turns of the TCP
               baseline beside them varied by over 10 % (interquartile range over median)
  baseline     the TCP baseline. In the table of latency: a ping-pong with the same number of bytes
               each way, in µs, without the added delay (unless --set-delay adds it) or rate: with
               --delay or --rate, there is no comparison with it. In the table of throughput: a
               stream in one direction, in MiB/s, with messages of the same size and without added
               delay or rate. It is no upper bound: work that keeps both processors busy can be
               faster
  x baseline   p50 divided by that, measured in turns of some milliseconds: the median of the turns'
               ratios, so it can differ from the quotient of the two columns; and throughput divided
               by that of the stream, the median of the rounds' ratios
  ops/s MiB/s  with several calls in flight
  CPU          CPU time of client and server together, per operation, that of the software
               device in them included
  trips        round trips, from time alone: the difference of p10 at a long delay and at a short
               one, over twice the difference of these delays. - if the standard error exceeds
               0.25, and for rows of NULL that spin (busy)
  Sends, Reads, Writes, reg, inv
               work of the devices of both sides per operation. Reads and Writes are those of RDMA.
               reg and inv: memory that the client registers and invalidates for the server's RDMA
               operations. Memory for Sends, and for the target of RDMA Reads, is registered before
  wake, intr c, intr s
               wake-ups of the client and the server from sleep; over RDMA only those with a
               completion (the software device, in the same thread, has more). An RNIC can raise an
               interrupt for each Send of a message, unless it moderates interrupts
  sys c, sys s system calls of client and server by which bytes were sent, received or waited for:
               not those of file systems, of threads that hand work to one another, and of the
               libraries of verbs devices
  copied B     bytes copied in user space, both sides
  GRANTs       Sends that only granted credits (wg); in a simulation the mean of 128 calls
  by GRANTs    wake-ups at which nothing but those had arrived; counted in simulations only
  credits      with --in-flight, --clients or --arrivals: the most that a connection had in use
  resent       in a simulation with --set loss: packets that were lost and sent again
  receives     with these: memory that receives of the server took at most, posted or with messages
               that were in use, for all its connections
  wire B       bytes on the wire, both directions, including the device's own framing; none
               for verbs devices, which do not count them

If the TCP baseline varies from round to round, the machine did other work as well. Lines below
the tables that begin with DISTURBED then say by how much.

With --capture, the client's connections over RDMA are captured, which shows both directions. TCP
is not. The figures then contain the cost of capturing; --snap 256 keeps it small.";

/// The options that several operations in flight, several clients and arrivals leave no sense.
const NOT_LOADED: [&str; 9] = [
    "run",
    "receives",
    "reference",
    "against",
    "explain",
    "check_explain",
    "save_costs",
    "html",
    "figures",
];

/// Describes the costs of the simulation when no option changes them.
fn simulated_costs() -> String {
    format!(
        "\
With --device sim, --costs NAME=VALUE,… sets the costs of the simulation, which are by default
(times in ns, us, ms or s; rates in bits per second with k, m or g, or unlimited):

{}",
        rpcrdma_compare::simulated_costs_help().trim_end()
    )
}

/// Measure what NFS operations cost over TCP, and by versions 1 and 2 of RPC-over-RDMA.
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{COLUMNS}\n\n{}", simulated_costs()))]
pub(crate) struct CompareArgs {
    /// Device under RPC-over-RDMA: iwarp, verbs or verbs:NAME (see `rpcrdma devices`); or sim, for
    /// exact counts of the events that each reply has to wait for, in a simulation
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Iwarp,
          value_parser = device_or_sim)]
    pub(crate) device: DeviceName,

    /// How a verbs device registers memory for its peer: auto (the best that it supports), windows,
    /// per-call or persistent-unsafe
    #[arg(long, value_name = "WAY", default_value_t = Policy(None))]
    pub(crate) registration: Policy,

    /// Address of this machine that all servers listen on, including the TCP baseline. A verbs
    /// device needs its own address: RDMA does not work over 127.0.0.1
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) address: IpAddr,

    /// Have all servers on another host, on which `rpcrdma compare-server` runs, instead of this machine: a
    /// host name or an address, with `:PORT` if that is not 20047. An address of IPv6 with a port is in
    /// brackets. Nothing is pinned to processors. Both hosts need the same version of this program and the
    /// same kind of --device. See docs/cards.md
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["address", "run", "set_delay"])]
    pub(crate) server: Option<String>,

    /// Measure all transports and variants, all operations and six sizes, and print all figures:
    /// some four minutes. Without this and without a selection (--via, --ops, --sizes), the answer
    /// takes somewhat more than a minute: NULL, and READ and WRITE of 8 KiB and 1 MiB, over TCP, by
    /// version 1 as Linux uses it and with longer receives, and by version 2 with continuation alone
    /// and with all features
    #[arg(long)]
    pub(crate) full: bool,

    /// Transports and protocol variants to compare, separated by commas; all, if this is not given
    /// but --full, --ops or --sizes is
    #[arg(long, value_parser = ViaParser(Catalog::standard()), value_delimiter = ',', value_name = "VARIANT,…")]
    pub(crate) via: Vec<Variant>,

    /// Operations to measure, separated by commas; all, if this is not given but --full, --via or
    /// --sizes is
    #[arg(long, value_parser = OpParser(Vec::new()), value_delimiter = ',', value_name = "OP,…")]
    pub(crate) ops: Vec<OpName>,

    /// Sizes of READ and WRITE (and of workloads of this program that have sizes) up to 16M,
    /// separated by commas; more than 1M is moved by several calls in flight. If this is not given
    /// but --full, --via or --ops is: 1k,4k,8k,64k,256k,1M
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = units::size)]
    pub(crate) sizes: Vec<u64>,

    /// Run a command in a mount over each transport, in turn, instead of measuring operations: what an
    /// application gains. Needs /dev/fuse
    ///
    /// COMMAND is for the shell, and its current directory is the mount: empty, in memory, and new for
    /// each run. Or it is the name of a preset: tree (many small files are copied and removed), random
    /// (random reads and writes with fsync), log (transactions that are synced, beside a table), which
    /// need nothing; fio, git, sqlite3, which need the program of that name. Without --via it runs over
    /// tcp, v1-inv, v1-long, v2-ddp-cont and wg-ddp. See docs/compare-run.md
    #[arg(long, value_name = "COMMAND",
          conflicts_with_all = ["full", "ops", "sizes", "count", "time", "busy_poll", "no_pin", "explain",
                                "check_explain", "save_costs", "reference", "against", "figures", "capture"])]
    pub(crate) run: Option<String>,

    /// With --run: a command that makes what the other one needs, through another mount before each
    /// run, and is not timed
    #[arg(long, value_name = "COMMAND", requires = "run")]
    pub(crate) prepare: Option<String>,

    /// With --run: how many times the command runs over each transport, after one untimed run
    #[arg(long, value_name = "N", requires = "run", default_value_t = RunOptions::RUNS,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,

    /// With --run: mount options, as of `mount`
    #[arg(
        short = 'o',
        long = "options",
        value_name = "OPTIONS",
        requires = "run"
    )]
    pub(crate) mount_options: Vec<String>,

    /// Measure what two gateways between client and server cost (`rpcrdma gateway`), and what a version of
    /// RPC-over-RDMA between them brings
    ///
    /// Client and server speak TCP; --via says what passes between the gateways. Each hop is measured alone
    /// as well, and what all processes use for a call is set against the sum of the hops'. With --delay (1ms
    /// by default) between the gateways, latency is set against TCP from client to server over the same
    /// delay, and round trips are measured by the clock and counted. Without --via, --ops and --sizes: v1-inv,
    /// v2, v2-ddp-cont, wg and wg-ddp; NULL, GETATTR, and READ and WRITE of 8 KiB and 1 MiB: somewhat more
    /// than a minute. See docs/compare-gateway.md
    #[arg(long)]
    pub(crate) gateway: bool,

    /// Keep so many operations in flight on each connection, and print for each number latency and what
    /// both sides do for an operation: messages, interrupts, credits, registrations and so on. NULL, and
    /// READ and WRITE of 8 KiB and 1 MiB are measured unless --ops or --sizes says otherwise. Figures
    /// without a meaning here, such as round trips, are left out
    #[arg(long, value_delimiter = ',', value_name = "N,…", conflicts_with_all = NOT_LOADED)]
    pub(crate) in_flight: Vec<u32>,

    /// Measure like --in-flight with so many clients, each with a connection (at most 127 with --device
    /// sim), in turn if there are several numbers
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", conflicts_with_all = NOT_LOADED)]
    pub(crate) clients: Vec<u32>,

    /// Measure like --in-flight with operations that begin at random times, so many in a second (of all
    /// clients together), whether others have ended or not. Their latency counts from these times
    #[arg(long, value_delimiter = ',', value_name = "RATE,…", conflicts_with_all = NOT_LOADED)]
    pub(crate) arrivals: Vec<f64>,

    /// Number of calls per latency figure, instead of as many as the time allows. It is rounded up
    /// to a multiple of 9, the number of rounds. Round trips take 3 to 21 calls over each link
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: Option<u32>,

    /// Time to spend on one figure [default: 500ms; 200ms with --full, --gateway or a selection]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Delay>,

    /// Delay of the link, each way. Without this, round trips are measured with 1ms and everything
    /// else without delay. With --gateway: between the gateways, where round trips are measured
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub(crate) delay: Delay,

    /// Let a shell command add the delay to the network, instead of this program. COMMAND gets as
    /// $1 the time to add each way (`0ms` for none, and at the end). For instance 'tc qdisc replace
    /// dev lo root netem delay $1': on one machine, traffic goes over the loopback interface, where
    /// connections over TCP hold less than 1 MiB that is sent and not acknowledged. It is an error
    /// if operations are not delayed
    #[arg(long, value_name = "COMMAND")]
    pub(crate) set_delay: Option<String>,

    /// Rate of the link, bits per second, each way
    ///
    /// Each side limits what it posts itself: Sends, RDMA Writes, and the answers to its own RDMA
    /// Reads. Both sides have the same limit here, so all data passes one. (With the --rate of
    /// `ping`, `get`, `put` and the like, only one side has it: see `rpcrdma serve`.)
    #[arg(long, value_name = "BITS")]
    pub(crate) rate: Option<Rate>,

    /// Size of the receive buffers of both sides in version 2 of RPC-over-RDMA, bytes, and so the
    /// longest message without chunks: 1k to 256k in steps of 1k. Receives of version 2 have at
    /// least 4k, so less limits only what is sent without chunks. In version 1, v1 and v1-inv have
    /// the 4096 of Linux, and v1-long has receives as long as those of version 2 with placement: 65k,
    /// or more with a larger SIZE
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "4k")]
    pub(crate) inline: u64,

    /// Give receives of both sides each of these lengths in turn, in all variants, and print round
    /// trips and time over the memory that they take: what each transfer mode brings beside longer
    /// receives
    ///
    /// LENGTH,… or FIRST..LAST, which stands for the powers of two between: 1k..256k. Receives of
    /// version 2 have at least 4k. Without --ops and --sizes, READ and WRITE of 8 KiB, 64 KiB and 1 MiB
    /// are measured; without --via, v1-inv and all variants of version 2
    #[arg(long, value_name = "LENGTHS", value_parser = Lengths::parse,
          conflicts_with_all = ["run", "full", "reference", "against", "explain", "check_explain",
                                "save_costs"])]
    pub(crate) receives: Option<Lengths>,

    /// Checksums in iWARP frames
    #[arg(long, value_enum, default_value_t = Crc::Off)]
    pub(crate) crc: Crc,

    /// Congestion control of all TCP connections: those of the iwarp device, of NFS over TCP, and
    /// of the TCP baseline. Default: cubic, or reno where only privileged processes may choose
    /// cubic; the system's default is never used
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<CongestionControl>,

    /// Spin on both sides instead of sleeping (without this, only NULL is measured both ways)
    #[arg(long)]
    pub(crate) busy_poll: bool,

    /// Let the scheduler choose the processors of client and server, instead of giving each one of
    /// its own
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// Do not measure round trips
    #[arg(long)]
    pub(crate) no_trips: bool,

    /// Also print the transfer plan of each operation: which bytes go inline, and which by which
    /// kind of chunk
    #[arg(long)]
    pub(crate) explain: bool,

    /// Fail unless, for nine operations of ten, the variant that `explain` predicts to be the
    /// fastest is the fastest one measured, or as fast within the measured noise
    #[arg(long)]
    pub(crate) check_explain: bool,

    /// The cost model by which transfer modes are chosen and predicted: NAME=VALUE,… or a file that
    /// --save-costs wrote. Without this, the default costs decide; costs that are not given are
    /// measured first, and predictions use them. With --device sim: the costs of the simulation,
    /// which are listed below
    #[arg(long, value_name = "COSTS", value_parser = costs)]
    pub(crate) costs: Option<CostsArg>,

    /// Write the measured cost model to FILE, for --costs of other commands. Not with --delay or
    /// --rate: the file has this machine's own costs
    #[arg(long, value_name = "FILE")]
    pub(crate) save_costs: Option<PathBuf>,

    /// Write a report to FILE: a self-contained page with tables and figures
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write the figures of the report to DIR, each as an SVG file with the conditions of the
    /// measurement below it, and its data as tab-separated values beside it
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,

    /// Print the changes against an earlier report, which --json wrote
    #[arg(long, value_name = "REPORT.json")]
    pub(crate) reference: Option<PathBuf>,

    /// Print the changes against an earlier report, like --reference, and fail if a row is slower than
    /// in that report by more than chance and 5 %, or has more messages, RDMA operations, registrations,
    /// interrupts or copied bytes, or round trips (by the clock: by more than a half and three standard
    /// errors), or if no row could be tested. Times that did not change fail in one of twenty runs at most
    #[arg(long, value_name = "REPORT.json", conflicts_with = "reference")]
    pub(crate) against: Option<PathBuf>,

    /// Write the rows as JSON to FILE; `-` is standard output, and then no tables are printed. The
    /// keys are explained in docs/compare-rows.md
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

impl CompareArgs {
    /// Converts the arguments to the options of a comparison.
    pub(crate) fn options(&self) -> Options {
        let selects = !(self.via.is_empty() && self.ops.is_empty() && self.sizes.is_empty());
        let receives = self.receives.as_ref().map_or(&[][..], |lengths| &lengths.0);
        let mut base = match self.full || selects || !receives.is_empty() {
            _ if self.gateway => GatewayComparison::options(),
            true => Options::full(),
            false => Options::default(),
        };
        if !receives.is_empty() {
            base.via = Variant::EQUAL.to_vec();
            base.ops = vec![OpName::Write, OpName::Read];
            base.sizes = vec![8 << 10, 64 << 10, 1 << 20];
        }
        let files = self.json.is_some() || self.html.is_some() || self.figures.is_some();
        Options {
            full: base.full || self.full,
            predict: base.predict || self.check_explain || files,
            device: self.device.clone(),
            registration: self.registration,
            address: self.address,
            server: None,
            via: self.variants(base.via),
            ops: given(&self.ops, base.ops),
            sizes: given(&self.sizes, base.sizes),
            in_flight: self.in_flight.clone(),
            clients: self.clients.clone(),
            arrivals: self.arrivals.clone(),
            count: self.count,
            time: self.time.map_or(base.time, |time| time.0),
            delay: self.delay.0,
            set_delay: self.set_delay.clone(),
            rate: self.rate.map(|rate| rate.0),
            inline: self.inline,
            receives: receives.to_vec(),
            tuning: Tuning::default(),
            crc: self.crc.is_on(),
            congestion: self.congestion.clone(),
            busy_poll: self.busy_poll,
            pin: !self.no_pin,
            round_trips: !self.no_trips,
            exact: self.check_explain,
            costs: self.costs.clone(),
            save_costs: self.save_costs.is_some(),
            capture: None,
            trace: None,
            commit: option_env!("RPCRDMA_COMMIT").map(str::to_owned),
            child: vec![CHILD.to_owned()],
        }
    }
}

impl CompareArgs {
    /// Returns the variants that the user gave, or else the default ones, with each policy of granting if
    /// there are several.
    fn variants(&self, mut default: Vec<Variant>) -> Vec<Variant> {
        if self.device == DeviceName::Sim && self.tuning.credits.len() > 1 {
            default.retain(|via| *via != Variant::Tcp);
        }
        self.tuning.variants(given(&self.via, default))
    }

    /// Rejects options of output that `--gateway` does not have. [`GatewayComparison::new`] rejects others.
    fn check_beside_gateway(&self) -> Result<(), Failure> {
        let files = "leave it out; --json FILE writes the rows";
        let of_pair = "`rpcrdma gateway` has it";
        let without = "leave it out, or leave --gateway out";
        let given = [
            ("--run", self.run.is_some(), without),
            ("--explain", self.explain, of_pair),
            ("--capture", self.capture.capture.is_some(), of_pair),
            ("--trace", self.trace.trace.is_some(), of_pair),
            ("--html", self.html.is_some(), files),
            ("--figures", self.figures.is_some(), files),
            ("--reference", self.reference.is_some(), without),
            ("--against", self.against.is_some(), without),
        ];
        match given.into_iter().find(|(_, given, _)| *given) {
            Some((name, _, advice)) if self.gateway => Err(Failure::Usage(format!(
                "{name}: not with --gateway: {advice}"
            ))),
            _ => Ok(()),
        }
    }

    /// Rejects options that have no effect: those of `--run` without it (clap does not, where another argument
    /// conflicts with `--run`), what is only in tables where none are printed, and sizes of operations that have
    /// none.
    ///
    /// # Errors
    /// The option, with what it is for.
    pub(crate) fn check(&self, catalog: &Catalog) -> Result<(), Failure> {
        let given = [
            ("--options", !self.mount_options.is_empty()),
            ("--prepare", self.prepare.is_some()),
            ("--runs", self.runs != RunOptions::RUNS),
        ];
        if let Some((name, _)) = given.into_iter().find(|(_, given)| *given)
            && self.run.is_none()
        {
            return Err(Failure::Usage(format!("{name}: only with --run")));
        }
        self.check_beside_gateway()?;
        let in_tables = [
            ("--explain", self.explain),
            (
                "--reference",
                self.reference.is_some() && self.html.is_none(),
            ),
        ];
        if let Some((name, _)) = in_tables.into_iter().find(|(_, given)| *given)
            && self.json.as_deref() == Some(Path::new("-"))
        {
            let text = format!("{name}: not with --json -, which prints no tables");
            return Err(Failure::Usage(text));
        }
        let outputs = [
            ("--json", &self.json),
            ("--html", &self.html),
            ("--save-costs", &self.save_costs),
            ("--capture", &self.capture.capture),
        ];
        for (at, (name, path)) in outputs.iter().enumerate() {
            let same = outputs[..at]
                .iter()
                .find(|(_, other)| path.is_some() && other == path);
            if let Some((other, _)) = same {
                let text =
                    format!("{other} and {name} name one file, which has room for one of them");
                return Err(Failure::Usage(text));
            }
        }
        let only = |variants: &[Variant]| {
            !self.via.is_empty() && self.via.iter().all(|via| variants.contains(via))
        };
        if self.inline != Options::default().inline
            && only(&[Variant::Tcp, Variant::V1, Variant::V1Inv])
        {
            let text =
                "--inline: of version 2 and v1-long, and --via has none of these; see --receives";
            return Err(Failure::usage(text));
        }
        if self.capture.capture.is_some() && only(&[Variant::Tcp]) {
            let text = "--capture: only for NFS over RDMA, and --via has TCP alone (tcpdump(8) shows that)";
            return Err(Failure::usage(text));
        }
        let tuning = &self.tuning;
        let tuned = match (tuning.credits.is_empty(), tuning.settings.is_empty()) {
            (false, _) => Some("--credits"),
            (true, false) => Some("--set"),
            (true, true) => None,
        };
        if let Some(name) = tuned
            && only(&[Variant::Tcp])
        {
            let text = format!("{name}: only for NFS over RDMA, and --via has TCP alone");
            return Err(Failure::Usage(text));
        }
        let mut named = self.via.iter().filter(|via| via.names_grants());
        if tuning.credits.len() > 1
            && let Some(via) = named.next()
        {
            let name = via.name();
            let text = format!("--credits: not with {name} in --via, which names its own");
            return Err(Failure::Usage(text));
        }
        if self.crc.is_on() && only(&[Variant::Tcp]) {
            let text = "--crc: only for NFS over RDMA, and --via has TCP alone";
            return Err(Failure::usage(text));
        }
        if self.crc.is_on() && matches!(self.device, DeviceName::Verbs(_)) {
            let text = format!(
                "--crc: only for device iwarp, and --device is {}",
                self.device
            );
            return Err(Failure::Usage(text));
        }
        let has_size = |op: &OpName| match op {
            OpName::Read | OpName::Write => true,
            OpName::Added(name) => catalog.workload(name).is_ok_and(|it| it.has_sizes()),
            _ => false,
        };
        if !self.sizes.is_empty() && !self.ops.is_empty() && !self.ops.iter().any(has_size) {
            let text = "--sizes: only read and write have a size, and --ops has neither";
            return Err(Failure::usage(text));
        }
        Ok(())
    }

    /// Converts the arguments to the options of `--run`, if that is given.
    pub(crate) fn run_options(&self) -> Option<(Options, RunOptions)> {
        let options = Options {
            via: self.variants(RunOptions::via()),
            ..self.options()
        };
        let run = RunOptions {
            command: self.run.clone()?,
            prepare: self.prepare.clone(),
            runs: self.runs,
            mount_options: self.mount_options.join(","),
        };
        Some((options, run))
    }
}

/// Returns the list that the user gave, or else the default.
fn given<T: Clone>(list: &[T], default: Vec<T>) -> Vec<T> {
    match list.is_empty() {
        true => default,
        false => list.to_vec(),
    }
}

/// Parses an operation of `--ops`, which may be a workload that a program adds: one of these names.
#[derive(Clone)]
pub(crate) struct OpParser(pub(crate) Vec<&'static str>);

impl TypedValueParser for OpParser {
    type Value = OpName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OpName, clap::Error> {
        if let Some(name) = self.0.iter().find(|name| OsStr::new(name) == value) {
            return Ok(OpName::Added(name));
        }
        // For an error that lists them all.
        let all: Vec<_> = self.possible_values().into_iter().flatten().collect();
        PossibleValuesParser::new(all).parse_ref(command, arg, value)?;
        EnumValueParser::<OpName>::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let standard = OpName::value_variants().iter();
        let standard = standard.filter_map(ValueEnum::to_possible_value);
        let own = self.0.iter();
        let own = own.map(|name| PossibleValue::new(*name).help("A workload of this program"));
        Some(Box::new(standard.chain(own)))
    }
}

/// Takes the costs unchecked: it depends on the device which there are.
fn costs(text: &str) -> Result<CostsArg, Infallible> {
    Ok(CostsArg::unchecked(text))
}

/// The lengths of receives for a sweep, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lengths(Vec<u32>);

impl Lengths {
    /// Parses a list, in which `FIRST..LAST` stands for the powers of two from one to the other.
    fn parse(text: &str) -> Result<Self, String> {
        let length = |text: &str| {
            let size = units::size(text)?;
            u32::try_from(size).map_err(|_| format!("`{text}`: receives have at most 256k"))
        };
        let mut lengths = Vec::new();
        for part in text.split(',') {
            let Some((first, last)) = part.split_once("..") else {
                lengths.push(length(part)?);
                continue;
            };
            let (first, last) = (length(first)?, length(last)?);
            if !first.is_power_of_two() || first > last {
                return Err(format!(
                    "`{part}`: write a power of two, and after `..` a length that is not smaller"
                ));
            }
            let powers = std::iter::successors(Some(first), |length| length.checked_mul(2));
            lengths.extend(powers.take_while(|length| *length <= last));
        }
        Ok(Self(lengths))
    }
}

fn device_or_sim(text: &str) -> Result<DeviceName, String> {
    match text {
        "sim" => Ok(DeviceName::Sim),
        _ => text
            .parse()
            .map_err(|error: String| format!("{error}, or sim")),
    }
}

fn time(text: &str) -> Result<Delay, String> {
    match text
        .parse()
        .map_err(|error: ParseLinkError| error.to_string())?
    {
        Delay(Duration::ZERO) => {
            Err("nothing can be measured in no time: write one like 200ms".to_owned())
        }
        time => Ok(time),
    }
}

/// Serve `compare --server` of another host, until interrupted.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints a line when it listens. `rpcrdma compare --server ADDR` on the other host then measures. For
each transport and variant a server is started here, which listens at ADDR on a port that the system
chooses, with files in memory, and ends with the measurement. There is no authentication: whoever is
admitted can use 1 GiB of memory for each server. Use it on a network that you trust, and end it
(Ctrl-C) when you have the results. A firewall has to let through TCP (and RDMA) from the other host
to any port.")]
pub(crate) struct CompareServerArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: IpAddr,

    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = rpcrdma_compare::REMOTE_PORT)]
    pub(crate) port: u16,

    /// Admit only this host, or hosts of this network (repeatable). Default: all
    #[arg(long = "client", value_name = "ADDR[/PREFIX]")]
    pub(crate) clients: Vec<Network>,

    /// Device under RPC-over-RDMA: iwarp, verbs or verbs:NAME (see `rpcrdma devices`)
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceName::Iwarp)]
    pub(crate) device: DeviceName,

    /// How a verbs device registers memory for its peer: auto (the best that it supports), windows,
    /// per-call or persistent-unsafe
    #[arg(long, value_name = "WAY", default_value_t = Policy(None))]
    pub(crate) registration: Policy,
}

/// The hidden command that `compare` starts: serves one transport until standard input ends.
#[derive(Debug, Args)]
pub(crate) struct ChildArgs {
    /// What to serve, as `compare` says it
    pub(crate) served: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn lines_of_the_columns_fit() {
        for line in COLUMNS.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn without_options_the_defaults_of_the_library_are_asked_for() {
        let Command::Compare(args) = Cli::parse_from(["rpcrdma", "compare"]).command else {
            panic!("another command");
        };
        let defaults = Options {
            commit: option_env!("RPCRDMA_COMMIT").map(str::to_owned),
            child: vec![CHILD.to_owned()],
            ..Options::default()
        };
        assert_eq!(format!("{:?}", args.options()), format!("{defaults:?}"));
    }

    #[test]
    fn a_selection_is_measured_with_all_of_what_was_not_selected() {
        let options = |args: &[&str]| {
            let words = ["rpcrdma", "compare"].iter().chain(args);
            let Command::Compare(args) = Cli::parse_from(words).command else {
                panic!("another command");
            };
            args.options()
        };
        let full = Options::full();
        let ops = options(&["--ops", "null,write"]);
        assert_eq!(ops.ops, [OpName::Null, OpName::Write]);
        assert_eq!((ops.via, ops.sizes), (full.via.clone(), full.sizes.clone()));
        assert!(ops.full && ops.predict);
        let everything = options(&["--full"]);
        assert_eq!((everything.via, everything.ops), (full.via, full.ops));
        // A file has a key for the prediction.
        let written = options(&["--json", "rows.json"]);
        assert!(!written.full && written.predict);
    }

    #[test]
    fn a_command_runs_over_each_version_unless_told_otherwise() {
        let run = |args: &[&str]| {
            let words = ["rpcrdma", "compare", "--run", "ls -l"].iter().chain(args);
            let Command::Compare(args) = Cli::parse_from(words).command else {
                panic!("another command");
            };
            args.run_options().unwrap()
        };
        let (options, command) = run(&[]);
        assert_eq!(options.via, RunOptions::via());
        assert_eq!(
            (&*command.command, command.runs),
            ("ls -l", RunOptions::RUNS)
        );
        let (options, command) = run(&["--via", "v1", "-o", "ro", "-o", "nconnect=2"]);
        assert_eq!(options.via, [Variant::V1]);
        assert_eq!(command.mount_options, "ro,nconnect=2");
        for bad in [
            &["--run", "ls", "--ops", "null"][..],
            &["--prepare", "ls"],
            &["--runs", "2"],
        ] {
            let words = ["rpcrdma", "compare"].iter().chain(bad);
            assert!(Cli::try_parse_from(words).is_err(), "{bad:?}");
        }
        for bad in [["-o", "ro"], ["--prepare", "ls"], ["--runs", "2"]] {
            let words = ["rpcrdma", "compare", "--ops", "null"];
            let cli = Cli::try_parse_from(words.iter().chain(&bad)).unwrap();
            let Command::Compare(args) = cli.command else {
                panic!("another command");
            };
            let refused = args.check(&Catalog::standard()).unwrap_err();
            assert!(refused.to_string().contains("--run"), "{refused}");
        }
        let presets = RunOptions::presets();
        let mut command = <Cli as clap::CommandFactory>::command();
        let compare = command.find_subcommand_mut("compare").unwrap();
        let help = compare.render_long_help().to_string();
        for preset in presets {
            assert!(help.contains(preset), "--help does not name {preset}");
        }
    }

    #[test]
    fn policies_are_given_once() {
        let check = |credits: &str, via: &str| {
            let words = ["rpcrdma", "compare", "--credits", credits, "--via", via];
            let Command::Compare(args) = Cli::parse_from(words).command else {
                panic!("another command");
            };
            let checked = args.check(&Catalog::standard());
            checked.map_err(|failure| failure.to_string())
        };
        let refused = check("all,all", "v1-inv,wg:all").unwrap_err();
        assert!(
            refused.contains("--credits: not with wg:all in --via, which names its own"),
            "{refused}"
        );
        assert_eq!(check("all,all", "v1-inv,wg"), Ok(()));
        // One policy is that of the variants which name none.
        assert_eq!(check("all", "wg,wg:all"), Ok(()));
    }

    #[test]
    fn without_selection_all_variants_have_each_policy_in_a_sweep() {
        let words = [
            "rpcrdma",
            "compare",
            "--receives",
            "4k",
            "--credits",
            "all,all",
        ];
        let Command::Compare(args) = Cli::parse_from(words).command else {
            panic!("another command");
        };
        let names = args.options().via.into_iter().map(Variant::name);
        let of = |policy: &str| {
            Variant::EQUAL
                .iter()
                .map(move |via| format!("{}:{policy}", via.name()))
                .collect::<Vec<_>>()
        };
        let wanted = of("all").into_iter().zip(of("all"));
        let wanted: Vec<String> = wanted.flat_map(|(one, other)| [one, other]).collect();
        assert_eq!(names.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn transfer_modes_are_called_in_options_as_in_rows() {
        assert_eq!(Variant::value_variants(), Variant::ALL);
        for variant in Variant::ALL {
            let value = variant.to_possible_value().unwrap();
            assert_eq!(value.get_name(), variant.name());
        }
    }

    #[test]
    fn lengths_of_receives_are_a_list_or_powers_of_two() {
        for (text, lengths) in [
            ("4k", &[4096][..]),
            ("4k,65k", &[4096, 66_560]),
            ("1k..8k", &[1024, 2048, 4096, 8192]),
            ("4k..10k,65k", &[4096, 8192, 66_560]),
            ("4k..4k", &[4096]),
        ] {
            assert_eq!(Lengths::parse(text).unwrap().0, lengths, "{text}");
        }
        for bad in ["", "8k..4k", "3k..8k", "..8k", "4k..", "0..4k", "8G", "4k,"] {
            assert!(Lengths::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_finds_one_row_of_each_mode_is_refused_for_several_lengths_of_receives() {
        for with in [
            &["--reference", "then.json"][..],
            &["--against", "then.json"],
            &["--explain"],
            &["--check-explain"],
            &["--save-costs", "costs.json"],
        ] {
            let words = ["rpcrdma", "compare", "--receives", "4k,16k"];
            let refused = Cli::try_parse_from(words.iter().chain(with)).unwrap_err();
            assert!(refused.to_string().contains(with[0]), "{refused}");
        }
    }

    #[test]
    fn time_to_measure_in_is_not_none() {
        assert_eq!(time("1ms"), Ok(Delay(Duration::from_millis(1))));
        for none in ["0", "0ms", "0s"] {
            let said = time(none).unwrap_err();
            assert!(said.contains("write one like"), "{said}");
        }
        assert!(time("long").is_err());
    }
}
