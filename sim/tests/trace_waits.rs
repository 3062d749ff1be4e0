//! Traces say what calls waited for: each kind of wait is provoked once, and is the longest part.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use onc_rpc::Message;
use rdma::trace::{End, Trace};
use rdma::{Clock, Pool, Time};
use rdma_sim::{Costs, Fabric, Faults, Host, NodeId, Turn, attributes};
use rpc_transport::rdma::{RdmaClient, RdmaClientOptions, RdmaServer, RdmaServerOptions};
use rpc_transport::{
    Armed, Call, Client, ClientOptions, Procedures, ProgramVersions, ReplyRoom, Runtime, Server,
    ServerOptions, ServiceOutcome, Stepped,
};
use rpcrdma_host::Budget;
use rpcrdma_programs::workload::{Op, Pace};
use rpcrdma_sim::{Load, Setting, load};
use rpcrdma_trace::{Options, Part, Summary, TraceFile};
use tempfile::TempDir;

/// Returns the sums of what `work` traces.
fn traced(work: impl FnOnce(Trace)) -> Summary {
    let dir = TempDir::new().unwrap();
    let options = Options {
        process: "test".to_owned(),
        virtual_time: true,
        size: 1 << 30,
        name: |_| None,
    };
    let file = TraceFile::create(&dir.path().join("trace"), options).unwrap();
    work(Trace::new(file.sink(), Clock::simulated()));
    file.finish(None).unwrap()
}

/// Returns the sums of calls with so many in flight.
fn loaded(op: Op, credits: u32, in_flight: u32) -> Summary {
    traced(|trace| {
        let mut setting = Setting {
            trace: Some(trace),
            ..Setting::default()
        };
        setting.requester.credits = credits;
        setting.responder.credits = 128;
        let of = Load {
            clients: 1,
            pace: Pace::InFlight(in_flight),
            operations: 256,
        };
        load(&setting, &op, &of).unwrap();
    })
}

#[test]
fn a_shortage_of_credits_is_blamed() {
    let summary = loaded(Op::Null, 2, 32);
    let made = summary.of(End::Requester);
    assert!(made.blamed(Part::Credit) > 200, "{summary}");
    let enough = loaded(Op::Null, 64, 32);
    assert_eq!(
        enough.of(End::Requester).blamed(Part::Credit),
        0,
        "{enough}"
    );
}

#[test]
fn a_shortage_of_memory_is_blamed() {
    // The results of so many READs are longer than the client's memory.
    let summary = loaded(Op::Read(1 << 20), 128, 128);
    let made = summary.of(End::Requester);
    assert!(made.blamed(Part::Memory) > 100, "{summary}");
    let enough = loaded(Op::Read(1 << 20), 128, 8);
    assert_eq!(
        enough.of(End::Requester).blamed(Part::Memory),
        0,
        "{enough}"
    );
}

const SERVER: NodeId = NodeId(0);
const SLOW: Duration = Duration::from_millis(5);

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host + 1), 20049).into()
}

/// Calls, and the server that they are made to.
struct Scene {
    /// The number of calls, which are made together.
    calls: u32,
    /// The bytes of arguments of each, and of results.
    bytes: (usize, usize),
    /// The time that the service takes for a call, on a worker, of which there is one.
    disk: Duration,
    /// The time for which the server does nothing when it is connected.
    stall: Duration,
    /// The entries of the server's and of the client's send queue.
    send_queues: (usize, usize),
    /// The server's memory for calls and replies.
    budget: usize,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            calls: 1,
            bytes: (0, 0),
            disk: Duration::ZERO,
            stall: Duration::ZERO,
            send_queues: (256, 256),
            budget: 64 << 20,
        }
    }
}

/// Makes one call to a server whose service takes `disk` for it, and which does nothing for `stall` when the
/// call arrives. Returns the sums.
fn one_call(disk: Duration, stall: Duration) -> Summary {
    played(&Scene {
        disk,
        stall,
        ..Scene::default()
    })
}

