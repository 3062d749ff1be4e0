//! Progress and results of copies and removals.

use std::fmt;
use std::time::{Duration, Instant};

use nfs_binding::client::DisplayPath;
use nfs_copy::{CopyOptions, Report, Totals};
use rpc_transport::limits::raise_descriptors;
use rpcrdma_setup::Failure;
use rpcrdma_setup::mount_options::MountOptions;
use rpcrdma_setup::units::{count, show_amount};

use crate::interrupt::Interruptible;
use crate::output;
use crate::progress::Status;

/// The interval at which progress is shown, which is reported much more often.
const EVERY: Duration = Duration::from_millis(100);

/// Shows the progress and result of a copy.
pub(super) struct Watch {
    what: &'static str,
    recursive: bool,
    interruptible: Interruptible,
    status: Status,
    start: Instant,
    shown: Instant,
    /// The number of bytes to copy, or at least so many, if that is known.
    expected: Option<u64>,
    /// The mount options `suid` or `nosuid`, and `dev` or `nodev`, if they are given.
    given: (Option<bool>, Option<bool>),
}

impl Watch {
    /// Starts now. `what` says what happens to files, such as `copied`. `recursive` includes
    /// directories.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub(super) fn start(what: &'static str, recursive: bool) -> Result<Self, Failure> {
        if recursive {
            // With a higher limit, a copy keeps more directories open, and needs to reopen fewer.
            let (descriptors, raised) = raise_descriptors();
            tracing::debug!(descriptors, ?raised, "limit on open files");
        }
        let now = Instant::now();
        Ok(Self {
            what,
            recursive,
            interruptible: Interruptible::new()?,
            status: Status::new(),
            start: now,
            shown: now,
            expected: None,
            given: (None, None),
        })
    }

    /// Announces that regular files alone are copied, of at least `bytes`. `None`: there can be others.
    pub(super) fn expect(&mut self, bytes: Option<u64>) {
        self.expected = bytes;
    }

    /// Returns the options of a copy to a server, or of a removal: the default ones, with those of
    /// the mount options that affect copies, and with the interrupt of Ctrl-C.
    pub(super) fn options(&mut self, mount: &MountOptions) -> CopyOptions {
        // The user's own files, with all that they have.
        self.options_or(mount, true)
    }

    /// Returns the options of a copy from a server. It may be hostile, so that its set-id bits and
    /// devices are copied only if the user asks for them.
    pub(super) fn options_for_get(&mut self, mount: &MountOptions) -> CopyOptions {
        self.options_or(mount, false)
    }

    /// `usual`: whether set-id bits and devices are copied if no mount option says so.
    fn options_or(&mut self, mount: &MountOptions, usual: bool) -> CopyOptions {
        self.given = (mount.mounted.set_id, mount.mounted.devices);
        CopyOptions {
            recursive: self.recursive,
            set_id: self.given.0.unwrap_or(usual),
            devices: self.given.1.unwrap_or(usual),
            interrupt: self.interruptible.interrupt(),
            ..CopyOptions::default()
        }
    }

    /// Shows the progress.
    pub(super) fn show(&mut self, totals: &Totals) {
        if self.shown.elapsed() >= EVERY {
            self.shown = Instant::now();
            let elapsed = self.start.elapsed();
            let all = self.expected.map(|least| least.max(totals.begun));
            match all.filter(|&all| all > 0) {
                Some(all) => self.status.show(Part(self.what, totals, all, elapsed)),
                None => self.status.show(Summary(self.what, totals, elapsed)),
            }
        }
    }

    /// Prints the totals, and the errors at `at`.
    ///
    /// # Errors
    /// At least one file could not be copied or removed, or devices were left out that the user did
    /// not exclude.
    pub(super) fn finish(self, at: &impl fmt::Display, report: Report) -> Result<(), Failure> {
        let Self {
            what,
            recursive,
            interruptible,
            status,
            start,
            given,
            ..
        } = self;
        drop(status);
        let totals = &report.totals;
        // Errors are told even if nobody reads standard output any more.
        let printed = match totals.files + totals.directories + totals.others {
            0 => Ok(()),
            _ if output::is_quiet() => Ok(()),
            _ => output::line(Summary(what, totals, start.elapsed())),
        };
        if totals.bytes_again > 0 {
            let again = show_amount(totals.bytes_again);
            output::note(format_args!(
                "{again} were sent twice: the server restarted meanwhile"
            ));
        }
        if totals.owners_lost > 0 {
            let owners = count(totals.owners_lost, "owner", "owners");
            output::note(format_args!(
                "{owners} could not be kept: that is not permitted"
            ));
        }
        if totals.set_ids_left_out > 0 {
            let files = count(totals.set_ids_left_out, "file", "files");
            let why = match given.0 {
                Some(_) => "-o nosuid",
                None => "-o suid would keep them; only if you trust the server",
            };
            output::note(format_args!("{files} copied without set-id bits ({why})"));
        }
        let devices = count(totals.devices_left_out, "device", "devices");
        let devices = match (totals.devices_left_out, given.1) {
            (0, _) => None,
            (_, Some(_)) => {
                output::note(format_args!("{devices} left out (-o nodev)"));
                None
            }
            (_, None) => Some(format!(
                "{devices} left out (-o dev would copy them, only if you trust the server; -o nodev accepts that)"
            )),
        };
        if !report.unfinished.is_empty() {
            output::tell(Unfinished(&report.unfinished, recursive));
        }
        if totals.incomplete_removed > 0 {
            let files = count(
                totals.incomplete_removed,
                "incomplete file",
                "incomplete files",
            );
            let was = if totals.incomplete_removed == 1 {
                "was"
            } else {
                "were"
            };
            output::note(format_args!("{files} {was} removed from the server"));
        }
        if !report.lost.is_empty() {
            output::tell(Lost(&report.lost));
        }
        if !report.no_room.is_empty() {
            output::tell(NoRoom(&report.no_room));
        }
        if !report.leftovers.is_empty() {
            output::tell(Leftovers(&report.leftovers));
        }
        match devices {
            Some(devices) if report.is_complete() => {
                return Err(Failure::Work(format!("{at}: not complete: {devices}")));
            }
            Some(devices) => output::tell(devices),
            None => {}
        }
        if report.is_complete() {
            return printed;
        }
        if report.interrupted {
            print_problems(&report);
            return Err(interruptible.failure(at));
        }
        if let ([problem], 1) = (&report.problems[..], totals.problems)
            && !report.stopped
        {
            return Err(Failure::Work(format!("{at}: {problem}")));
        }
        print_problems(&report);
        let problems = count(totals.problems, "problem", "problems");
        let reason = match report.stopped {
            true => "given up, since the server cannot be reached any more",
            false => "not complete",
        };
        Err(Failure::Work(format!("{at}: {reason} ({problems})")))
    }
}

