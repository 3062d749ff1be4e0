//! QEMU: its flags, and the one process of it that the lab started.

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

/// The host, as the guest sees it: QEMU's user networking.
pub const HOST: &str = "10.0.2.2";
/// Without a PIT: on a busy machine the guest's kernel would measure its TSC wrongly by it, take the
/// PIT's word over the HPET's, and have a clock that runs up to three times too fast.
const MACHINE: &str = "q35,pit=off";
/// All that is emulated, but for what makes emulation slow: with the first two, kernel and C library copy
/// memory byte by byte; each system call would open and close user memory; and page tables would have
/// five levels. Work on a mount takes a fifth less time without them.
const CPU: &str = "max,-erms,-fsrm,-smap,-la57";
/// Memory of the guest.
const MEMORY: &str = "2G";
/// Processors of a guest, at most. With Debian 12's own QEMU, two of them lose a race in int3 handling.
const PROCESSORS: usize = 2;
/// The kernel's words. `panic=-1` restarts at once, which `-no-reboot` makes the end. Whether the timer
/// works, a kernel finds out in a time that a busy host may not have for it, and panics. The rest leaves
/// out what hardens a kernel against its users, who are the lab's own, at a price in emulation.
const KERNEL: &str = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off nokaslr \
                      tsc=reliable no_timer_check init_on_alloc=0 hardened_usercopy=off \
                      randomize_kstack_offset=off lsm=capability audit=0 preempt=none";
/// Lines that wait to be read.
const QUEUE: usize = 1024;

/// How many processors each of so many guests gets that run at the same time: its share of the host's.
/// Emulated ones that wait for each other while the host runs another guest's take longer than one.
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

/// A machine to be started.
#[derive(Debug)]
pub struct Spec<'a> {
    /// What it boots from.
    pub built: &'a Built,
    /// The folder that it shares with the host.
    pub share: &'a Path,
    /// Where the kernel's console goes.
    pub console: &'a Path,
    /// Ports of the host, and the guest's ports that they lead to.
    pub forwards: &'a [(u16, u16)],
    /// Where to write what crosses its network device, if at all.
    pub capture: Option<&'a Path>,
    /// Its processors.
    pub processors: usize,
}

impl Spec<'_> {
    fn program(&self) -> PathBuf {
        self.built.qemu.join("usr/bin/qemu-system-x86_64")
    }

    /// All of QEMU's arguments. The lane's serial line is standard input and output.
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
        // Nothing boots from the network.
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
        // What the guest writes is forgotten.
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

    /// QEMU, to end with this process however that ends.
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

    /// Starts it on this terminal and waits for its end.
    ///
    /// # Errors
    /// [`Error::Start`], or [`Error::System`].
    pub fn on_terminal(&self) -> Result<(), Error> {
        let mut child = self.command().spawn().map_err(start_error)?;
        child.wait().map_err(Error::system("QEMU"))?;
        Ok(())
    }

    /// Starts it; what it says on the lane's serial line is in [`Machine::lines`].
    ///
    /// # Errors
    /// [`Error::Start`], or [`Error::File`] for the file of QEMU's own complaints.
    pub fn start(&self, complaints: &Path) -> Result<Machine, Error> {
        let complaints = File::create(complaints).map_err(Error::file(complaints))?;
        let mut child = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints)
            // A SIGINT at the terminal is for the lab, which ends the machine.
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

/// Reads lines until QEMU ends or nobody listens.
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
        // Nobody may listen any more.
        let _ = lines.send(line);
    }
}

/// A machine that runs. Killed when dropped.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    /// What the guest says; disconnected when QEMU has ended.
    pub lines: Receiver<String>,
}

impl Machine {
    /// Ends it, if it has not ended.
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
        // The console is the first serial line, the lane the second.
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
