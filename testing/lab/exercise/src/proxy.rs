//! A proxy for TCP connections that ends them at random moments, in the middle of whatever is on its way.
//! Software iWARP runs over TCP, so RPC-over-RDMA passes it as well as RPC over TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Failure;

/// The size of a buffer, bytes.
const BUFFER: usize = 64 << 10;

/// The instructions of a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The address of the server.
    pub to: SocketAddr,
    /// The maximum time between two cuts.
    pub every: Duration,
    /// The number of cuts. `None`: no limit.
    pub cuts: Option<u64>,
    /// The seed of the moments.
    pub seed: u64,
}

/// Both ends of each connection.
type Connections = Arc<Mutex<Vec<TcpStream>>>;

/// Passes connections on. `say` gets the address to connect to, and then a line for each cut.
///
/// # Errors
/// There is no address to listen on.
pub fn run(order: &Order, say: &mut dyn FnMut(String)) -> Result<(), Failure> {
    let failed = |what| move |error: io::Error| Failure::new(format!("cannot {what}: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("listen"))?;
    let address = listener.local_addr().map_err(failed("listen"))?;
    say(format!("proxy {address}"));
    let connections = Connections::default();
    let (to, all) = (order.to, Arc::clone(&connections));
    let accepting = thread::spawn(move || {
        for client in listener.incoming() {
            // Without a server, the client sees its connection end.
            drop(client.and_then(|client| pass(client, to, &all)));
        }
    });
    let mut rng = fastrand::Rng::with_seed(order.seed);
    let mut cuts = 0;
    while order.cuts.is_none_or(|most| cuts < most) {
        let pause = order.every.mul_f64(rng.f64());
        thread::sleep(pause);
        let cut = take(&connections);
        if !cut.is_empty() {
            cuts += 1;
            say(format!("cut {cuts}: {} connections", cut.len() / 2));
        }
        for end in cut {
            // Gone already, if that fails.
            drop(end.shutdown(Shutdown::Both));
        }
    }
    // From now on it only passes connections on.
    accepting
        .join()
        .map_err(|_| Failure::new("the proxy ended".to_owned()))
}

fn take(connections: &Connections) -> Vec<TcpStream> {
    std::mem::take(&mut *connections.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Passes one connection on, in threads that end with it.
fn pass(client: TcpStream, to: SocketAddr, connections: &Connections) -> io::Result<()> {
    let server = TcpStream::connect(to)?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
    }
    let ends = [client.try_clone()?, server.try_clone()?];
    let mut all = connections.lock().unwrap_or_else(PoisonError::into_inner);
    all.extend(ends);
    drop(all);
    let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || copy(client, server));
    thread::spawn(move || copy(back_from, back_to));
    Ok(())
}

/// Copies one direction to its end.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(len) if to.write_all(&buffer[..len]).is_err() => break,
            Ok(_) => {}
        }
    }
    for end in [from, to] {
        drop(end.shutdown(Shutdown::Both));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn data_passes_until_the_connection_is_cut_and_then_again() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = server.local_addr().unwrap();
        thread::spawn(move || {
            for client in server.incoming() {
                let client = client.unwrap();
                let back = client.try_clone().unwrap();
                thread::spawn(move || copy(client, back));
            }
        });
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            let order = Order {
                to,
                every: Duration::from_millis(50),
                cuts: Some(2),
                seed: 1,
            };
            run(&order, &mut |line| send.send(line).unwrap())
        });
        let first = lines.recv().unwrap();
        let address: SocketAddr = first.strip_prefix("proxy ").unwrap().parse().unwrap();
        for cut in 1..=2 {
            let mut client = TcpStream::connect(address).unwrap();
            let mut echoed = [0; 3];
            // Echoes come back until the cut ends the connection.
            while let Ok(()) = client
                .write_all(b"abc")
                .and_then(|()| client.read_exact(&mut echoed))
            {
                assert_eq!(&echoed, b"abc");
            }
            assert_eq!(lines.recv().unwrap(), format!("cut {cut}: 1 connections"));
        }
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"abc").unwrap();
        let mut echoed = [0; 3];
        client.read_exact(&mut echoed).unwrap();
    }
}
