//! The commands `mount` and `umount`.
//!
//! In the background, the work is done by a second process: this program again, with `--background`.
//! Its standard output says when the export is mounted, and its standard error why it could not be.
//! Then both are closed. (To fork after threads have begun would not be safe.)
//!
//! The program is also a helper of mount(8), if it is called `mount.rpcrdma` or `mount.fuse.rpcrdma`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nfs_binding::client::{Follow, NfsUrl};
use nfs_mount::{MountError, Options, Umount};
use onc_rpc::AUTH_SYS;
use rpc_transport::limits::raise_descriptors;
use rpcrdma_metrics::mountstats::Header;
use rpcrdma_setup::access::Mounted;
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::fuse::fuse_options;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::{Context, Failure};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

use crate::args::{MountCommandArgs, UmountArgs};
use crate::{client_capture, files, interrupt, metrics, output};

/// The line by which the process in the background reports that the export is mounted.
const MOUNTED: &str = "mounted";
/// How long a server that had answered may be unreachable before a hard mount gives up: in effect for
/// ever.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The beginning of the names by which mount(8) calls its helpers.
const HELPER: &[u8] = b"mount.";

/// Returns the arguments of a program, those of a helper of mount(8) as those of `mount`.
pub(crate) fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    as_helper(given, rustix::process::geteuid().is_root())
}

/// Turns the arguments of a helper of mount(8), `SOURCE DIRECTORY [-sfnv] [-N NS] [-o OPTIONS] [-t
/// TYPE]`, into those of `mount`. Others are left alone.
///
/// If root uses mount(8), set-id bits and devices have their effect by default, as with every type
/// of file system. mount(8) does not tell its helper whether `suid` was given or is the default, so
/// a user who does not want it must say `nosuid`.
fn as_helper(args: impl Iterator<Item = OsString>, root: bool) -> Vec<OsString> {
    let args: Vec<OsString> = args.collect();
    let name = args.first().map(Path::new).and_then(Path::file_name);
    if !name.is_some_and(|name| name.as_bytes().starts_with(HELPER)) {
        return args;
    }
    let mut out = vec![OsString::from("rpcrdma"), OsString::from("mount")];
    if root {
        out.extend(defaults_of_mount(&args));
    }
    let mut rest = args.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.as_bytes() {
            // Sloppy, no mtab: of mount(8) itself, or without a meaning here.
            b"-s" | b"-n" => {}
            b"-v" | b"-sv" | b"-nv" => out.push("-v".into()),
            b"-f" => return vec!["rpcrdma".into(), "mount".into(), "--help".into()],
            b"-t" | b"-N" => drop(rest.next()),
            _ => out.push(arg),
        }
    }
    out
}

/// Returns `-o` with the options that are the defaults of mount(8), except those that the helper's
/// arguments contain or contradict. mount(8) passes an option such as `nosuid` to its helper, but
/// never its opposite, even if the user gave it.
fn defaults_of_mount(args: &[OsString]) -> Vec<OsString> {
    let given: Vec<&str> = args
        .iter()
        .filter_map(|arg| arg.to_str())
        .flat_map(|arg| arg.split(','))
        .collect();
    let defaults = [
        ("suid", "nosuid"),
        ("dev", "nodev"),
        ("exec", "noexec"),
        ("async", "sync"),
        ("symfollow", "nosymfollow"),
    ];
    let defaults = defaults
        .into_iter()
        .filter(|(on, off)| !given.contains(on) && !given.contains(off));
    let defaults: Vec<&str> = defaults.map(|(on, _)| on).collect();
    match defaults.is_empty() {
        true => Vec::new(),
        false => vec!["-o".into(), defaults.join(",").into()],
    }
}

/// Mounts an export. `words` are the arguments of this program. With `verbose`, prints what is in use,
/// and the reasons.
///
/// # Errors
/// The export could not be mounted.
pub(crate) fn mount(
    args: &MountCommandArgs,
    catalog: &Catalog,
    words: &[OsString],
    verbose: bool,
) -> Result<(), Failure> {
    // Errors in what was typed come before anything is started. The notes come later, once.
    args.mount.check(catalog)?;
    let options = args.mount.options.join(",");
    if options.split(',').any(|option| option == "remount") {
        return remount(args, &options);
    }
    let url = files::url(&args.url)?;
    match args.foreground || args.background {
        true => serve(args, catalog, &url, verbose),
        false => in_background(words),
    }
}

