//! Commands that work on files of a server.

mod copy;
mod list;
mod make;
mod remove;
mod report;
mod standard_input;

use nfs_binding::client::NfsUrl;
use rpcrdma_setup::Failure;

use crate::output;
pub(crate) use copy::{cat, get, put};
pub(crate) use list::{exports, ls, stat};
pub(crate) use make::mkdir;
pub(crate) use remove::rm;

/// Reads a URL from the command line.
///
/// # Errors
/// The text is not an NFS URL.
pub(crate) fn url(text: &str) -> Result<NfsUrl, Failure> {
    text.parse().map_err(|error| {
        let advice = match text.contains(['/', ':']) {
            true => String::new(),
            false => format!("; `rpcrdma exports {text}` lists what a server exports"),
        };
        Failure::Usage(format!("{error}{advice}"))
    })
}

/// Returns the process's umask. It can only be read by setting it; no other thread creates files
/// here.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Runs `work` for each URL, also after a [`Failure::Work`]; any other failure ends the loop and is
/// returned. Returns the last `Failure::Work`; each earlier one is printed when the next occurs.
fn each(
    urls: &[String],
    mut work: impl FnMut(&NfsUrl) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // All URLs are parsed first, so that an error in the last one does not leave half of the work
    // done.
    let urls: Vec<NfsUrl> = urls
        .iter()
        .map(|text| url(text))
        .collect::<Result<_, _>>()?;
    let mut failed = None;
    for url in &urls {
        match work(url) {
            Err(failure @ Failure::Work(_)) => {
                if let Some(earlier) = failed.replace(failure) {
                    output::complain(earlier);
                }
            }
            Ok(()) => {}
            Err(failure) => return output::ended(failed.map_or(Ok(()), Err), Err(failure)),
        }
    }
    failed.map_or(Ok(()), Err)
}
