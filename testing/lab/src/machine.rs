//! QEMU: its arguments, and its process.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::build::Built;
use crate::command::kill_group;
use crate::error::Error;
use crate::protocol::Lines;

/// The address of the host in the guest: QEMU's user networking.
pub const HOST: &str = "10.0.2.2";
/// There is no PIT. On a busy machine the guest's kernel would calibrate its TSC wrongly by it,
/// prefer the PIT to the HPET, and have a clock that runs up to three times too fast.
const MACHINE: &str = "q35,pit=off";
/// All CPU features except those that make emulation slow. With the first two, kernel and C library
/// copy memory byte by byte; the third makes each system call enable and disable access to user
/// memory; the last adds a fifth page table level. Without them, work on a mount takes a fifth less
/// time.
const CPU: &str = "max,-erms,-fsrm,-smap,-la57";
/// The memory of the guest.
const MEMORY: &str = "2G";
/// The maximum number of processors of a guest. With Debian 12's own QEMU, two of them lose a race
/// in int3 handling.
const PROCESSORS: usize = 2;
/// The kernel's command line. `panic=-1` restarts at once, which `-no-reboot` turns into the end.
/// The timer options skip a check that fails on a busy host and makes the kernel panic. The rest
/// disables hardening against local users, which is expensive in emulation and pointless in the
/// lab.
const KERNEL: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off nokaslr \
                      tsc=reliable no_timer_check init_on_alloc=0 hardened_usercopy=off \
                      randomize_kstack_offset=off lsm=capability audit=0 preempt=none";
/// The maximum number of lines that wait to be read.
const QUEUE: usize = 1024;

/// Returns the number of processors for each of `guests` guests that run at the same time: its
/// share of the host's. With more, emulated processors that wait for each other while the host runs
/// another guest's would be slower than one.
#[must_use]
pub fn processors(guests: usize) -> usize {
    share(
        thread::available_parallelism().map_or(1, usize::from),
        guests,
    )
}

fn share(processors: usize, guests: usize) -> usize {
    (processors / guests.max(1)).clamp(1, PROCESSORS)
}

/// The parameters of a machine.
#[derive(Debug)]
pub struct Spec<'a> {
    /// The files to boot from.
    pub built: &'a Built,
    /// The directory that is shared with the host.
    pub share: &'a Path,
    /// The file for the kernel's console.
    pub console: &'a Path,
    /// Pairs of a host port and the guest port that it is forwarded to.
    pub forwards: &'a [(u16, u16)],
    /// The file for a capture of its network device, if any.
    pub capture: Option<&'a Path>,
    /// The number of its processors.
    pub processors: usize,
}

impl Spec<'_> {
    fn program(&self) -> PathBuf {
        self.built.qemu.join("usr/bin/qemu-system-x86_64")
    }

    /// Returns QEMU's arguments. The lane's serial line is standard input and output.
    fn arguments(&self) -> Vec<OsString> {
        let path = |before: &str, path: &Path, after: &str| {
            let mut word = OsString::from(before);
            word.push(path);
            word.push(after);
            word
        };
        let firmware = ["seabios", "qemu"];
        let firmware = firmware.map(|name| self.built.qemu.join("usr/share").join(name));
        let mut all: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| all.extend(words.iter().map(OsString::from));
        add(&[
            "-machine",
            MACHINE,
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            CPU,
        ]);
        add(&["-smp", &self.processors.to_string(), "-m", MEMORY]);
        add(&[
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]);
        add(&["-append", KERNEL]);
        add(&["-device", "virtio-rng-pci"]);
        add(&["-device", "virtio-blk-pci,drive=root"]);
        add(&["-device", "virtio-9p-pci,fsdev=share,mount_tag=lab"]);
        // No boot from the network.
        add(&["-device", "virtio-net-pci,netdev=net,romfile="]);
        let mut network = "user,id=net".to_owned();
        for (host, guest) in self.forwards {
            network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
        }
        add(&["-netdev", &network]);
        for folder in firmware {
            all.extend(["-L".into(), folder.into()]);
        }
        all.extend(["-kernel".into(), self.built.kernel.clone().into()]);
        all.extend(["-initrd".into(), self.built.initramfs.clone().into()]);
        // Writes of the guest are discarded.
        let disk = "if=none,id=root,format=raw,snapshot=on,file=";
        all.extend(["-drive".into(), path(disk, &self.built.disk, "")]);
        let share = path("local,id=share,security_model=none,path=", self.share, "");
        all.extend(["-fsdev".into(), share]);
        all.extend(["-serial".into(), path("file:", self.console, "")]);
        all.extend(["-chardev".into(), "stdio,id=lane,signal=off".into()]);
        all.extend(["-serial".into(), "chardev:lane".into()]);
        if let Some(file) = self.capture {
            let dump = path("filter-dump,id=dump,netdev=net,file=", file, "");
            all.extend(["-object".into(), dump]);
        }
        all
    }

    /// Returns QEMU's command, which ends with this process in any case.
    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(self.program())
            .args(self.arguments())
            .env(
                "LD_LIBRARY_PATH",
                self.built.qemu.join("usr/lib/x86_64-linux-gnu"),
            );
        command
    }

    /// Runs the machine on this terminal until it ends.
    ///
    /// # Errors
    /// [`Error::Start`], or [`Error::System`].
    pub fn on_terminal(&self) -> Result<(), Error> {
        let mut child = self.command().spawn().map_err(start_error)?;
        child.wait().map_err(Error::system("QEMU"))?;
        Ok(())
    }

    /// Starts the machine. The output of the lane's serial line is in [`Machine::lines`].
    ///
    /// # Errors
    /// [`Error::Start`], or [`Error::File`] for the file of QEMU's error messages.
    pub fn start(&self, complaints: &Path) -> Result<Machine, Error> {
        let complaints = File::create(complaints).map_err(Error::file(complaints))?;
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints)
            // The lab handles a SIGINT at the terminal, and ends the machine.
            .process_group(0)
            .spawn()
            .map_err(start_error)?;
        let (sender, lines) = sync_channel(QUEUE);
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || read(output, &sender));
        }
        Ok(Machine { child, lines })
    }
}