/// Changes the flags of an existing mount.
fn remount(args: &MountCommandArgs, options: &str) -> Result<(), Failure> {
    let (changes, left) = rpcrdma_setup::remount::changes(options);
    if !left.is_empty() {
        output::remark(format_args!(
            "remount leaves {} as mounted; it changes ro, rw, suid, dev, exec, symfollow, sync and their opposites",
            left.join(",")
        ));
    }
    nfs_mount::remount(&args.mount_point, &changes).map_err(Failure::work)
}

/// Adds the option of the process in the background to the arguments: before `--`, after which it would be the
/// name of something.
fn with_background(mut args: Vec<OsString>) -> Vec<OsString> {
    let end = args.iter().position(|arg| arg == "--");
    args.insert(end.unwrap_or(args.len()), "--background".into());
    args
}

/// Starts the process in the background, and waits until it has mounted the export.
fn in_background(words: &[OsString]) -> Result<(), Failure> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let args = with_background(words.to_vec());
    let mut command = Command::new(program);
    command
        .args(args.into_iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start in the background")?;
    // A terminal signals both processes. Whoever signals this one alone means both as well.
    let background = Pid::from_child(&child);
    interrupt::on_signals(move |signal| {
        // It fails if that process has ended.
        let _ended = Signal::from_named_raw(signal).map(|it| kill_process(background, it));
        interrupt::die(signal);
    })?;
    let unread = "cannot read what the process in the background says";
    let said = wait_until_mounted(&mut child).context(unread)?;
    if !said.remarks.is_empty() {
        output::tell(said.remarks.trim_end());
    }
    if said.mounted {
        return Ok(());
    }
    let status = child
        .wait()
        .context("cannot wait for the process in the background")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure::Told(code.unwrap_or(rpcrdma_setup::FAILURE)))
}

/// The output of the process in the background up to its mount, or to its end if it does not mount.
#[derive(Debug)]
struct ChildOutput {
    mounted: bool,
    /// Its standard error: warnings, and why it has not mounted.
    remarks: String,
}

/// Waits until a process in the background has mounted and left its terminal, or has ended.
fn wait_until_mounted(child: &mut Child) -> io::Result<ChildOutput> {
    // It may write more than a pipe holds before it says whether it has mounted, and would wait for a
    // reader; so both pipes are read at once.
    let errors = child.stderr.take().map(|mut errors| {
        std::thread::spawn(move || {
            let mut remarks = Vec::new();
            errors.read_to_end(&mut remarks).map(|_| remarks)
        })
    });
    let mut line = String::new();
    if let Some(said) = child.stdout.take() {
        BufReader::new(said).read_line(&mut line)?;
    }
    let remarks = match errors.map(JoinHandle::join) {
        Some(Ok(remarks)) => remarks?,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => Vec::new(),
    };
    Ok(ChildOutput {
        mounted: line.trim() == MOUNTED,
        remarks: String::from_utf8_lossy(&remarks).into_owned(),
    })
}

/// Mounts an export, and serves the mount until it is unmounted.
fn serve(
    args: &MountCommandArgs,
    catalog: &Catalog,
    url: &NfsUrl,
    verbose: bool,
) -> Result<(), Failure> {
    // Opened first: a log that cannot be opened is an error before anything is mounted.
    let log = match args.background {
        true => Some(open_log(args.log.as_deref())?),
        false => None,
    };
    // Each connection takes descriptors (`nconnect=`); open files take none.
    let (descriptors, raised) = raise_descriptors();
    tracing::debug!(descriptors, ?raised, "limit on open files");
    let mut access = args.mount.access_of_mount(catalog)?;
    access.give_up_after = Some(match access.mount.hard {
        true => FOR_EVER,
        // As long as the retransmissions of one call take.
        false => access.mount.timeo * (access.mount.retrans + 1),
    });
    // Two servers of one host differ in their ports, wherever the port is given.
    let source = NfsUrl {
        port: url.port.or(access.mount.port),
        ..url.clone()
    };
    let source = match args.url.starts_with("nfs://") {
        true => source.to_string(),
        // Exactly as it was given, because mount(8) finds the line of fstab by it.
        false => args.url.clone(),
    };
    let options = fuse_options(&source, &access.mount);
    for_root(&options)?;
    // Before the capture is opened, which would otherwise handle signals as for a copy. A signal that comes
    // before anything is mounted ends the process, with a whole capture.
    interrupt::on_signals(|signal| match MOUNT_POINT.get() {
        Some(path) => unmount_on_signal(path, signal),
        None => interrupt::die(signal),
    })?;
    client_capture::open(&mut access, &args.capture)?;
    let metrics = metrics::listener(args.metrics.metrics)?;
    let scraped = metrics.as_ref().map(metrics::where_they_are).transpose()?;
    let reached = access.mount(url)?;
    let runtime = &reached.reached.runtime;
    let root = runtime.block_on(reached.mount.resolve(&reached.path, Follow::Yes));
    let root = root.context(url)?;
    let pool = reached.reached.pool();
    let mounted = nfs_mount::mount(&reached.mount, root, pool, &args.mount_point, &options);
    let mounted = mounted.map_err(Failure::work)?;
    MOUNT_POINT.get_or_init(|| mounted.path().to_owned());
    let mode = if options.read_only { "ro" } else { "rw" };
    let limits = reached.mount.limits();
    let header = Header {
        source: options.source.clone(),
        directory: mounted.path().display().to_string(),
        options: format!("{mode},{}", in_use(&reached, &access.mount)),
        flavor: AUTH_SYS,
        write_multiple: limits.write_multiple,
        list: limits.list,
        ..Header::default()
    };
    let observer = reached.reached.observer();
    let endpoint = metrics::of_mount(metrics, &mounted, header, observer)?;
    // Where the one who has started this process still reads.
    if let Some(scraped) = scraped {
        output::note(scraped);
    }
    // Before the process in the background leaves the terminal.
    if verbose {
        output::note(format_args!(
            "options in use: {}",
            in_use(&reached, &access.mount)
        ));
        reached.reached.decisions().iter().for_each(output::note);
    }
    if let Some(log) = log {
        detach(&log)?;
    } else {
        output::note(format_args!(
            "{url} is mounted at {}",
            mounted.path().display()
        ));
    }
    let ended = mounted.run();
    drop(endpoint);
    ended.map_err(Failure::work)
}

