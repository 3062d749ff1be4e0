//! Runs a case of a hostile server.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::perform::Performer;
use super::victim::Victim;
use super::{Case, Outcome};
use crate::rig::Fixture;
use crate::stream::SMALL;
use crate::{End, Wrong, wrong};

/// Runs a case against a fresh client, beside the bystander of `rig`.
///
/// # Errors
/// The first deviation from the expectation.
pub fn run(case: &Case, fixture: &mut Fixture) -> Result<(), Wrong> {
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong)?;
        let socket = socket2::SockRef::from(&listener);
        socket.set_recv_buffer_size(SMALL).map_err(wrong)?;
        against(case, fixture, &listener)?;
    }
    fixture.unharmed()
}

fn against(case: &Case, fixture: &Fixture, listener: &TcpListener) -> Result<(), Wrong> {
    let address = listener.local_addr().map_err(wrong)?;
    let done = AtomicBool::new(false);
    let performer = Performer {
        listener,
        case,
        done: &done,
        form: fixture.form,
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| performer.perform());
        // If the client panics, the hostile server must still be told that the case has ended.
        let seen = catch_unwind(AssertUnwindSafe(|| watch(case, fixture, address)));
        let seen = seen.unwrap_or_else(|_| Err(wrong("the client panicked")));
        done.store(true, Ordering::Release);
        // The server may be waiting for a connection.
        drop(TcpStream::connect(address));
        let played = thread
            .join()
            .map_err(|_| wrong("the hostile server panicked"))?;
        // The script's error explains the client's.
        played.and(seen)
    })
}

/// Makes the client perform the case's operation, and checks the outcome.
fn watch(case: &Case, fixture: &Fixture, address: std::net::SocketAddr) -> Result<(), Wrong> {
    let mut victim = Victim::new(fixture.bystander.runtime(), case, fixture.form)?;
    let outcome = victim.act(address, case);
    let expected = match case.outcome {
        Outcome::NoAnswer => Outcome::NoConnection,
        other => other,
    };
    if outcome != expected {
        return Err(wrong(format!(
            "the call ended as {outcome:?}, not {expected:?}"
        )));
    }
    // Without a connection there is nothing to check.
    if !matches!(
        outcome,
        Outcome::NoConnection | Outcome::TimedOut | Outcome::Unanswered
    ) {
        victim.null()?;
        let reconnected = victim.reconnects() > 0;
        if reconnected == (case.end == End::Lives || case.tries_again) {
            return Err(wrong(format!("{} reconnects", victim.reconnects())));
        }
        if !reconnected && victim.registered() > 0 {
            return Err(wrong("memory is still registered"));
        }
    }
    let pool = victim.pool.clone();
    drop(victim);
    match pool.in_use() {
        0 => Ok(()),
        bytes => Err(wrong(format!(
            "{bytes} bytes of the client's did not come back"
        ))),
    }
}