fn start_error(source: std::io::Error) -> Error {
    Error::Start {
        program: "QEMU".to_owned(),
        source,
    }
}

/// Reads lines until QEMU ends or the receiver is gone.
fn read(mut output: ChildStdout, lines: &SyncSender<String>) {
    let mut cutter = Lines::default();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        for line in cutter.feed(&bytes[..count]) {
            if lines.send(line).is_err() {
                return;
            }
        }
    }
    if let Some(line) = cutter.finish() {
        // The receiver may be gone.
        let _ = lines.send(line);
    }
}

/// A running machine, killed on drop.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    /// The guest's output. Disconnected when QEMU has ended.
    pub lines: Receiver<String>,
}

impl Machine {
    /// Kills the machine if it has not ended.
    pub fn kill(&mut self) {
        kill_group(&mut self.child);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(forwards: &[(u16, u16)], capture: Option<&Path>) -> Vec<String> {
        let cache = tempfile::tempdir().unwrap();
        let cache = crate::Cache::new(cache.path()).unwrap();
        let spec = Spec {
            built: &Built::of(&cache),
            share: Path::new("/r/share"),
            console: Path::new("/r/console.log"),
            forwards,
            capture,
            processors: 1,
        };
        let words = spec.arguments().into_iter();
        words.map(|word| word.into_string().unwrap()).collect()
    }

    fn after(words: &[String], flag: &str) -> Vec<String> {
        let pairs = words.windows(2).filter(|pair| pair[0] == flag);
        pairs.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn guests_share_processors_and_have_one_each_at_least() {
        let share = |processors| [1, 2, 3].map(|guests| share(processors, guests));
        assert_eq!(share(1), [1, 1, 1]);
        assert_eq!(share(2), [2, 1, 1]);
        assert_eq!(share(8), [2, 2, 2]);
    }

    #[test]
    fn the_flags_that_were_found_to_work() {
        let words = arguments(&[], None);
        assert_eq!(after(&words, "-machine"), ["q35,pit=off"]);
        assert_eq!(after(&words, "-accel"), ["tcg,thread=multi"]);
        assert_eq!(after(&words, "-smp"), ["1"]);
        assert!(after(&words, "-drive")[0].contains("snapshot=on"));
        // The console is the first serial line, the lane's the second.
        assert_eq!(
            after(&words, "-serial"),
            ["file:/r/console.log", "chardev:lane"]
        );
        assert_eq!(after(&words, "-netdev"), ["user,id=net"]);
        assert!(after(&words, "-object").is_empty());
    }

    #[test]
    fn ports_are_forwarded_from_loopback_only() {
        let words = arguments(&[(4001, 20049), (4002, 22)], Some(Path::new("/r/net.pcap")));
        assert_eq!(
            after(&words, "-netdev"),
            ["user,id=net,hostfwd=tcp:127.0.0.1:4001-:20049,hostfwd=tcp:127.0.0.1:4002-:22"]
        );
        assert!(after(&words, "-object")[0].ends_with("file=/r/net.pcap"));
    }
}
