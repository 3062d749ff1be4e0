//! Performance of one case on connections of its own.

mod characteristics;
mod expectation;
mod hearing;
mod offering;
mod passed;
mod play;
mod sending;
mod server;
#[cfg(test)]
mod tests;

use play::{Event, LAST, Play, deviation};

use crate::case::{Case, End, opening};
use crate::dialect::Dialect;
use crate::expect::Received;
use crate::stream::Gone;
use crate::wire::{mpa, wg};

pub use server::{Failed, Performed, Server};

/// Performs a case.
#[must_use]
pub fn perform(case: &Case, server: &Server) -> Performed {
    let mut play = Play::new(server, case.dialect);
    let result = play.whole(&case.script, case.end);
    let exchange = play.exchange.lines();
    Performed { result, exchange }
}

/// Returns whether the server accepts a connection of this version and answers a NULL call.
///
/// # Errors
/// The server does otherwise, or is not there.
pub fn alive(server: &Server, dialect: Dialect) -> Result<(), Failed> {
    Play::new(server, dialect).whole(&opening(dialect), End::Lives)
}

/// Returns whether the server speaks this version, whether it keeps its rules or not.
///
/// # Errors
/// [`Failed::NotApplicable`]: the server says that it does not speak it. [`Failed::Deviation`]: it says nothing that
/// tells. [`Failed::Unreachable`]: there is no connection.
pub fn speaks(server: &Server, dialect: Dialect) -> Result<(), Failed> {
    let null = Play::new(server, dialect).null(LAST);
    // An end that knows the header types of version 2 of 2016 alone refuses both alike.
    let both = [wg::introduction(&wg::plain_properties()), null];
    let firsts = match dialect {
        Dialect::One | Dialect::Two => &both[1..],
        Dialect::Wg => &both[..],
    };
    let mut refused = None;
    for first in firsts {
        match answer_to(server, dialect, first)? {
            None => return Ok(()),
            Some(why) => refused = Some(why),
        }
    }
    refused.map_or(Ok(()), |why| {
        let text = format!("{dialect} is not spoken: {why}");
        Err(Failed::NotApplicable(text))
    })
}

/// Sends a first message. Returns what says that this version is not spoken, if anything does.
fn answer_to(server: &Server, dialect: Dialect, first: &[u8]) -> Result<Option<String>, Failed> {
    let mut play = Play::new(server, dialect);
    play.connect(&mpa::PRIVATE_DATA)?;
    play.send(first)?;
    play.within()?;
    match play.hear(&mut || true) {
        Ok(Some(Event::Message(received @ Received::Other(_), _))) => {
            let what = received.brief(dialect);
            match received.refuses(dialect) {
                true => Ok(Some(what)),
                false => Err(deviation(what)),
            }
        }
        // The first message may be lost or dropped (version-two-07, 4.3.2), by ends of version-two-07 that read one of
        // 2016, too.
        Ok(Some(Event::Ended(what))) if dialect != Dialect::One => Ok(Some(what)),
        Ok(Some(Event::Ended(what))) => Err(deviation(what)),
        Ok(Some(Event::Silence)) => Err(deviation(Gone::Late)),
        // A message of this version, or one that breaks a rule of it.
        Ok(Some(Event::Message(Received::Rpc(..), _)) | None) | Err(Failed::Deviation(_)) => {
            Ok(None)
        }
        Err(other) => Err(other),
    }
}