/// Refuses options that only root's mounts can have. `fusermount3`, which mounts for others, would
/// leave them out.
fn for_root(options: &Options) -> Result<(), Failure> {
    let wanted = [
        ("suid", options.set_id),
        ("dev", options.devices),
        ("nosymfollow", !options.follow_symlinks),
    ];
    match wanted.into_iter().find(|(_, wanted)| *wanted) {
        Some((name, _)) if !rustix::process::geteuid().is_root() => Err(Failure::Usage(format!(
            "mount option {name}: only root can mount with it"
        ))),
        _ => Ok(()),
    }
}

/// Returns the mount options in use, in the form of `nfsstat -m`: those that the server or the device
/// has decided, with those that say how the mount treats a server that does not answer.
fn in_use(mounted: &Mounted, options: &MountOptions) -> String {
    let limits = mounted.mount.limits();
    let mut shown = vec![
        "vers=3".to_owned(),
        format!("rsize={}", limits.rsize),
        format!("wsize={}", limits.wsize),
        format!("nconnect={}", options.nconnect),
        if options.hard { "hard" } else { "soft" }.to_owned(),
        // The option's unit is a tenth of a second.
        format!("timeo={}", options.timeo.as_millis() / 100),
        format!("retrans={}", options.retrans),
    ];
    match mounted.reached.device_name() {
        Some(device) => shown.extend(["proto=rdma".to_owned(), format!("device={device}")]),
        None => shown.push("proto=tcp".to_owned()),
    }
    let registration = mounted.reached.registration();
    shown.extend(registration.map(|method| format!("registration={method}")));
    shown.join(",")
}

/// The directory at which the export is mounted, once it is.
static MOUNT_POINT: OnceLock<PathBuf> = OnceLock::new();

/// Whether a signal could not unmount what is mounted.
static TRIED: AtomicBool = AtomicBool::new(false);

/// Unmounts because of a signal. What programs still use is taken out of the tree of directories, and
/// the process ends when they do not use it any more, or with the next signal.
fn unmount_on_signal(path: &Path, signal: i32) {
    match nfs_mount::umount(path, Umount::Idle) {
        Ok(()) => {}
        Err(MountError::Busy { .. }) => {
            output::complain(format_args!(
                "{}: is in use, and is unmounted when it is not",
                path.display()
            ));
            if let Err(error) = nfs_mount::umount(path, Umount::Lazy) {
                output::complain(error);
            }
        }
        // It has been unmounted already: whatever keeps this process is given up.
        Err(MountError::NotMounted { .. }) => interrupt::die(signal),
        // The mount lives on, and may have data that is not on the server.
        Err(error) => {
            if TRIED.swap(true, Ordering::Relaxed) {
                interrupt::die(signal);
            }
            output::complain(error);
        }
    }
}

