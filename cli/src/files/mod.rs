//! Commands that work on a server's files.

mod copy;
mod list;
mod make;
mod remove;
mod report;

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
/// It is none.
fn url(text: &str) -> Result<NfsUrl, Failure> {
    text.parse()
        .map_err(|error| Failure::Usage(format!("{error}")))
}

/// Does `work` for each URL, also after one has failed; the last failure is returned, the others
/// are told at once.
fn each(
    urls: &[String],
    mut work: impl FnMut(&NfsUrl) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // All are read before anything is done: a slip in the last one must not leave half the work.
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
            other => other?,
        }
    }
    failed.map_or(Ok(()), Err)
}
