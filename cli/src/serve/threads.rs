//! The number of threads that serve connections (`--threads`).

use std::thread;

use rpc_transport::limits;
use rpcrdma_setup::Failure;

use crate::args::{ServeArgs, Threads};

/// The minimum receive memory of each thread that `auto` makes, bytes. One client with 64 credits and data
/// of 64 KiB needs 4.4 MiB, and the receives of a thread are short when half of them are used. With less,
/// clients of one thread would wait for receives while those of another one are unused.
const MIN_RECEIVE_MEMORY: usize = 16 << 20;

/// The minimum number of descriptors of the process for each thread that `auto` makes.
const MIN_DESCRIPTORS: u64 = 64;
/// `auto` adds threads only while descriptors remain for at least this many connections. A server whose
/// descriptors allow fewer prints a note.
pub(super) const FEW_CONNECTIONS: usize = 64;
/// The descriptors that are set aside for each thread after the first: its poll loop, its device and the
/// sockets that listen, but not connections.
const SET_ASIDE: u64 = 16;

/// The number of threads, before the resources are known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ThreadCount {
    /// The number, or the maximum for `auto`.
    pub(super) most: usize,
    /// Whether fewer are made where there is little memory or there are few descriptors.
    is_auto: bool,
    /// The option that makes `auto` one thread, with the reason.
    pub(super) single_reason: Option<String>,
}

impl ThreadCount {
    /// Returns the number of threads for these arguments. `processors`: the number that the process
    /// may use.
    ///
    /// # Errors
    /// Several threads were asked for where there can be only one.
    pub(super) fn new(args: &ServeArgs, processors: usize) -> Result<Self, Failure> {
        let never = only_one(args);
        match (args.threads, never) {
            (Threads::Number(threads @ 2..), Some((option, why))) => Err(Failure::Usage(format!(
                "--threads {threads}: not with {option}: {why}; leave out --threads, or start \
                 several servers on other ports"
            ))),
            (Threads::Number(threads), _) => Ok(Self {
                most: usize::from(threads),
                is_auto: false,
                single_reason: None,
            }),
            (Threads::Auto, never) => {
                let spins = args.accepting.busy_poll.then(|| {
                    let why = "each thread would keep a processor busy; use --threads N if that is wanted";
                    ("--busy-poll".to_owned(), why)
                });
                let single = never.or(spins);
                Ok(Self {
                    most: match single {
                        Some(_) => 1,
                        None => processors.clamp(1, usize::from(Threads::MOST)),
                    },
                    is_auto: true,
                    single_reason: single.map(|(option, why)| format!("{option}: {why}")),
                })
            }
        }
    }

    /// Returns the number of threads of a process that may have this number of descriptors, and as
    /// many `connections` as were asked for.
    ///
    /// # Errors
    /// The threads that were asked for leave no descriptors for connections.
    pub(super) fn limited_by_descriptors(
        &self,
        descriptors: u64,
        connections: Option<usize>,
    ) -> Result<usize, Failure> {
        if self.is_auto {
            if let Some(connections) = connections {
                let enough = |&threads: &usize| {
                    let left = descriptors_left(descriptors, threads);
                    limits::files_beside(connections, left).is_some()
                };
                return Ok((2..=self.most).rev().find(enough).unwrap_or(1));
            }
            let most = usize::try_from(descriptors / MIN_DESCRIPTORS).unwrap_or(usize::MAX);
            return Ok(max_threads(
                FEW_CONNECTIONS,
                descriptors,
                self.most.min(most),
            ));
        }
        let possible = max_threads(1, descriptors, self.most);
        match possible < self.most {
            true => Err(Failure::Usage(format!(
                "--threads {}: a limit of {descriptors} open files leaves none for connections; at most \
                 {possible} are possible: use --threads {possible} or auto, or raise the limit (`ulimit -n`)",
                self.most
            ))),
            false => Ok(self.most),
        }
    }

    /// Returns the number of threads that share this memory for receives, bytes.
    pub(super) fn limited_by_receive_memory(&self, memory: usize) -> usize {
        match self.is_auto {
            true => self.most.min(memory / MIN_RECEIVE_MEMORY).max(1),
            false => self.most,
        }
    }
}

/// Returns the option with which all connections have to be served by one thread, and the reason.
fn only_one(args: &ServeArgs) -> Option<(String, &'static str)> {
    let why = "the rate would be that of each thread, not of the server";
    args.accepting.rate.map(|_| ("--rate".to_owned(), why))
}

