//! The beginning of a run.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use rdma::Time;
use rdma_sim::{Fabric, Host, Random};
use rpc_transport::rdma::{RdmaClient, RdmaServer};
use rpc_transport::{ClientTransport, ServerTransport};
use rpcrdma_gateway::RelayOptions;
use rpcrdma_gateway::reduction::{RELAYED_ARGUMENTS, ReducerOptions};
use rpcrdma_host::Budget;

use super::answerer::{self, Answerer};
use super::callbacks::{Callbacks, Called};
use super::caller::{self, Caller};
use super::calls::{Exchange, MAX_REPLY};
use super::plan::{MEMORY, Plan};
use super::relay::{Place, RelayHost};
use super::stream::Network;
use super::stream_client::StreamClient;
use super::stream_server::StreamServer;
use super::{Alarm, FIRST_CLIENT, RELAYS, SERVER, World, address};
use crate::journal::Journal;
use crate::pools::Pools;

/// The port of clients over TCP that have only one.
const CLIENT_PORT: u16 = 700;

impl World {
    /// Starts all processes of a plan.
    pub(super) fn new(
        seed: u64,
        mut plan: Plan,
        pools: &mut Pools,
        journal: &Rc<RefCell<Journal>>,
    ) -> Result<Self, String> {
        let why = |error: &dyn fmt::Display| error.to_string();
        let mut random = plan.random.clone();
        let fabric = Fabric::new(seed, plan.costs.clone(), plan.late.clone());
        fabric.watch(Rc::clone(journal) as Rc<RefCell<_>>);
        let (attributes, interrupt) = (plan.attributes.clone(), plan.interrupt);
        let host = |at: usize, pool| Host {
            address: address(at),
            attributes: attributes.clone(),
            pool,
            interrupt,
        };
        let compounds = plan.compounds;
        let of_client = |(client, &count): (usize, &usize)| {
            let each = (0..count).map(|index| Exchange::nth(client, index, compounds, &mut random));
            each.collect::<Vec<_>>()
        };
        let exchanges: Vec<_> = plan.calls.iter().enumerate().map(of_client).collect();
        // A hop of TCP is as long as the link.
        let delays = (plan.costs.up.delay, plan.late.late_arrival);
        let network = Network::new(&fabric, journal, delays, Random::new(random.next()));
        let called = Random::new(random.next());
        let callbacks = plan.callbacks.then(|| Callbacks::new(called));
        let pool = pools.take(MEMORY);
        let device = fabric.host(host(SERVER, pool.clone()));
        let device = device.map_err(|error| why(&error))?;
        let node = device.node();
        let port: Box<dyn ServerTransport> = match plan.hops[2].server() {
            Some(options) => {
                let mut port = RdmaServer::new(Box::new(device), options);
                port.set_reduced_arguments(RELAYED_ARGUMENTS);
                port.listen(address(SERVER)).map_err(|error| why(&error))?;
                Box::new(port)
            }
            None => {
                let memory = (pool, Budget::default());
                let at = (node, address(SERVER));
                Box::new(StreamServer::listen(&network, at, memory))
            }
        };
        let own = Random::new(random.next());
        let rules = answerer::Rules {
            longest: plan.longest_job,
            may_be_refused: plan.may_refuse(),
        };
        let rules = (rules, callbacks.clone().map(Called::new));
        let answerer = Answerer::new(node, port, exchanges.clone(), own, rules);
        fabric.turn_at(node, Time::ZERO);
        let mut place = |at: usize| {
            let pool = pools.take(MEMORY);
            let server = [RELAYS[1][0], SERVER][at];
            Place {
                hosts: RELAYS[at].map(|it| host(it, pool.clone())),
                hops: [plan.hops[at].clone(), plan.hops[at + 1].clone()],
                network: network.clone(),
                budget: plan.budgets[at],
                options: RelayOptions {
                    reducer: ReducerOptions {
                        max_reply: MAX_REPLY,
                        ..ReducerOptions::default()
                    },
                    ..RelayOptions::new(address(server))
                },
            }
        };
        let places = [place(0), place(1)];
        let start = |place: &Place| RelayHost::start(&fabric, place).map_err(|error| why(&error));
        let relays = [Some(start(&places[0])?), Some(start(&places[1])?)];
        let mut callers = Vec::new();
        let rules = caller::Rules {
            max_items: plan.hops[0].max_items(),
            may_be_refused: plan.may_refuse(),
            callbacks,
            longest: plan.longest_job,
        };
        for (client, exchanges) in exchanges.into_iter().enumerate() {
            let (at, pool) = (FIRST_CLIENT + client, pools.take(MEMORY));
            let device = fabric.host(host(at, pool.clone()));
            let device = device.map_err(|error| why(&error))?;
            let node = device.node();
            let port: Box<dyn ClientTransport> = match plan.hops[0].client() {
                Some(options) => Box::new(RdmaClient::new(Box::new(device), options)),
                None => {
                    let port = if plan.same_port { CLIENT_PORT } else { 0 };
                    let from = SocketAddr::new(address(at).ip(), port);
                    Box::new(StreamClient::new(&network, node, from, pool))
                }
            };
            let (relay, own) = (address(RELAYS[0][0]), Random::new(random.next()));
            let port = (port, rules.clone());
            callers.push(Caller::new((client, node), port, relay, exchanges, own));
            fabric.turn_at(node, Time::ZERO);
        }
        let faults = std::mem::take(&mut plan.faults);
        let mut world = Self {
            given: vec![BTreeSet::new(); callers.len()],
            fabric,
            plan,
            random,
            journal: Rc::clone(journal),
            places,
            relays,
            greedy: [Vec::new(), Vec::new()],
            network,
            callers,
            answerer,
            alarms: Vec::new(),
            turns: 0,
            waits: 0,
        };
        for &(after, fault) in &faults {
            world.alarm(Time::ZERO + after, Alarm::Fault(fault));
        }
        world.plan.faults = faults;
        Ok(world)
    }
}
