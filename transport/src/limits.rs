//! A server's limits on memory and file descriptors, and how they are divided.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rpcrdma_host::{Budget, GUARANTEED};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{SPARE, ServerOptions};

/// The minimum memory of a server in bytes: enough for one call of maximum length, beside receives.
pub const LEAST_MEMORY: usize = 24 << 20;
/// The minimum and maximum memory limits in bytes that are chosen by default.
const DEFAULT_LEAST: u64 = 64 << 20;
const DEFAULT_MOST: u64 = 4 << 30;
/// By default, the limit is the machine's memory divided by this number.
const MACHINE_PART: u64 = 4;
/// The limit divided by these numbers gives the memory of the reply cache, and the free memory that
/// is kept for reuse.
const REPLY_CACHE_PART: usize = 8;
const KEPT_PART: usize = 16;
/// Receives of RDMA connections get at most the rest divided by this number.
const RECEIVES_PART: usize = 3;

/// File descriptors reserved for everything but connections and files: listeners, poll loops, logs,
/// exported directories, and the [`SPARE`] connections beyond the limit.
const OTHER_DESCRIPTORS: u64 = 64;
/// The minimum number of file descriptors for files if the number of connections is given.
const LEAST_FILES: u64 = 32;
/// The number of file descriptors divided by this number may be used for files.
const FILES_PART: u64 = 2;

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of connections of all transports.
    pub connections: usize,
    /// The memory budget for calls and replies of all connections.
    pub budget: Budget,
    /// The memory for receives of RDMA connections, bytes.
    pub receives: usize,
    /// The memory for cached replies, bytes.
    pub reply_cache: usize,
    /// The free memory that is kept for reuse, bytes.
    pub kept: usize,
}

impl Limits {
    /// Divides `memory` bytes, which must be at least [`LEAST_MEMORY`]. Receives get `receives`
    /// bytes, but at most a third of what the reply cache and free memory leave. There are at most
    /// `connections` connections, and fewer if they could not use their guaranteed memory.
    #[must_use]
    pub fn new(memory: usize, receives: usize, connections: usize) -> Self {
        let reply_cache = ServerOptions::default()
            .reply_cache_bytes
            .min(memory / REPLY_CACHE_PART);
        Self::beside(reply_cache, memory, receives, connections)
    }

    /// Divides `memory` bytes as [`Limits::new`] does, for a process that caches no replies, such as a relay.
    #[must_use]
    pub fn without_reply_cache(memory: usize, receives: usize, connections: usize) -> Self {
        Self::beside(0, memory, receives, connections)
    }

    fn beside(reply_cache: usize, memory: usize, receives: usize, connections: usize) -> Self {
        let kept = memory / KEPT_PART;
        let rest = memory - reply_cache - kept;
        let receives = receives.min(rest / RECEIVES_PART);
        let rest = rest - receives;
        // Every connection must be able to use its guaranteed memory.
        let fit = rest / 2 / GUARANTEED;
        let connections = connections.min(fit).max(1);
        Self {
            connections,
            budget: Budget::new(rest, connections),
            receives,
            reply_cache,
            kept,
        }
    }

    /// Returns the number of connections that each transport and device should accept. It exceeds
    /// the limit, because connections that are being set up, or closed to make room for others,
    /// count too.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.connections.saturating_add(SPARE)
    }
}

/// Returns the default maximum number of connections of a process with this number of file
/// descriptors: [`descriptors_for_connections`], but at least 1.
#[must_use]
pub fn connections(descriptors: u64) -> usize {
    let left = descriptors_for_connections(descriptors);
    usize::try_from(left).unwrap_or(usize::MAX).max(1)
}

/// Returns how many file descriptors all exports together may hold open for files beside this
/// number of connections, or `None` if fewer than 32 would be left for them.
#[must_use]
pub fn files_beside(connections: usize, descriptors: u64) -> Option<u64> {
    let connections = u64::try_from(connections).ok()?;
    let fits = connections <= most_connections(descriptors);
    fits.then(|| descriptors - OTHER_DESCRIPTORS - connections)
}

/// Returns the maximum number of connections that may be asked for in a process with this number of
/// file descriptors ([`files_beside`]). May be 0.
#[must_use]
pub fn most_connections(descriptors: u64) -> u64 {
    descriptors.saturating_sub(OTHER_DESCRIPTORS + LEAST_FILES)
}

/// Returns how many of this number of file descriptors remain for connections after those for files
/// ([`file_descriptors`]) and 64 for everything else. May be 0.
#[must_use]
pub fn descriptors_for_connections(descriptors: u64) -> u64 {
    descriptors
        .saturating_sub(file_descriptors(descriptors))
        .saturating_sub(OTHER_DESCRIPTORS)
}

/// Returns how many file descriptors all exports together may hold open for files, in a process
/// with `descriptors` of them.
#[must_use]
pub fn file_descriptors(descriptors: u64) -> u64 {
    descriptors / FILES_PART
}

/// Raises the soft limit on file descriptors to the hard limit. Returns the limit that then
/// applies, and the result of raising it.
///
/// # Errors
/// The error of setrlimit(2). The limit is unchanged then, which deserves a warning.
pub fn raise_descriptors() -> (u64, io::Result<()>) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let now = current.unwrap_or(u64::MAX);
    if current == maximum {
        return (now, Ok(()));
    }
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => (maximum.unwrap_or(u64::MAX), Ok(())),
        Err(error) => (now, Err(error.into())),
    }
}

/// Returns a server's default memory limit: a quarter of the memory of the machine, or of its
/// control group if that is less, and between 64 MiB and 4 GiB.
#[must_use]
pub fn default_memory() -> usize {
    share(memory_here())
}

