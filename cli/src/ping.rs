//! The `ping` command: repeated calls with their latency.

use std::net::Ipv6Addr;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::{Either, select};
use nfs_binding::client::{Follow, NfsUrl, UrlError};
use nfs_binding::proto::{FileHandle, FileType, SetAttributes};
use nfs_binding::server::MAX_TRANSFER;
use rpc_transport::CallError;
use rpcrdma_compare::Latency;
use rpcrdma_programs::callbacks::{self, Answers, MAX_LEN, MAX_ORDERED, Order};
use rpcrdma_programs::workload::{Op, Workload};
use rpcrdma_setup::access::{Access, Mounted, Reached};
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::{Context, Failure};
use serde_json::{Value, json};

use crate::args::{PingArgs, PingOp};
use crate::client_capture;
use crate::interrupt::Interruptible;
use crate::output;

/// The maximum number of untimed calls for warming up.
const WARM_UP: u32 = 100;
/// The default size of READ and WRITE, bytes.
const DEFAULT_SIZE: u64 = 4096;
/// The longest histogram bar, characters.
const BAR: u64 = 50;
/// The maximum number of calls without pauses that have a line each.
const FEW: u32 = 20;
/// The interval of lines about several calls.
const EVERY: Duration = Duration::from_secs(1);

/// Pings a server. With `verbose`, prints the version and features in use, and the reasons.
///
/// # Errors
/// The server cannot be reached, or a call fails.
pub(crate) fn run(args: &PingArgs, catalog: &Catalog, verbose: bool) -> Result<(), Failure> {
    let mut access = args.mount.access(catalog)?;
    only_what_matters(args, &access.mount)?;
    let has_data = matches!(args.op, PingOp::Read | PingOp::Write);
    if args.size.is_some() && !has_data && !args.callbacks {
        let text = "-s needs --op read or --op write: NULL and GETATTR carry no data";
        return Err(Failure::usage(text));
    }
    if args.callbacks {
        return callbacks(args, access, verbose);
    }
    if args.op == PingOp::Null {
        let (host, port) = server(&args.target)?;
        client_capture::open(&mut access, &args.capture)?;
        let reached = access.reach(&host, port)?;
        let measured = measure(args, verbose, &reached, None, Op::Null);
        return measured.map_err(|failure| access.advised(failure));
    }
    let url = object_url(args)?;
    client_capture::open(&mut access, &args.capture)?;
    let mounted = access.mount(&url)?;
    let size = size(args.size.unwrap_or(DEFAULT_SIZE), &mounted, args.op)?;
    let runtime = &mounted.reached.runtime;
    match args.op {
        PingOp::Write => {
            let scratch = Scratch::create(&mounted).context(&url)?;
            let (reached, file) = (&mounted.reached, Some(scratch.file));
            let result = measure(args, verbose, reached, file, Op::Write(size));
            result.and(scratch.remove(&mounted).context(&url))
        }
        PingOp::Null | PingOp::Getattr | PingOp::Read => {
            let found = runtime.block_on(mounted.mount.resolve(&mounted.path, Follow::Yes));
            let object = found.context(&url)?;
            let op = match args.op {
                PingOp::Read => Op::Read(size),
                _ => Op::Getattr,
            };
            let kind = object.attributes.file_type;
            if args.op == PingOp::Read && kind != FileType::Regular {
                let text = format!(
                    "{url} is no regular file: --op read wants one of {size} bytes or more"
                );
                return Err(Failure::Work(text));
            }
            if args.op == PingOp::Read && object.attributes.size < u64::from(size) {
                let len = object.attributes.size;
                let text = format!("{url} has {len} bytes: choose a longer file, or -s {len}");
                return Err(Failure::Work(text));
            }
            measure(args, verbose, &mounted.reached, Some(object.handle), op)
        }
    }
}

