//! Runs a case of a hostile server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::perform::Performer;
use super::victim::Victim;
use super::{Case, Outcome};
use crate::rig::Fixture;
use crate::stream::{PATIENCE, SMALL};
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
    let gateway = fixture.lead_to(address);
    let (done, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let performer = Performer {
        listener,
        case,
        done: &done,
        ended: &ended,
        form: fixture.form,
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| performer.perform());
        // If the client panics, the hostile server must still be told that the case has ended.
        let seen = catch_unwind(AssertUnwindSafe(|| {
            watch(case, fixture, (address, gateway))
        }));
        let seen = seen.unwrap_or_else(|_| Err(wrong("the client panicked")));
        // A gateway ends a connection to the server some time after the client has left.
        let start = Instant::now();
        while gateway.is_some()
            && seen.is_ok()
            && case.end != End::Lives
            && !ended.load(Ordering::Acquire)
            && !thread.is_finished()
            && start.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(5));
        }
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

/// Returns the outcome of a client's operation by a gateway. The gateway is what is attacked, and the client has an
/// honest peer: what a client would report as an error of RPC-over-RDMA is SYSTEM_ERR to it. Cases whose error reaches
/// the client say so.
fn by_gateway(case: &Case) -> Outcome {
    match (case.relayed, case.outcome) {
        (Some(outcome), _) => outcome,
        // The gateway cannot reach the server, and ends the client's connection. The next attempt succeeds.
        (None, Outcome::NoConnection | Outcome::NoAnswer) => Outcome::Right,
        (None, Outcome::Chunk | Outcome::Protocol) => Outcome::Refused,
        (None, outcome) => outcome,
    }
}

/// Makes the client perform the case's operation, and checks the outcome. The client connects to the server or, where
/// there is one, to the gateway.
fn watch(
    case: &Case,
    fixture: &Fixture,
    (server, gateway): (SocketAddr, Option<SocketAddr>),
) -> Result<(), Wrong> {
    let runtime = fixture.bystander.runtime();
    let mut victim = match gateway {
        Some(_) => Victim::behind_gateway(runtime, case),
        None => Victim::new(runtime, case, fixture.form)?,
    };
    let outcome = victim.act(gateway.unwrap_or(server), case);
    let expected = match (gateway, case.outcome) {
        (Some(_), _) => by_gateway(case),
        (None, Outcome::NoAnswer) => Outcome::NoConnection,
        (None, other) => other,
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