/// Opens what takes the place of standard error in the background.
fn open_log(log: Option<&Path>) -> Result<File, Failure> {
    let target = log.unwrap_or(Path::new("/dev/null"));
    let log = OpenOptions::new().create(true).append(true).open(target);
    log.context(target.display())
}

/// Cuts the process in the background off from the one that started it, and from its terminal.
fn detach(log: &File) -> Result<(), Failure> {
    // This process leads no group, since another one has just started it; if it does all the same, it
    // has its own already.
    let _session = rustix::process::setsid();
    let mut out = io::stdout().lock();
    writeln!(out, "{MOUNTED}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))?;
    let lost = "cannot leave the terminal";
    rustix::stdio::dup2_stdout(log).context(lost)?;
    rustix::stdio::dup2_stderr(log).context(lost)?;
    std::env::set_current_dir("/").context(lost)
}

/// Unmounts.
///
/// # Errors
/// Something could not be unmounted.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    let how = match (args.lazy, args.force) {
        (true, true) => Umount::ForceLazy,
        (true, false) => Umount::Lazy,
        (false, true) => Umount::Force,
        (false, false) => Umount::Idle,
    };
    let mut outcome = Ok(());
    for path in &args.mount_points {
        if let Err(error) = nfs_mount::umount(path, how) {
            if outcome.is_err() {
                output::complain(&error);
            } else {
                outcome = Err(Failure::work(error));
            }
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn words(words: &[&str], root: bool) -> Vec<String> {
        let args = words.iter().map(OsString::from);
        let args = as_helper(args, root).into_iter();
        args.map(|arg| OsStr::to_string_lossy(&arg).into_owned())
            .collect()
    }

    /// Returns the output of a shell in the place of the process in the background.
    fn said_by(script: &str) -> ChildOutput {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = wait_until_mounted(&mut child).unwrap();
        child.wait().unwrap();
        said
    }

    #[test]
    fn a_process_in_the_background_may_say_more_than_a_pipe_holds() {
        let much = "head -c 300000 /dev/zero >&2";
        for (end, mounted) in [("echo mounted", true), ("exit 1", false)] {
            let said = said_by(&format!("{much}; {end}"));
            assert_eq!((said.mounted, said.remarks.len()), (mounted, 300_000));
        }
        assert_eq!(said_by("echo no >&2").remarks, "no\n");
    }

    #[test]
    fn warnings_of_a_process_that_has_mounted_are_kept() {
        let said = said_by("echo careful >&2; echo mounted; exec 2>/dev/null; sleep 0.1");
        assert!(said.mounted);
        assert_eq!(said.remarks, "careful\n");
    }

    #[test]
    fn the_option_of_the_background_comes_before_two_dashes() {
        let with = |words: &[&str]| with_background(words.iter().map(OsString::from).collect());
        let plain = ["rpcrdma", "mount", "nfs://h/x", "/mnt"];
        assert_eq!(with(&plain), [&plain[..], &["--background"]].concat());
        let dashes = ["rpcrdma", "mount", "--", "nfs://h/x", "/mnt"];
        let wanted = [
            "rpcrdma",
            "mount",
            "--background",
            "--",
            "nfs://h/x",
            "/mnt",
        ];
        assert_eq!(with(&dashes), wanted);
    }

    #[test]
    fn a_helper_of_mount_takes_its_arguments() {
        let given = [
            "/sbin/mount.fuse.rpcrdma",
            "nfs://h/x",
            "/mnt",
            "-s",
            "-n",
            "-o",
            "rw,nconnect=4",
            "-t",
            "fuse.rpcrdma",
        ];
        let wanted = [
            "rpcrdma",
            "mount",
            "nfs://h/x",
            "/mnt",
            "-o",
            "rw,nconnect=4",
        ];
        assert_eq!(words(&given, false), wanted);
        let other = ["/usr/bin/rpcrdma", "mount", "-f", "-s"];
        assert_eq!(words(&other, true), other);
    }

    #[test]
    fn the_defaults_of_mount_hold_for_root_unless_it_says_otherwise() {
        let defaults = |options: &str| {
            let given = ["/sbin/mount.rpcrdma", "h:/x", "/mnt", "-o", options];
            let words = words(&given, true);
            assert_eq!(words[words.len() - 4..], given[1..]);
            words[2..words.len() - 4].join(" ")
        };
        assert_eq!(defaults("rw"), "-o suid,dev,exec,async,symfollow");
        assert_eq!(
            defaults("rw,noexec,nosuid,nodev,user"),
            "-o async,symfollow"
        );
        assert_eq!(defaults("nosuid,dev,exec,sync,nosymfollow"), "");
    }
}