/// Checks that no mount option is given that could only affect calls that are not made: a figure
/// would seem to be for that option.
fn only_what_matters(args: &PingArgs, mount: &MountOptions) -> Result<(), Failure> {
    let reads = !args.callbacks && args.op == PingOp::Read;
    let writes = !args.callbacks && args.op == PingOp::Write;
    let mounts = !args.callbacks && args.op != PingOp::Null;
    let idle = [
        ("rsize=", "reads", mount.attach.rsize.is_some() && !reads),
        ("wsize=", "writes", mount.attach.wsize.is_some() && !writes),
        (
            "mountport=",
            "mounts",
            mount.mount_port.is_some() && !mounts,
        ),
        (
            "mountproto=",
            "mounts",
            mount.mount_proto.is_some() && !mounts,
        ),
        (
            "mounthost=",
            "mounts",
            mount.mount_host.is_some() && !mounts,
        ),
    ];
    let op = match args.callbacks {
        true => "--callbacks".to_owned(),
        false => format!("--op {}", args.op.name()),
    };
    match idle.into_iter().find(|(_, _, idle)| *idle) {
        Some((name, what, _)) => Err(Failure::Usage(format!(
            "{name}: ping {op} {what} nothing, so it would have no effect"
        ))),
        None => Ok(()),
    }
}

/// Returns the URL, which operations on a file or directory need.
fn object_url(args: &PingArgs) -> Result<NfsUrl, Failure> {
    let (op, target) = (args.op.name(), &args.target);
    target.parse().map_err(|error| {
        let text = match error {
            UrlError::Scheme(_) => {
                format!("--op {op} needs an object on the server: nfs://{target}/EXPORT/PATH, not {target}")
            }
            other => other.to_string(),
        };
        Failure::Usage(text)
    })
}

/// Orders callbacks from the server, and prints their results.
fn callbacks(args: &PingArgs, mut access: Access, verbose: bool) -> Result<(), Failure> {
    let size = args.size.unwrap_or(0);
    let size = u32::try_from(size).ok().filter(|size| *size <= MAX_LEN);
    let Some(size) = size else {
        let text = format!("-s: a callback carries at most {MAX_LEN} bytes");
        return Err(Failure::Usage(text));
    };
    if args.count > MAX_ORDERED {
        let text = format!("-c: at most {MAX_ORDERED} callbacks can be ordered");
        return Err(Failure::Usage(text));
    }
    let answers = Answers::new();
    access.answers = Some(answers.clone());
    let (host, port) = server(&args.target)?;
    client_capture::open(&mut access, &args.capture)?;
    let reached = access.reach(&host, port)?;
    let order = Order {
        count: args.count,
        call_len: size,
        reply_len: size,
        ..Order::default()
    };
    // The ticket probably differs from those of all other clients of this server.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ticket = now.map_or(0, |now| now.subsec_nanos()) ^ std::process::id().rotate_left(16);
    let interruptible = Interruptible::new()?;
    let interrupt = interruptible.interrupt();
    let start = Instant::now();
    let tally = {
        let ordered = pin!(callbacks::run(&reached.client, ticket, order));
        let interrupted = pin!(interrupt.wait());
        match reached.runtime.block_on(select(ordered, interrupted)) {
            Either::Left((tally, _)) => tally,
            Either::Right(_) => return Err(interruptible.failure(&args.target)),
        }
    };
    let tally = tally.map_err(|error| {
        let advice = match &error {
            CallError::Refused(_) => ": it makes no callbacks, see `rpcrdma serve --callbacks`",
            _ => "",
        };
        Failure::Work(format!("{}: {error}{advice}", args.target))
    })?;
    let (took, seen) = (start.elapsed(), answers.seen());
    let count = args.count;
    let verdict = match (tally.answered, seen.count(), seen.wrong) == (count, count as usize, 0) {
        true => Ok(()),
        false => Err(Failure::Work(format!(
            "not all of {count} callbacks went well"
        ))),
    };
    let print = || {
        output::line(format_args!(
            "{}: {} callbacks of {size} bytes each way, one at a time, in {:.1} ms: {} answered, {} answered \
             wrongly, {} failed",
            args.target,
            tally.made,
            took.as_secs_f64() * 1e3,
            tally.answered,
            tally.wrong,
            tally.failed
        ))?;
        output::line(format_args!(
            "of these came here {}, {} of them more than once, {} with wrong data",
            seen.count(),
            seen.repeated(),
            seen.wrong
        ))?;
        let decisions = reached.decisions();
        let mut shown = decisions.iter().filter(|_| verbose);
        shown.try_for_each(output::line)
    };
    output::ended(verdict, print())
}

