//! Round trips between the gateways by count: of what a capture of their traffic shows.

use std::fs::File;

use rdma_capture::{Capture, Limits, Stopped};
use rpcrdma_reading::{At, Collected, read};
use rpcrdma_setup::{Context, Failure};

/// The number of bytes that a capture keeps of each packet: its headers and those of the message in it.
const SNAP: usize = 512;
/// The maximum number of calls of a capture that are read.
const MOST_CALLS: usize = 1 << 20;

/// The traffic of a gateway in a file without a name, of which nothing is left however the process ends.
pub(super) struct Captured {
    pub(super) capture: Capture,
    file: File,
}

impl Captured {
    /// Creates the file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn new() -> Result<Self, Failure> {
        let folder = tempfile::tempdir().context("cannot make a folder for a capture")?;
        let path = folder.path().join("between.pcapng");
        let limits = Limits {
            snap: SNAP,
            ..Limits::default()
        };
        let told = |why: &Stopped| tracing::warn!(%why, "the capture has ended early");
        let capture = Capture::create(&path, limits, 0, Box::new(told));
        let capture = capture.context("cannot create a capture")?;
        let file = File::open(&path).context("cannot open a capture")?;
        Ok(Self { capture, file })
    }

    /// Ends the capture. Returns the number of round trips of each call in the order in which they began; `None` for a
    /// call of which packets are missing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn round_trips(self) -> Result<Vec<Option<u32>>, Failure> {
        if !self.capture.try_finish() {
            return Err(Failure::work("the capture is in use"));
        }
        let mut all = Collected::up_to(MOST_CALLS);
        read(self.file, &mut all).context("cannot read a capture")?;
        if all.left_out > 0 {
            return Err(Failure::work(
                "too many calls for one capture: choose a smaller --count",
            ));
        }
        let calls = all.calls.iter();
        let mut found: Vec<(At, Option<u32>)> = calls
            .map(|call| {
                (
                    call.started,
                    (!call.is_incomplete).then(|| call.round_trips()),
                )
            })
            .collect();
        found.sort_by_key(|(started, _)| *started);
        Ok(found.into_iter().map(|(_, trips)| trips).collect())
    }
}

/// Returns for each operation the mean number of round trips of its calls, which are the last ones that were found, so many
/// of each operation, in this order. `None`: there are none, or packets of one of them are missing.
///
/// # Errors
/// Fewer calls were found.
pub(super) fn means(found: &[Option<u32>], calls: &[u64]) -> Result<Vec<Option<f64>>, Failure> {
    let wanted: u64 = calls.iter().sum();
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let Some(before) = found.len().checked_sub(wanted) else {
        let text = format!("a capture has {} calls, of {wanted}", found.len());
        return Err(Failure::Work(text));
    };
    let mut rest = &found[before..];
    let means = calls.iter().map(|&calls| {
        let (own, others) = rest.split_at(usize::try_from(calls).ok()?.min(rest.len()));
        rest = others;
        let sum: Option<u32> = own.iter().copied().sum();
        sum.filter(|_| calls > 0)
            .map(|sum| f64::from(sum) / calls as f64)
    });
    Ok(means.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_calls_are_those_of_the_operations_in_their_order() {
        let found = [Some(9), Some(1), Some(1), Some(2), Some(3), None];
        let of = |calls: &[u64]| means(&found, calls).unwrap();
        assert_eq!(of(&[2, 2, 1]), [Some(1.0), Some(2.5), None]);
        assert_eq!(of(&[0, 1]), [None, None]);
        assert!(means(&found, &[4, 3]).is_err(), "more than there are");
    }

    #[test]
    fn a_capture_leaves_no_file_behind() {
        let captured = Captured::new().unwrap();
        let found = captured.round_trips().unwrap();
        assert!(found.is_empty());
    }
}