/// Prints the errors of a copy. Of the errors that report a full server, it prints the first and the number
/// of the others.
fn print_problems(report: &Report) {
    for problem in &report.problems {
        match report.more_no_space {
            again @ 1.. if problem.is_no_space() => {
                let more = count(again, "more entry", "more entries");
                output::complain(format_args!(
                    "{problem} (and {more} failed for the same reason)"
                ));
            }
            _ => output::complain(problem),
        }
    }
}

/// The maximum number of paths of each kind that are named.
const NAMED: usize = 10;

/// Formats the incomplete files on the server. The flag tells whether they belong to a tree.
struct Unfinished<'a>(&'a [DisplayPath], bool);

/// Writes the first of these paths, and how many more there are.
fn name(paths: &[DisplayPath], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (n, path) in paths.iter().take(NAMED).enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        write!(f, "{comma}{path}")?;
    }
    match paths.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

/// Formats the temporary names that may be left on the server.
struct Leftovers<'a>(&'a [DisplayPath]);

impl fmt::Display for Leftovers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "temporary names that may be left on the server, and are to be removed there: ",
        )?;
        name(self.0, f)
    }
}

impl fmt::Display for Unfinished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(paths, recursive) = self;
        f.write_str("not complete on the server: ")?;
        name(paths, f)?;
        let them = if paths.len() == 1 { "it" } else { "them" };
        write!(f, " (copying again completes {them}")?;
        if *recursive {
            // The target directory exists by now: without `/.`, the source would be copied into it.
            f.write_str("; if the target had a new name, copy DIR/. instead of DIR, as the target exists now")?;
        }
        f.write_str(")")
    }
}

/// Formats the incomplete files for which the server has no room, or that are too large for it.
struct NoRoom<'a>(&'a [DisplayPath]);

impl fmt::Display for NoRoom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not complete on the server, and copying again would fail as well: ")?;
        name(self.0, f)
    }
}

/// Formats the files whose earlier content is lost.
struct Lost<'a>(&'a [DisplayPath]);

impl fmt::Display for Lost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the earlier content is lost, as it was overwritten in place (cp does the same): ",
        )?;
        name(self.0, f)
    }
}