/// Parses host and port of `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`, an address of IPv6 without a port, or a URL.
pub(crate) fn server(text: &str) -> Result<(String, Option<u16>), Failure> {
    // As ping(8) takes it; a scope (`fe80::1%eth0`) is part of it.
    let address = text.split('%').next().unwrap_or(text);
    if address.parse::<Ipv6Addr>().is_ok() {
        return Ok((text.to_owned(), None));
    }
    let url = if text.contains("://") || text.contains(":/") {
        text.to_owned()
    } else {
        format!("nfs://{text}")
    };
    let url: NfsUrl = url
        .parse()
        .map_err(|error| Failure::Usage(format!("{error}")))?;
    Ok((url.server, url.port))
}

fn size(asked: u64, mounted: &Mounted, op: PingOp) -> Result<u32, Failure> {
    let limits = mounted.mount.limits();
    let limit = match op {
        PingOp::Write => limits.wsize,
        _ => limits.rsize,
    };
    // `Op` divides what is longer among several calls: their latency is not that of one.
    let limit = limit.min(MAX_TRANSFER);
    match u32::try_from(asked) {
        Ok(size) if size <= limit => Ok(size),
        _ => Err(Failure::Work(format!(
            "-s {asked}: the most that ping moves with one call is {limit}"
        ))),
    }
}

fn measure(
    args: &PingArgs,
    verbose: bool,
    reached: &Reached,
    file: Option<FileHandle>,
    op: Op,
) -> Result<(), Failure> {
    let runtime = &reached.runtime;
    let prepared = op.on(file);
    let prepared = prepared.ok_or_else(|| Failure::work("no file to work on"))?;
    let perform = || async {
        let performed = prepared.perform(&reached.client, 0).await;
        performed.map_err(Failure::work)
    };
    let interruptible = Interruptible::new()?;
    let interrupt = interruptible.interrupt();
    let mut latency = Latency::new();
    let mut lines = Lines::new(args, op);
    let interrupted = {
        let calls = pin!(async {
            for _ in 0..args.count.min(WARM_UP) {
                perform().await?;
            }
            for _ in 0..args.count {
                if !args.interval.0.is_zero() {
                    runtime.sleep(args.interval.0).await;
                }
                let start = Instant::now();
                perform().await?;
                let time = start.elapsed();
                latency.record(time);
                lines.add(time, &latency)?;
            }
            Ok::<_, Failure>(())
        });
        match runtime.block_on(select(calls, pin!(interrupt.wait()))) {
            Either::Left((result, _)) => {
                result?;
                false
            }
            Either::Right(_) => true,
        }
    };
    // As with ping(8): after an interrupt, it prints the results so far, and fails only if there
    // are none.
    if interrupted && latency.count() == 0 {
        return Err(interruptible.failure(&args.target));
    }
    // This comes last, because the properties of the peer are certain by now.
    if args.json {
        return output::json(&as_json(args, op, &latency, reached));
    }
    report(args, op, &latency)?;
    for decision in reached.decisions().iter().filter(|_| verbose) {
        output::line(decision)?;
    }
    Ok(())
}

/// The lines that are printed while calls are made.
struct Lines<'a> {
    target: &'a str,
    op: String,
    /// The minimum time between lines. `None`: there are none.
    every: Option<Duration>,
    printed: Instant,
}

impl<'a> Lines<'a> {
    fn new(args: &'a PingArgs, op: Op) -> Self {
        let is_each = !args.interval.0.is_zero() || args.count <= FEW;
        let every = if is_each { Duration::ZERO } else { EVERY };
        Self {
            target: &args.target,
            op: described(op),
            every: (!args.json && !output::is_quiet()).then_some(every),
            printed: Instant::now(),
        }
    }

    /// Prints a line about a call that took `time`, or about all in `latency`, if one is due.
    fn add(&mut self, time: Duration, latency: &Latency) -> Result<(), Failure> {
        let (target, op, number) = (self.target, &self.op, latency.count());
        match self.every {
            None => Ok(()),
            Some(Duration::ZERO) => {
                let micros = time.as_secs_f64() * 1e6;
                output::line(format_args!(
                    "{target}: {op} seq={number} time={micros:.1} µs"
                ))
            }
            Some(every) if self.printed.elapsed() < every => Ok(()),
            Some(_) => {
                self.printed = Instant::now();
                let median = latency.p50_us().unwrap_or_default();
                output::line(format_args!(
                    "{target}: {op} seq={number} median={median:.1} µs so far"
                ))
            }
        }
    }
}

