//! The `conform` command: a judgement of a server of any make. That of clients is in [`crate::conform_listen`].

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nfs_binding::client::{Follow, NfsError, NfsUrl};
use nfs_binding::proto::{FileHandle, SetAttributes, Status};
use nfs_copy::CopyOptions;
use rpcrdma_conform::case::{Case, Ground};
use rpcrdma_conform::client;
use rpcrdma_conform::endpoint::Dial;
use rpcrdma_conform::judge::judge;
use rpcrdma_conform::read_only;
use rpcrdma_conform::report::{Entry, Report};
use rpcrdma_conform::run::Server;
use rpcrdma_conform::watch::Watcher;
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::mount_options::Proto;
use rpcrdma_setup::{Context, Failure};

use crate::args::ConformArgs;
use crate::capture::{self, Clock};
use crate::conform_capture::CaptureOfCases;
use crate::conform_device::ConformDevice;
use crate::conform_report::{about, check_timeout, ended, not_tested};
use crate::conform_selection::{Address, Chosen};
use crate::interrupt::Interruptible;
use crate::output;
use crate::{conform_cases, conform_listen, conform_loopback, conform_read_only};

/// Judges a server.
///
/// # Errors
/// The server deviates, or cannot be tested.
pub(crate) fn run(args: &ConformArgs, catalog: &Catalog) -> Result<(), Failure> {
    if let Some(address) = args.listen {
        return conform_listen::run(args, address);
    }
    if !args.xdr.is_empty() && args.cases.is_empty() && args.from.is_none() {
        let text = "--xdr: its names are for --cases or --from; give one of these";
        return Err(Failure::usage(text));
    }
    if let Some(capture) = &args.from {
        return conform_cases::from(args, capture);
    }
    let cases = conform_cases::all(args, &Ground::without_files(1))?;
    // A URL selects the cases for servers.
    let lists_clients = args.list && args.cases.is_empty() && args.url.is_none();
    let mut addresses: Vec<Address> = cases.iter().map(Address::from).collect();
    if lists_clients {
        addresses.extend(client::cases::all().iter().map(Address::of_client));
    }
    let chosen = Chosen::new(args, &addresses)?;
    let Some(url) = args.url.as_ref().filter(|_| !args.list) else {
        let selection = &chosen.selection;
        for case in cases.iter().filter(|case| selection.has(case)) {
            let (address, level) = (case.address(), case.level);
            output::line(format_args!(
                "{address} {level}: {}: {}",
                case.sends, case.expects
            ))?;
        }
        return match lists_clients {
            true => conform_listen::list(selection),
            false => Ok(()),
        };
    };
    check_timeout(args)?;
    let about = about(args, url);
    let interruptible = Interruptible::new()?;
    let judged = judged(args, catalog, &chosen, url, &interruptible);
    let Judged {
        mut report,
        shown,
        removed,
    } = match judged {
        Ok(judged) => judged,
        Err(failure) => return Err(not_tested(args, about, failure)),
    };
    chosen.complete(&mut report, args.strict);
    report.about = Some(about);
    let gone = match interruptible.interrupt().is_set() {
        true => Err(interruptible.failure(url)),
        false => removed,
    };
    ended(args, url, &report, shown, gone)
}

/// A judgement that has ended.
struct Judged {
    report: Report,
    /// Whether the results could be printed.
    shown: Result<(), Failure>,
    /// Whether the folder of the cases was removed.
    removed: Result<(), Failure>,
}