/// Formats a summary: `copied 12 files, 3 directories, 4.5 MiB in 0.2 s (22.5 MiB/s)`.
struct Summary<'a>(&'static str, &'a Totals, Duration);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, totals, elapsed) = self;
        write!(f, "{what} {}", count(totals.files, "file", "files"))?;
        if totals.directories > 0 {
            let directories = count(totals.directories, "directory", "directories");
            write!(f, ", {directories}")?;
        }
        if totals.others > 0 {
            write!(f, ", {}", count(totals.others, "other", "others"))?;
        }
        let seconds = elapsed.as_secs_f64();
        let holes = match totals.holes {
            0 => String::new(),
            holes => format!("{} of holes", show_amount(holes)),
        };
        let bytes = totals.bytes - totals.bytes_removed;
        match (bytes, totals.holes) {
            (0, 0) => {}
            (0, _) => write!(f, ", {holes}")?,
            (_, 0) => write!(f, ", {}", show_amount(bytes))?,
            _ => write!(f, ", {} and {holes}", show_amount(bytes))?,
        }
        write!(f, " in {seconds:.2} s")?;
        if bytes > 0 && seconds > 0.0 {
            let rate = show_amount((bytes as f64 / seconds) as u64);
            write!(f, " ({rate}/s)")?;
        }
        Ok(())
    }
}

/// Formats the progress of a copy of so many bytes: `copied 42 % of 4.7 GiB (210.0 MiB/s), 13 s left`.
struct Part<'a>(&'static str, &'a Totals, u64, Duration);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, totals, all, elapsed) = self;
        // A file can grow while it is copied.
        let done = (totals.bytes - totals.bytes_removed + totals.holes).min(*all);
        let percent = u128::from(done) * 100 / u128::from(*all);
        write!(f, "{what} {percent} % of {}", show_amount(*all))?;
        let seconds = elapsed.as_secs_f64();
        if done > 0 && seconds > 0.0 {
            let rate = show_amount((totals.bytes as f64 / seconds) as u64);
            let left = (all - done) as f64 * seconds / done as f64;
            let left = show_time_left(left.ceil() as u64);
            write!(f, " ({rate}/s), {left} left")?;
        }
        Ok(())
    }
}

/// Formats a number of seconds roughly: `13 s`, `2 min 5 s`, `1 h 20 min`.
fn show_time_left(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_known_size_tells_percent_and_time_left() {
        let mut totals = Totals {
            bytes: 1 << 30,
            ..Totals::default()
        };
        let part =
            |totals: &Totals| Part("copied", totals, 4 << 30, Duration::from_secs(10)).to_string();
        assert_eq!(
            part(&totals),
            "copied 25 % of 4.0 GiB (102.4 MiB/s), 30 s left"
        );
        totals.holes = 2 << 30;
        assert_eq!(
            part(&totals),
            "copied 75 % of 4.0 GiB (102.4 MiB/s), 4 s left"
        );
        totals.bytes_removed = 1 << 30;
        assert_eq!(
            part(&totals),
            "copied 50 % of 4.0 GiB (102.4 MiB/s), 10 s left"
        );
        totals.holes = 4 << 30;
        assert_eq!(
            part(&totals),
            "copied 100 % of 4.0 GiB (102.4 MiB/s), 0 s left"
        );
        assert_eq!(part(&Totals::default()), "copied 0 % of 4.0 GiB");
        assert_eq!(
            [59, 125, 4800].map(show_time_left),
            ["59 s", "2 min 5 s", "1 h 20 min"]
        );
    }

    #[test]
    fn summaries_leave_out_what_is_not_there() {
        let mut totals = Totals {
            files: 2,
            bytes: 3 << 20,
            ..Totals::default()
        };
        let second = Duration::from_secs(1);
        let text = Summary("copied", &totals, second).to_string();
        assert_eq!(text, "copied 2 files, 3.0 MiB in 1.00 s (3.0 MiB/s)");
        (totals.bytes, totals.directories) = (0, 1);
        let text = Summary("removed", &totals, second).to_string();
        assert_eq!(text, "removed 2 files, 1 directory in 1.00 s");
    }

    #[test]
    fn unfinished_files_are_named_as_far_as_that_helps() {
        let paths: Vec<DisplayPath> = (0..12u8).map(|n| [b'a' + n].as_slice().into()).collect();
        let of = |paths, recursive| Unfinished(paths, recursive).to_string();
        assert_eq!(
            of(&paths[..1], false),
            "not complete on the server: a (copying again completes it)"
        );
        assert_eq!(
            of(&paths[..2], true),
            "not complete on the server: a, b (copying again completes them; if the target had a new name, \
             copy DIR/. instead of DIR, as the target exists now)"
        );
        assert!(of(&paths, false).contains("i, j and 2 more"));
    }
}