/// Returns the memory of the machine, or of its control group if that is less, bytes; `None` if it is not
/// known.
#[must_use]
pub fn memory_here() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| mem_total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_limit(&groups, Path::new("/sys/fs/cgroup"));
    lower(machine, group)
}

fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn share(total: Option<u64>) -> usize {
    let total = total.unwrap_or(0);
    let share = (total / MACHINE_PART).clamp(DEFAULT_LEAST, DEFAULT_MOST);
    usize::try_from(share).unwrap_or(DEFAULT_LEAST as usize)
}

/// Returns `MemTotal` of /proc/meminfo in bytes.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Returns the lowest memory limit of the control groups (version 1 or 2) that the process is in.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            all if all.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        lowest(&top, path, file)
    });
    limits.min()
}

/// Returns the lowest limit of a control group and its ancestors.
fn lowest(top: &Path, path: &str, file: &str) -> Option<u64> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let group = |count: usize| {
        parts[..count]
            .iter()
            .fold(top.to_owned(), |at: PathBuf, part| at.join(part))
    };
    let limit = |count: usize| {
        // Version 2 has `max` for no limit, and no file in the top group.
        let text = fs::read_to_string(group(count).join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    (0..=parts.len()).filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_always_keep_their_share_of_the_descriptors() {
        for descriptors in [256, 1024, 20_000, u64::MAX] {
            let (files, connections) = (file_descriptors(descriptors), connections(descriptors));
            assert!(files + connections as u64 + OTHER_DESCRIPTORS <= descriptors);
            assert!(files >= descriptors / 2);
        }
        assert_eq!(connections(1024), 448);
        assert_eq!(connections(20_000), 9936);
        assert_eq!(connections(10), 1, "not none, which nobody could use");
    }

    #[test]
    fn connections_that_were_asked_for_leave_the_other_descriptors_to_files() {
        assert_eq!(files_beside(10_000, 20_000), Some(9936));
        assert_eq!(files_beside(400, 1024), Some(560));
        assert_eq!(files_beside(928, 1024), Some(LEAST_FILES));
        assert_eq!(files_beside(929, 1024), None);
        assert_eq!(files_beside(usize::MAX, u64::MAX), None);
    }

    #[test]
    fn a_limit_is_parted_so_that_all_of_it_is_enough_for_every_connection() {
        for memory in [LEAST_MEMORY, 256 << 20, 4 << 30] {
            let with_cache = Limits::new(memory, 512 << 20, usize::MAX);
            let without = Limits::without_reply_cache(memory, 512 << 20, usize::MAX);
            assert!(with_cache.reply_cache > 0 && without.reply_cache == 0);
            assert!(without.budget.limit() > with_cache.budget.limit());
            for limits in [with_cache, without] {
                let Limits {
                    connections,
                    budget,
                    receives,
                    reply_cache,
                    kept,
                } = &limits;
                assert_eq!(budget.limit() + receives + reply_cache + kept, memory);
                assert!(budget.guaranteed() == GUARANTEED, "{limits:?}");
                assert!(connections * GUARANTEED <= budget.limit() / 2);
                // The longest call: 4 MiB of a file, and its headers.
                assert!(budget.largest() >= (4 << 20) + (64 << 10), "{limits:?}");
            }
        }
        let limits = Limits::new(256 << 20, 512 << 20, usize::MAX);
        assert_eq!((limits.connections, limits.accepted()), (1109, 1141));
        // Each of them may begin a message of 64 KiB and not finish it, except a few.
        assert!(limits.receives / (68 << 10) > 1024, "{limits:?}");
        // Nothing is set aside for receives that were not asked for.
        assert_eq!(Limits::new(256 << 20, 0, usize::MAX).connections, 1664);
        assert_eq!(Limits::new(256 << 20, 0, 7).connections, 7);
        assert!(Limits::new(2 << 30, 512 << 20, usize::MAX).connections > 10_000);
    }

    #[test]
    fn a_quarter_of_what_there_is_is_taken_within_reason() {
        let mib = 1 << 20;
        assert_eq!(share(lower(Some(2048 * mib), None)), 512 << 20);
        assert_eq!(share(lower(Some(2048 * mib), Some(1024 * mib))), 256 << 20);
        // The value that control groups of version 1 show when there is no limit.
        assert_eq!(
            share(lower(Some(2048 * mib), Some(i64::MAX as u64))),
            512 << 20
        );
        assert_eq!(share(lower(Some(100 * mib), None)), 64 << 20);
        assert_eq!(share(lower(Some(1 << 40), None)), 4 << 30);
        assert_eq!(share(lower(None, None)), 64 << 20);
    }

    #[test]
    fn what_the_system_says_is_understood() {
        let meminfo = "MemTotal:       24659128 kB\nMemFree:         1234 kB\n";
        assert_eq!(mem_total(meminfo), Some(24_659_128 << 10));
        assert_eq!(mem_total("MemFree: 1 kB"), None);
        assert!(default_memory() >= DEFAULT_LEAST as usize);
    }

    #[test]
    fn the_lowest_limit_on_the_way_to_the_top_counts() {
        let name = format!("rpcrdma-limits-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let two = root.join("a/b");
        let one = root.join("memory/c");
        for dir in [&two, &one] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(root.join("a/memory.max"), "3000\n").unwrap();
        fs::write(two.join("memory.max"), "max\n").unwrap();
        fs::write(one.join("memory.limit_in_bytes"), "4000\n").unwrap();
        assert_eq!(group_limit("0::/a/b\n", &root), Some(3000));
        assert_eq!(group_limit("0::/\n", &root), None);
        assert_eq!(group_limit("5:cpu,memory:/c\n4:cpu:/\n", &root), Some(4000));
        assert_eq!(group_limit("nonsense", &root), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