/// Returns the operation with its size.
fn described(op: Op) -> String {
    let size = op.size();
    let size = size.map_or(String::new(), |size| format!(" of {size} bytes"));
    format!("{}{size}", op.name())
}

fn as_json(args: &PingArgs, op: Op, latency: &Latency, reached: &Reached) -> Value {
    let extremes = latency.extremes_us();
    let buckets = latency.buckets().into_iter();
    let buckets = buckets.map(|(below, count)| json!({"below_us": below, "count": count}));
    json!({
        "server": args.target,
        "op": op.name(),
        "size": op.size(),
        "count": latency.count(),
        "min_us": extremes.map(|(min, _)| min),
        "median_us": latency.p50_us(),
        "mean_us": latency.mean_us(),
        "p99_us": latency.p99_us(),
        "max_us": extremes.map(|(_, max)| max),
        "histogram": buckets.collect::<Vec<_>>(),
        "connections": reached.decisions_json(),
    })
}

fn report(args: &PingArgs, op: Op, latency: &Latency) -> Result<(), Failure> {
    let (target, op) = (&args.target, described(op));
    output::line(format_args!("{target}: {} x {op}", latency.count()))?;
    if let (Some((min, max)), Some(p50), Some(p99)) =
        (latency.extremes_us(), latency.p50_us(), latency.p99_us())
    {
        let mean = latency.mean_us();
        output::line(format_args!(
            "min {min:.1}  median {p50:.1}  mean {mean:.1}  p99 {p99:.1}  max {max:.1}  µs"
        ))?;
    }
    if args.histogram {
        histogram(latency)?;
    }
    Ok(())
}

fn histogram(latency: &Latency) -> Result<(), Failure> {
    let buckets = latency.buckets();
    let most = buckets
        .iter()
        .map(|&(_, count)| count)
        .max()
        .unwrap_or(0)
        .max(1);
    for (upper, count) in buckets {
        let filled = (count * BAR).div_ceil(most) as usize;
        let bar = "#".repeat(filled);
        output::line(format_args!("< {upper:>9.0} µs {count:>9}  {bar}"))?;
    }
    Ok(())
}

/// A file to write to, in the directory that the URL names.
struct Scratch {
    dir: FileHandle,
    name: Vec<u8>,
    file: FileHandle,
}

impl Scratch {
    fn create(mounted: &Mounted) -> Result<Self, nfs_binding::client::NfsError> {
        // Processes of other hosts, or in other containers, can have the same number at the same time. A
        // file that exists is somebody else's.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.map_or(0, |now| now.as_nanos());
        let name = format!(".rpcrdma-ping-{}-{nanos:x}", std::process::id()).into_bytes();
        let mount = &mounted.mount;
        mounted.reached.runtime.block_on(async {
            let dir = mount.resolve(&mounted.path, Follow::Yes).await?.handle;
            let attributes = SetAttributes {
                mode: Some(0o600),
                ..SetAttributes::default()
            };
            let file = mount
                .create_new(dir, &name, attributes, &mounted.path)
                .await?
                .handle;
            Ok(Self { dir, name, file })
        })
    }

    fn remove(self, mounted: &Mounted) -> Result<(), nfs_binding::client::NfsError> {
        let removing = mounted.mount.remove(self.dir, &self.name, &mounted.path);
        mounted.reached.runtime.block_on(removing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_in_every_usual_way() {
        let named = |text: &str| server(text).unwrap();
        assert_eq!(named("host"), ("host".into(), None));
        assert_eq!(named("host:20049"), ("host".into(), Some(20049)));
        assert_eq!(named("[::1]:7"), ("::1".into(), Some(7)));
        assert_eq!(named("nfs://host:7/export"), ("host".into(), Some(7)));
        assert_eq!(named("host:/export"), ("host".into(), None));
        for address in ["::1", "2001:db8::7", "fe80::1%eth0"] {
            assert_eq!(named(address), (address.into(), None));
        }
        assert!(server("1:2:3").is_err());
        assert!(server("host:port").is_err());
        let other = server("rdma://host/export").unwrap_err().to_string();
        assert!(other.contains("did you mean nfs://host/export?"), "{other}");
    }
}