/// Plays a scene. Returns the sums.
fn played(scene: &Scene) -> Summary {
    let &Scene {
        calls,
        bytes: (arguments, results),
        disk,
        stall,
        ..
    } = scene;
    traced(|trace| {
        let fabric = Fabric::new(1, Costs::default(), Faults::default());
        let host = |number, max_send_wr| Host {
            address: address(number),
            attributes: rdma::Attributes {
                max_send_wr,
                ..attributes()
            },
            pool: Pool::new(64 << 20),
            interrupt: Duration::from_micros(2),
        };
        let device = fabric.host(host(0, scene.send_queues.0)).unwrap();
        assert_eq!(device.node(), SERVER);
        let clock = fabric.host_clock(SERVER);
        let options = ServerOptions {
            trace: Some(trace.clone().with_clock(clock.clone())),
            ..ServerOptions::default()
        };
        let program = ProgramVersions::only(0x4000_0001, 1);
        let service = Procedures::new(program, move |_| {
            let clock = clock.clone();
            Ok(ServiceOutcome::Later(Box::new(move || {
                clock.advance_to(clock.now() + disk);
                Ok(Message::from_payload(vec![7; results].into()))
            })))
        });
        let mut server = Server::simulated(Box::new(service), options, fabric.clock());
        let listener = RdmaServerOptions {
            budget: Budget::new(scene.budget, 1),
            ..RdmaServerOptions::new(rpcrdma_protocols::base())
        };
        let mut port = RdmaServer::new(Box::new(device), listener);
        port.listen(address(0)).unwrap();
        server.add_transport(Rc::new(RefCell::new(port))).unwrap();

        let device = fabric.host(host(1, scene.send_queues.1)).unwrap();
        let client = device.node();
        let options = ClientOptions {
            trace: Some(trace.with_clock(fabric.host_clock(client))),
            ..ClientOptions::default()
        };
        let runtime = Runtime::simulated(fabric.clock(), 1);
        let port = RdmaClientOptions::new(rpcrdma_protocols::base());
        let port = RdmaClient::new(Box::new(device), port);
        let connected = Rc::new(std::cell::Cell::new(false));
        let (of_client, told) = (runtime.clone(), Rc::clone(&connected));
        let mut work = Box::pin(async move {
            let port = Rc::new(RefCell::new(port));
            let client = Client::connect(&of_client, address(0), port, options);
            let client = client.await.unwrap();
            told.set(true);
            let call = || {
                let arguments = Message::from_payload(vec![7; arguments].into());
                let room = ReplyRoom::new(results as u32, []);
                client.call(Call::new(program, 1, arguments, room))
            };
            let all = (0..calls).map(|_| call());
            for result in join_all(all).await {
                result.unwrap();
            }
        });
        runtime.wake();
        fabric.turn_at(SERVER, Time::ZERO);
        fabric.turn_at(client, Time::ZERO);
        let mut stalls_until = None;
        while let Some(turn) = fabric.next(Time::ZERO + Duration::from_secs(10)) {
            match turn {
                Turn::Host(SERVER) => {
                    let now = fabric.now();
                    if connected.get() {
                        let until = *stalls_until.get_or_insert(now + stall);
                        if now < until {
                            fabric.turn_at(SERVER, until);
                            continue;
                        }
                    }
                    loop {
                        let progress = server.step() | server.run_job();
                        if progress {
                            continue;
                        }
                        match server.arm() {
                            Armed::Awake => {}
                            Armed::Until(until) => {
                                if let Some(until) = until {
                                    fabric.turn_at(SERVER, until);
                                }
                                break;
                            }
                        }
                    }
                }
                Turn::Host(_) => match runtime.step(work.as_mut(), 1000) {
                    Stepped::Done(()) => return,
                    Stepped::Busy => fabric.turn_at(client, fabric.now()),
                    Stepped::Idle(deadline) => {
                        if let Some(at) = deadline {
                            fabric.turn_at(client, at);
                        }
                    }
                },
                Turn::Alarm(_) => {}
            }
        }
        panic!("the call did not end");
    })
}

#[test]
fn a_slow_disk_is_blamed() {
    let summary = one_call(SLOW, Duration::ZERO);
    let served = summary.of(End::Responder);
    assert_eq!(
        (served.calls, served.blamed(Part::Service)),
        (1, 1),
        "{summary}"
    );
    assert_eq!(served.time(Part::Service), SLOW, "{summary}");
    let fast = one_call(Duration::ZERO, Duration::ZERO);
    assert_eq!(fast.of(End::Responder).blamed(Part::Service), 0, "{fast}");
}

#[test]
fn a_stalled_server_is_blamed() {
    let summary = one_call(Duration::ZERO, SLOW);
    let made = summary.of(End::Requester);
    assert_eq!((made.calls, made.blamed(Part::Remote)), (1, 1), "{summary}");
    assert!(made.time(Part::Remote) >= SLOW, "{summary}");
    // It did nothing before it took the call.
    assert!(summary.of(End::Responder).total() < SLOW, "{summary}");
}

/// The server has memory for the arguments of a few calls, and keeps them while the disk is slow.
#[test]
fn a_shortage_of_the_servers_memory_is_blamed() {
    let of = |budget| {
        played(&Scene {
            calls: 8,
            bytes: (900 << 10, 16),
            disk: SLOW,
            budget,
            ..Scene::default()
        })
    };
    let short = of(4 << 20);
    let served = short.of(End::Responder);
    assert_eq!(served.calls, 8);
    assert!(served.blamed(Part::Memory) >= 4, "{short}");
    assert!(served.time(Part::Memory) > 4 * SLOW, "{short}");
    let enough = of(64 << 20);
    let served = enough.of(End::Responder);
    assert_eq!(served.time(Part::Memory), Duration::ZERO, "{enough}");
}

/// Replies that are ready together have two entries of the server's send queue.
#[test]
fn a_reply_that_waits_for_the_send_queue_is_blamed_on_it() {
    let of = |entries| {
        played(&Scene {
            calls: 32,
            bytes: (0, 3000),
            send_queues: (entries, 256),
            ..Scene::default()
        })
    };
    let full = of(2);
    let served = full.of(End::Responder);
    assert_eq!(served.calls, 32);
    assert!(served.blamed(Part::SendQueue) > 16, "{full}");
    assert_eq!(
        full.of(End::Requester).time(Part::SendQueue),
        Duration::ZERO
    );
    let enough = of(256);
    let served = enough.of(End::Responder);
    assert_eq!(served.time(Part::SendQueue), Duration::ZERO, "{enough}");
}

#[test]
fn a_call_that_waits_for_the_send_queue_is_blamed_on_it() {
    let of = |entries| {
        played(&Scene {
            calls: 32,
            bytes: (3000, 16),
            send_queues: (256, entries),
            ..Scene::default()
        })
    };
    let full = of(2);
    let made = full.of(End::Requester);
    assert_eq!(made.calls, 32);
    assert!(made.blamed(Part::SendQueue) > 16, "{full}");
    let enough = of(256);
    let made = enough.of(End::Requester);
    assert_eq!(made.time(Part::SendQueue), Duration::ZERO, "{enough}");
}
