//! A FUSE file system with an empty directory, which answers as much as is needed to open that.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// The length of the header of a request: length, opcode, unique number, node id, and the caller.
const IN_HEADER: usize = 40;
/// The maximum length of a request here.
const MAX_REQUEST: usize = 1 << 20;
/// `STATX_BASIC_STATS` and `STATX_BTIME` (statx(2)).
const BASIC_STATS: u32 = 0x7ff;
const BTIME: u32 = 0x800;
/// The mode of the directory.
const MODE: u32 = 0o40755;

/// A mounted file system.
pub(crate) struct Mounted {
    /// Whether the kernel has asked for the birth time (Linux 6.6).
    asked_for_birth: Arc<AtomicBool>,
    sleep: Arc<Sleep>,
}

/// Whether the daemon sleeps, and whether a request waits for it.
#[derive(Default)]
struct Sleep {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Sleep {
    fn set(&self, sleeps: bool) {
        *self.state.lock().unwrap() = (sleeps, false);
        self.changed.notify_all();
    }

    /// Waits as long as the daemon sleeps.
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.0).unwrap());
    }

    fn wait_for_request(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }
}

impl Mounted {
    /// Mounts it at `path`, with a birth time of the directory if `births` is set. It ends with its
    /// mount. Returns `None` if FUSE cannot be mounted here.
    pub(crate) fn at(path: &Path, births: bool) -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "directory"]).arg(path);
        mount.args(["-o", "fd=0,rootmode=40000,user_id=0,group_id=0"]);
        mount.stdin(device.try_clone().ok()?);
        let status = mount.status().ok()?;
        if !status.success() || status.signal().is_some() {
            return None;
        }
        let asked_for_birth = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&asked_for_birth);
        let sleep = Arc::<Sleep>::default();
        let sleeps = Arc::clone(&sleep);
        std::thread::spawn(move || serve(&device, births, &asked, &sleeps));
        Some(Self {
            asked_for_birth,
            sleep,
        })
    }

    /// Makes the daemon answer no request, or wakes it.
    pub(crate) fn set_asleep(&self, sleeps: bool) {
        self.sleep.set(sleeps);
    }

    /// Waits until a request waits for the daemon, which sleeps.
    pub(crate) fn wait_for_request(&self) {
        self.sleep.wait_for_request();
    }

    /// Returns whether the kernel has asked for the birth time.
    pub(crate) fn asked_for_birth(&self) -> bool {
        self.asked_for_birth.load(Ordering::SeqCst)
    }
}

/// Answers requests until the file system is unmounted.
fn serve(mut device: &File, births: bool, asked_for_birth: &AtomicBool, sleep: &Sleep) {
    let mut request = vec![0; MAX_REQUEST];
    while let Ok(count) = device.read(&mut request) {
        let Some(header) = request[..count].first_chunk::<IN_HEADER>() else {
            return;
        };
        let opcode = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
        match opcode {
            // FUSE_FORGET, FUSE_INTERRUPT and FUSE_BATCH_FORGET have no answer.
            2 | 36 | 42 => continue,
            _ => sleep.wait(),
        }
        let answer = match opcode {
            // FUSE_GETATTR
            3 => Some(attributes()),
            // FUSE_STATFS
            17 => Some(vec![0; 80]),
            // FUSE_INIT: version 7.31; requests with up to 4096 bytes of data.
            26 => {
                let mut answer = words(&[7, 31, 0, 0, 0, 4096]);
                answer.resize(64, 0);
                Some(answer)
            }
            // FUSE_OPENDIR
            27 => Some(vec![0; 16]),
            // FUSE_STATX
            52 => {
                asked_for_birth.store(true, Ordering::SeqCst);
                births.then(extended_attributes)
            }
            _ => None,
        };
        const NOT_SUPPORTED: u32 = -38_i32 as u32;
        let error = if answer.is_some() { 0 } else { NOT_SUPPORTED };
        let data = answer.unwrap_or_default();
        let mut reply = words(&[16 + data.len() as u32, error]);
        reply.extend(&header[8..16]);
        reply.extend(data);
        // The request may have been interrupted.
        let _ = device.write(&reply);
    }
}

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// `struct fuse_attr_out` of the directory.
fn attributes() -> Vec<u8> {
    let mut out = vec![0; 104];
    // The inode number, and mode and number of links after six numbers of 64 bits and three of 32.
    out[16] = 1;
    out[76..84].copy_from_slice(&words(&[MODE, 2]));
    out
}

/// `struct fuse_statx_out` of the directory.
fn extended_attributes() -> Vec<u8> {
    let mut out = vec![0; 288];
    out[32..36].copy_from_slice(&words(&[BASIC_STATS | BTIME]));
    // The number of links, mode, inode number, and the seconds of the birth time.
    out[48..52].copy_from_slice(&words(&[2]));
    out[60..62].copy_from_slice(&(MODE as u16).to_ne_bytes());
    out[64] = 1;
    out[112] = 1;
    out
}
