//! Running a case.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::perform::Performer;
use super::victim::Victim;
use super::{Case, Outcome};
use crate::rig::Rig;
use crate::stream::SMALL;
use crate::{End, Wrong, wrong};

/// Runs a case against a fresh client, in the company of the rig's bystander.
///
/// # Errors
/// What was not as it must be.
pub fn run(case: &Case, rig: &mut Rig) -> Result<(), Wrong> {
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong)?;
        let socket = socket2::SockRef::from(&listener);
        socket.set_recv_buffer_size(SMALL).map_err(wrong)?;
        against(case, rig, &listener)?;
    }
    rig.unharmed()
}

fn against(case: &Case, rig: &Rig, listener: &TcpListener) -> Result<(), Wrong> {
    let address = listener.local_addr().map_err(wrong)?;
    let done = AtomicBool::new(false);
    let performer = Performer {
        listener,
        case,
        done: &done,
        form: rig.form,
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| performer.perform());
        // A client that panics has lost; the hostile server still waits to hear so.
        let seen = catch_unwind(AssertUnwindSafe(|| watch(case, rig, address)));
        let seen = seen.unwrap_or_else(|_| Err(wrong("the client panicked")));
        done.store(true, Ordering::Release);
        // It may wait for a connection.
        drop(TcpStream::connect(address));
        let played = thread
            .join()
            .map_err(|_| wrong("the hostile server panicked"))?;
        // What the script saw explains what the client did.
        played.and(seen)
    })
}

/// Has the client do what the case asks for, and looks at what comes of it.
fn watch(case: &Case, rig: &Rig, address: std::net::SocketAddr) -> Result<(), Wrong> {
    let mut victim = Victim::new(rig.bystander.runtime(), case, rig.form)?;
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
    // Without a connection there is nothing to look at.
    if !matches!(
        outcome,
        Outcome::NoConnection | Outcome::TimedOut | Outcome::Unanswered
    ) {
        victim.null()?;
        let reconnected = victim.reconnects() > 0;
        if reconnected == (case.end == End::Lives) {
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
