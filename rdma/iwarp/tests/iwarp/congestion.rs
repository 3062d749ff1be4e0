//! The congestion control of sockets, as the system reports it.

use std::fs;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

use iwarp::Options;
use rdma::Device;
use rpcrdma_host::CongestionControl;
use rustix::net::getsockname;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::node::{Node, PATIENCE, connect_options};
use crate::raw::{REQUEST, Raw, idle};

/// Returns a congestion control that is not the system's, if this process may choose one.
fn unusual() -> Option<CongestionControl> {
    let usual = CongestionControl::of_system().unwrap();
    let mut names = ["reno", "cubic"]
        .map(|name| name.parse().unwrap())
        .into_iter();
    names.find(|other: &CongestionControl| *other != usual && other.check().is_ok())
}

/// Returns a copy of the descriptor of this process's socket with this address.
fn socket_at(address: SocketAddr) -> OwnedFd {
    let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse());
    // Other tests open and close descriptors meanwhile.
    let mut copies = numbers
        .filter_map(|number| pidfd_getfd(&process, number.unwrap(), PidfdGetfdFlags::empty()).ok());
    let is_it = |copy: &OwnedFd| getsockname(copy).is_ok_and(|own| own == address.into());
    copies.find(is_it).unwrap()
}

/// Accepts the node's next connection. Returns it, and the congestion control of the node's end.
fn accept(listener: &TcpListener, node: &mut Node) -> (TcpStream, CongestionControl) {
    listener.set_nonblocking(true).unwrap();
    let start = Instant::now();
    loop {
        idle(node);
        if let Ok((socket, peer)) = listener.accept() {
            return (socket, CongestionControl::of(socket_at(peer)).unwrap());
        }
        assert!(start.elapsed() < PATIENCE, "no connection");
    }
}

#[test]
fn an_initiator_has_its_congestion_control_on_the_connection_of_revision_1_too() {
    let Some(congestion) = unusual() else {
        eprintln!("left out: the system has no other congestion control for this process");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Node::new(Options {
        congestion: Some(congestion.clone()),
        ..Options::default()
    });
    let address = listener.local_addr().unwrap();
    node.device.connect(address, &connect_options()).unwrap();
    for revision in [2, 1] {
        let (socket, found) = accept(&listener, &mut node);
        assert_eq!(found, congestion, "MPA revision {revision}");
        let mut raw = Raw::over(socket);
        assert_eq!(raw.read_frame(REQUEST, &mut node).1, revision);
        raw.socket.shutdown(Shutdown::Both).unwrap();
    }
}
