//! The number of threads that serve connections (`--threads`).

use std::thread;

use rpcrdma_setup::Failure;
use rpcrdma_setup::device::DeviceName;

use crate::args::{ServeArgs, Threads};

/// The receive memory of a thread that `auto` does not go below, bytes: more than the receives of one
/// client with 64 credits, for data of 64 KiB each. With less, clients would wait for receives of
/// their thread while those of another one lie unused.
const RECEIVES: usize = 8 << 20;

/// The number of descriptors for each thread that `auto` makes.
const DESCRIPTORS: u64 = 64;
/// The descriptors that each thread after the first one has open, beside connections: its poll loop,
/// its device and the sockets that listen.
const OF_A_THREAD: u64 = 16;

/// The number of threads, before the resources are known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The number, or the maximum for `auto`.
    pub(super) most: usize,
    /// Whether fewer are made where there is little memory.
    is_auto: bool,
    /// Why `auto` is one thread here, if it is not for the number of processors.
    pub(super) single: Option<String>,
}

impl Wanted {
    /// Returns the number of threads for these arguments. `processors`: the number that the process
    /// may use.
    ///
    /// # Errors
    /// Several threads were asked for where there can be only one.
    pub(super) fn new(args: &ServeArgs, processors: usize) -> Result<Self, Failure> {
        let never = only_one(args);
        match (args.threads, never) {
            (Threads::Number(threads @ 2..), Some((option, why))) => Err(Failure::Usage(format!(
                "--threads {threads}: not with {option}: {why}; leave out --threads, or start a \
                 server for each thread, with ports of their own"
            ))),
            (Threads::Number(threads), _) => Ok(Self {
                most: usize::from(threads),
                is_auto: false,
                single: None,
            }),
            (Threads::Auto, never) => {
                let spins = args.busy_poll.then(|| {
                    let why = "each thread would keep a processor busy; --threads N allows that";
                    ("--busy-poll".to_owned(), why)
                });
                let single = never.or(spins);
                Ok(Self {
                    most: match single {
                        Some(_) => 1,
                        None => processors.clamp(1, usize::from(Threads::MOST)),
                    },
                    is_auto: true,
                    single: single.map(|(option, why)| format!("{option}: {why}")),
                })
            }
        }
    }

    /// Returns the number of threads of a process that may have this number of descriptors.
    pub(super) fn with_descriptors(&self, descriptors: u64) -> usize {
        self.at_most(usize::try_from(descriptors / DESCRIPTORS).unwrap_or(usize::MAX))
    }

    /// Returns the number of threads that share this memory for receives, bytes.
    pub(super) fn with_receives(&self, memory: usize) -> usize {
        self.at_most(memory / RECEIVES)
    }

    fn at_most(&self, threads: usize) -> usize {
        match self.is_auto {
            true => self.most.min(threads).max(1),
            false => self.most,
        }
    }
}

/// Returns the option with which all connections have to be served by one thread, and the reason.
fn only_one(args: &ServeArgs) -> Option<(String, &'static str)> {
    if args.device != DeviceName::Iwarp {
        let why = "a verbs device has one listener and one completion channel here, so one thread \
                   serves its connections";
        return Some((format!("--device {}", args.device), why));
    }
    let why = "what several threads send is not limited together";
    args.rate.map(|_| ("--rate".to_owned(), why))
}

/// Returns how many descriptors are left for all else when there are this many threads.
pub(super) fn other_descriptors(descriptors: u64, threads: usize) -> u64 {
    descriptors.saturating_sub((threads as u64 - 1) * OF_A_THREAD)
}

/// Returns the number of processors that this process may use, by its affinity and by the limits of
/// its control group.
pub(super) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn wanted(args: &[&str]) -> Result<Wanted, String> {
        let line = Line::try_parse_from([&["serve", "--memory"], args].concat()).unwrap();
        Wanted::new(&line.serve, 8).map_err(|error| error.to_string())
    }

    #[test]
    fn every_processor_has_a_thread_unless_told_otherwise() {
        for args in [&[][..], &["--threads", "auto"]] {
            let wanted = wanted(args).unwrap();
            assert_eq!((wanted.most, &wanted.single), (8, &None));
            assert_eq!(wanted.with_receives(512 << 20), 8);
        }
        assert_eq!(wanted(&["--threads", "3"]).unwrap().most, 3);
        let line = Line::try_parse_from(["serve", "--memory"]).unwrap();
        let many = Wanted::new(&line.serve, 1000).unwrap();
        assert_eq!(many.most, usize::from(Threads::MOST));
    }

    #[test]
    fn auto_makes_no_threads_that_hardly_have_memory_or_descriptors() {
        let auto = wanted(&[]).unwrap();
        assert_eq!(auto.with_descriptors(1024), 8);
        assert_eq!(auto.with_descriptors(256), 4);
        assert_eq!(auto.with_descriptors(10), 1);
        assert_eq!(
            (other_descriptors(256, 4), other_descriptors(10, 1)),
            (208, 10)
        );
        assert_eq!(auto.with_receives(17 << 20), 2);
        assert_eq!(auto.with_receives(1), 1);
        assert_eq!(wanted(&["--threads", "3"]).unwrap().with_receives(1), 3);
    }

    #[test]
    fn where_there_can_be_one_thread_the_reason_is_said() {
        for (args, word) in [
            (&["--device", "verbs"][..], "--device verbs"),
            (&["--rate", "1g"], "--rate"),
            (&["--busy-poll"], "--busy-poll"),
        ] {
            let auto = wanted(args).unwrap();
            assert_eq!(auto.most, 1);
            assert!(auto.single.unwrap().contains(word), "{word}");
            let one = wanted(&[args, &["--threads", "1"]].concat()).unwrap();
            assert_eq!((one.most, one.single), (1, None));
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