/// Returns the maximum number of threads, from 1 to `most`, that leave descriptors for this many
/// connections. One thread is always possible.
fn max_threads(connections: usize, descriptors: u64, most: usize) -> usize {
    let enough = |&threads: &usize| {
        let left = descriptors_left(descriptors, threads);
        limits::descriptors_for_connections(left) >= connections as u64
    };
    (2..=most).rev().find(enough).unwrap_or(1)
}

/// Returns the number of descriptors that are left when those of the threads themselves are set aside.
pub(super) fn descriptors_left(descriptors: u64, threads: usize) -> u64 {
    descriptors.saturating_sub((threads as u64 - 1) * SET_ASIDE)
}

/// Returns the number of processors that this process may use, by its affinity and by the limits of
/// its control group.
pub(super) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn wanted(args: &[&str]) -> Result<ThreadCount, String> {
        let line = Line::try_parse_from([&["serve", "--memory"], args].concat()).unwrap();
        ThreadCount::new(&line.serve, 8).map_err(|error| error.to_string())
    }

    #[test]
    fn every_processor_has_a_thread_unless_told_otherwise() {
        for args in [&[][..], &["--threads", "auto"], &["--device", "verbs"]] {
            let wanted = wanted(args).unwrap();
            assert_eq!((wanted.most, &wanted.single_reason), (8, &None));
            assert_eq!(wanted.limited_by_receive_memory(512 << 20), 8);
        }
        assert_eq!(wanted(&["--threads", "3"]).unwrap().most, 3);
        let line = Line::try_parse_from(["serve", "--memory"]).unwrap();
        let many = ThreadCount::new(&line.serve, 1000).unwrap();
        assert_eq!(many.most, usize::from(Threads::MOST));
    }

    #[test]
    fn auto_makes_no_threads_that_hardly_have_memory_or_descriptors() {
        let auto = wanted(&[]).unwrap();
        let limited = |descriptors| auto.limited_by_descriptors(descriptors, None).unwrap();
        assert_eq!(limited(1024), 8);
        // With a second thread, there would be 56 connections.
        assert_eq!(limited(256), 1);
        assert_eq!(limited(272), 2);
        assert_eq!(limited(320), 5);
        assert_eq!(limited(150), 1);
        assert_eq!(limited(10), 1);
        assert_eq!(
            (descriptors_left(256, 4), descriptors_left(10, 1)),
            (208, 10)
        );
        assert_eq!(auto.limited_by_receive_memory(33 << 20), 2);
        assert_eq!(auto.limited_by_receive_memory(1), 1);
        assert_eq!(
            wanted(&["--threads", "3"])
                .unwrap()
                .limited_by_receive_memory(1),
            3
        );
    }

    #[test]
    fn threads_that_leave_no_descriptors_for_connections_are_refused() {
        let limited = |threads: &str, descriptors| {
            let wanted = wanted(&["--threads", threads]).unwrap();
            let limited = wanted.limited_by_descriptors(descriptors, None);
            limited.map_err(|error| error.to_string())
        };
        assert_eq!(limited("1", 10), Ok(1), "one can always be tried");
        assert_eq!(limited("2", 150), Ok(2));
        assert_eq!(limited("64", 1137), Ok(64));
        for (threads, descriptors, possible) in [("3", 150, 2), ("64", 150, 2), ("64", 1136, 63)] {
            let error = limited(threads, descriptors).unwrap_err();
            let advice = format!("use --threads {possible} or auto");
            assert!(error.contains(&advice), "{error}");
        }
    }

    #[test]
    fn no_more_descriptors_are_promised_than_there_are() {
        for (descriptors, threads) in [(1024, 1), (1024, 8), (4096, 64), (1 << 20, 64)] {
            let left = descriptors_left(descriptors, threads);
            let connections = limits::connections(left) as u64;
            let set_aside = descriptors - left;
            let all = set_aside + limits::file_descriptors(left) + connections + 64;
            assert!(all <= descriptors, "{all} of {descriptors}");
        }
    }

    #[test]
    fn where_there_can_be_one_thread_the_reason_is_said() {
        for (args, word) in [
            (&["--rate", "1g"][..], "--rate"),
            (&["--busy-poll"], "--busy-poll"),
        ] {
            let auto = wanted(args).unwrap();
            assert_eq!(auto.most, 1);
            assert!(auto.single_reason.unwrap().contains(word), "{word}");
            let one = wanted(&[args, &["--threads", "1"]].concat()).unwrap();
            assert_eq!((one.most, one.single_reason), (1, None));
            let three = wanted(&[args, &["--threads", "3"]].concat());
            match word {
                "--busy-poll" => assert_eq!(three.unwrap().most, 3),
                _ => {
                    let error = three.unwrap_err();
                    assert!(
                        error.contains(word) && error.contains("leave out"),
                        "{error}"
                    );
                }
            }
        }
    }
}