/// Performs the cases in a folder of their own, or, where nothing may be written, in the one of the URL.
fn judged(
    args: &ConformArgs,
    catalog: &Catalog,
    chosen: &Chosen,
    url: &str,
    interruptible: &Interruptible,
) -> Result<Judged, Failure> {
    let url: NfsUrl = url.parse().map_err(Failure::work)?;
    let url = &url;
    let access = args.mount().access(catalog)?;
    if access.mount.proto != Proto::Rdma {
        return Err(Failure::usage("conform needs proto=rdma"));
    }
    if args.device.is_none() && access.device.name != DeviceName::Iwarp {
        let text = "mount option device: conform takes the device of the cases, by --device";
        return Err(Failure::usage(text));
    }
    if args.loopback {
        conform_loopback::check_server(&url.server, &access.mount)?;
    }
    let port = access.mount.nfs_port(url.port);
    let address = address(&url.server, port)?;
    let mounted = access.mount(url)?;
    let capture = capture::open(&args.capture, Clock::Real)?;
    let user = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut selection = chosen.selection.clone();
    let (cases, folder) = match args.read_only {
        true => {
            let objects = conform_read_only::objects(&mounted, user, first_xid()).context(url)?;
            if objects.file.is_none() {
                output::note(format_args!(
                    "{url}: no regular file in this folder can be read, so the cases that need one are not applicable; \
                     name a folder with a file that this user may read, of 16 KiB or more"
                ));
            }
            let make = |ground: &Ground| conform_cases::all(args, ground);
            let (cases, unfit) = read_only::cases(&objects, make)?;
            selection.unfit = unfit;
            (cases, None)
        }
        false => {
            let (cases, folder) = in_own_folder(args, &mounted, user, url)?;
            (cases, Some(folder))
        }
    };
    let dial = match &args.device {
        Some(_) => {
            let mut choice = access.device.towards(address);
            choice.capture = capture.clone();
            let device = ConformDevice::open(choice, access.link.clone())?;
            Some(Arc::new(device) as Arc<dyn Dial>)
        }
        None => None,
    };
    let server = Server {
        address,
        patience: args.timeout.0,
        watcher: capture.map(|it| Watcher::new(Box::new(CaptureOfCases::new(it)))),
        dial,
    };
    let mut shown = Ok(());
    let interrupt = interruptible.interrupt();
    let mut each = |entry: &Entry| {
        // A reader that has gone does not end the judgement, which has reports and a status.
        if shown.is_ok() && !output::is_quiet() {
            shown = output::line(chosen.marked(entry));
        }
        !interrupt.is_set()
    };
    let report = judge(&cases, &selection, &server, &mut each);
    let removed = folder.map_or(Ok(()), |folder| folder.remove(&mounted));
    Ok(Judged {
        report,
        shown,
        removed,
    })
}

/// Makes a folder, and the cases for it.
fn in_own_folder(
    args: &ConformArgs,
    mounted: &Mounted,
    user: (u32, u32),
    url: &NfsUrl,
) -> Result<(Vec<Case>, Folder), Failure> {
    let folder = Folder::create(mounted).map_err(|error| not_made(url, &error))?;
    let handle = |handle: FileHandle| handle.as_bytes().to_vec();
    let ground = Ground::new(
        handle(folder.folder),
        handle(folder.file),
        user,
        first_xid(),
    );
    match conform_cases::all(args, &ground) {
        Ok(cases) => Ok((cases, folder)),
        Err(error) => {
            // The first error is the one to report.
            drop(folder.remove(mounted));
            Err(error)
        }
    }
}

/// Returns the failure for a folder that could not be made, with what to do where nothing may be written.
fn not_made(url: &NfsUrl, error: &NfsError) -> Failure {
    let advice = match error.status() {
        Some(Status::ROFS | Status::ACCES | Status::PERM) => {
            " (the cases need a folder that this user may write; --read-only performs those that write nothing)"
        }
        _ => "",
    };
    Failure::Work(format!("{url}: {error}{advice}"))
}

/// Returns the address of the server: the only one that cases connect to.
fn address(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let mut addresses = (host, port).to_socket_addrs().context(host)?;
    addresses
        .next()
        .ok_or_else(|| Failure::Work(format!("{host}: no address")))
}

/// Returns an XID that a server with a reply cache is unlikely to have seen from here.
fn first_xid() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.subsec_nanos() ^ now.as_secs() as u32)
}

/// The folder of the cases, with their file.
struct Folder {
    path: Vec<u8>,
    folder: FileHandle,
    file: FileHandle,
}

impl Folder {
    fn create(mounted: &Mounted) -> Result<Self, NfsError> {
        // A folder that exists is somebody else's.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.map_or(0, |now| now.as_nanos());
        let name = format!(".rpcrdma-conform-{}-{nanos:x}", std::process::id()).into_bytes();
        let path = [&mounted.path[..], b"/", &name].concat();
        let with_mode = |mode| SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let mount = &mounted.mount;
        mounted.reached.runtime.block_on(async {
            let parent = mount.resolve(&mounted.path, Follow::Yes).await?.handle;
            let made = mount.mkdir(parent, &name, with_mode(0o700), &path).await?;
            let folder = made.handle;
            let file = mount
                .create_new(folder, b"file", with_mode(0o600), &path)
                .await;
            let file = match file {
                Ok(file) => file.handle,
                Err(error) => {
                    // The first error is the one to report.
                    drop(mount.rmdir(parent, &name, &path).await);
                    return Err(error);
                }
            };
            Ok(Self { path, folder, file })
        })
    }

    fn remove(self, mounted: &Mounted) -> Result<(), Failure> {
        let options = CopyOptions::default();
        let mut progress = |_: &_| {};
        let removing = nfs_copy::remove(&mounted.mount, &self.path, &options, &mut progress);
        let report = mounted.reached.runtime.block_on(removing);
        match report.problems.first() {
            None => Ok(()),
            Some(problem) => {
                let path = String::from_utf8_lossy(&self.path).into_owned();
                Err(Failure::Work(format!(
                    "{path} could not be removed: {problem}"
                )))
            }
        }
    }
}
