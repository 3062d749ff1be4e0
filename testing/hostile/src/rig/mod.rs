//! The honest side: a server, and a client of it that was connected before the attack and must not
//! be affected.

mod bystander;
mod gateway;
mod limits;
mod serve;
mod switch;

use std::net::SocketAddr;
use std::time::Instant;

use rdma::Pool;
use rpc_transport::Runtime;
use rpc_transport::rdma::Version;
pub use rpcrdma_conform::cases::content;

pub use bystander::Bystander;
pub(crate) use bystander::root;
pub use limits::{BYSTANDER_POOL, Limits, SERVER, VICTIM_POOL};
pub(crate) use limits::{CALLBACKS, CREDITS, SEGMENT, features};
pub use serve::{EXPORT, Served, Timeouts};

use self::gateway::{Gateway, To};
use crate::stream::PATIENCE;
use crate::{Wrong, wrong};

/// The version that hostile peers and those under attack use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Version 1, the only one that the peer under attack supports.
    First,
    /// Version 2, with scripts of version 1 translated to it.
    Translated,
    /// Version 2. The peers under attack support all features.
    Second,
    /// The working group's version 2 (version-two-07). The peers under attack support data
    /// placement.
    Wg,
}

impl Form {
    /// Returns the version.
    pub(crate) fn version(self) -> Version {
        match self {
            Self::First => Version::ONE,
            Self::Translated | Self::Second => Version::TWO,
            Self::Wg => Version::TWO_WG,
        }
    }
}

/// The resources that the server and this process hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    /// The bytes of the server's pool, and of that of the gateway to it: receives, fetched chunks, replies being
    /// sent.
    server: usize,
    /// The bytes of the bystander's pool.
    bystander: usize,
    /// The number of file descriptors.
    descriptors: usize,
}

impl Holdings {
    fn is_within(&self, before: &Self) -> bool {
        self.server <= before.server
            && self.bystander <= before.bystander
            && self.descriptors <= before.descriptors
    }
}

/// The maximum length of a READ's data with the record around it, bytes.
const LONGEST_REPLY: usize = (1 << 20) + (64 << 10);
/// The number of round trips in which the resources without a hostile peer are determined.
const SETTLING: usize = 32;

/// A test fixture: a server and its bystander.
#[derive(Debug)]
pub struct Fixture {
    /// The gateway that clients come by, if there is one. It ends before the server.
    gateway: Option<Gateway>,
    served: Served,
    /// The client that has been connected from the start.
    pub bystander: Bystander,
    before: Holdings,
    reconnects: u64,
    /// The version that hostile peers use.
    pub form: Form,
    /// Whether the server may close connections that are silent for a moment.
    impatient: bool,
}

impl Fixture {
    /// Starts a server, connects the bystander, and records the resources that they hold.
    ///
    /// # Errors
    /// The system or the server refused, or the server returns wrong data.
    pub fn start(timeouts: Timeouts, form: Form) -> Result<Self, Wrong> {
        Self::before(None, Served::start(timeouts, form)?, timeouts, form)
    }

    /// Starts a server and a gateway to it, which all clients come by, the bystander included.
    ///
    /// # Errors
    /// Errors of [`Fixture::start`].
    pub fn start_behind_gateway(timeouts: Timeouts, form: Form) -> Result<Self, Wrong> {
        // What ends connections is the gateway, not the server that it has connections to.
        let served = Served::start(Timeouts::LONG, form)?;
        let gateway = Gateway::start(timeouts, form, To::Tcp(served.tcp))?;
        Self::before(Some(gateway), served, timeouts, form)
    }

    /// Starts a server and a gateway that reaches it by RDMA, as well as hostile servers instead of it
    /// (`Fixture::lead_to`). The bystander comes by the gateway, which passes calls of servers to clients over TCP or
    /// does not.
    ///
    /// # Errors
    /// Errors of [`Fixture::start`].
    pub fn start_before_servers(
        timeouts: Timeouts,
        form: Form,
        callbacks: bool,
    ) -> Result<Self, Wrong> {
        let served = Served::start(Timeouts::LONG, form)?;
        let to = To::Rdma(served.address, callbacks);
        let gateway = Gateway::start(timeouts, form, to)?;
        Self::before(Some(gateway), served, timeouts, form)
    }

    /// Leads connections that the gateway makes from now on to this server. Returns the address for TCP of the gateway,
    /// or `None` if there is none that does so ([`Fixture::start_before_servers`]).
    pub(crate) fn lead_to(&self, server: SocketAddr) -> Option<SocketAddr> {
        let gateway = self.gateway.as_ref()?;
        gateway.switch.as_ref()?.set_server(server);
        Some(gateway.tcp)
    }

    fn before(
        gateway: Option<Gateway>,
        served: Served,
        timeouts: Timeouts,
        form: Form,
    ) -> Result<Self, Wrong> {
        let runtime = Runtime::new().map_err(wrong)?;
        let address = gateway.as_ref().map_or(served.address, |it| it.address);
        let mut bystander = Bystander::connect(runtime, address, form)?;
        bystander.works()?;
        let mut fixture = Self {
            before: Holdings {
                server: 0,
                bystander: 0,
                descriptors: 0,
            },
            reconnects: 0,
            form,
            impatient: timeouts.are_short(),
            bystander,
            gateway,
            served,
        };
        // First, the resources of the last call are released. Then the range of resources that an
        // idle client holds is determined: it varies by one receive, because receives are reposted
        // after the reply. A leak of that size is detected when it occurs a second time.
        for round in 0..2 * SETTLING {
            fixture.bystander.null()?;
            if round >= SETTLING {
                let now = fixture.holdings()?;
                fixture.before.server = fixture.before.server.max(now.server);
                fixture.before.bystander = fixture.before.bystander.max(now.bystander);
                fixture.before.descriptors = now.descriptors;
            }
        }
        Ok(fixture)
    }

    /// Returns the address for RDMA of the server, or of the gateway to it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let gateway = self.gateway.as_ref();
        gateway.map_or(self.served.address, |it| it.address)
    }

    /// Returns the address for TCP of the server, or of the gateway to it.
    #[must_use]
    pub fn tcp(&self) -> SocketAddr {
        let gateway = self.gateway.as_ref();
        gateway.map_or(self.served.tcp, |it| it.tcp)
    }

    /// Returns the number of bytes that this process may have allocated at any time.
    #[must_use]
    pub fn bound(&self) -> usize {
        SERVER.bound() + self.gateway.as_ref().map_or(0, |_| SERVER.gateway())
    }

    /// Returns the number of bytes by which a case may cost more because of a gateway: the reply of the longest READ,
    /// which the gateway holds while the server still does.
    #[must_use]
    pub fn passing(&self) -> usize {
        self.gateway.as_ref().map_or(0, |_| LONGEST_REPLY)
    }

    /// Returns the bytes that are in use of the pools of the server and of the gateway to it.
    fn in_use(&self) -> usize {
        let gateway = self.gateway.as_ref();
        self.served.pool.in_use() + gateway.map_or(0, |it| it.pool.in_use())
    }

    /// Waits until the server has released the resources that an attack made it hold, although the
    /// attackers keep their connections open. The bystander works all the time.
    ///
    /// # Errors
    /// The server does not release them, or the bystander is affected.
    pub fn lets_go(&mut self) -> Result<(), Wrong> {
        let start = Instant::now();
        while self.in_use() > self.before.server {
            if start.elapsed() > PATIENCE {
                let (held, before) = (self.in_use(), self.before.server);
                return Err(wrong(format!(
                    "{held} bytes are held, {before} were before"
                )));
            }
            self.bystander.works()?;
        }
        Ok(())
    }

    /// Returns the server's pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.served.pool
    }

    fn holdings(&self) -> Result<Holdings, Wrong> {
        let descriptors = std::fs::read_dir("/proc/self/fd").map_err(wrong)?.count();
        Ok(Holdings {
            server: self.in_use(),
            bystander: self.bystander.pool.in_use(),
            descriptors,
        })
    }

    /// Checks that all resources that an attack made the server hold are released, and that the
    /// bystander's connection, which must be the same, still transfers the right data.
    ///
    /// # Errors
    /// One of these checks failed.
    pub fn unharmed(&mut self) -> Result<(), Wrong> {
        if !self.served.runs() {
            return Err(wrong("the server has ended"));
        }
        if self.gateway.as_ref().is_some_and(|it| !it.runs()) {
            return Err(wrong("the gateway has ended"));
        }
        self.bystander.works()?;
        let reconnects = self.bystander.reconnects();
        if reconnects != self.reconnects && !self.impatient {
            return Err(wrong("the bystander had to connect again"));
        }
        self.reconnects = reconnects;
        let start = Instant::now();
        loop {
            let now = self.holdings()?;
            if now.is_within(&self.before) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(wrong(format!("held before {:?}, now {now:?}", self.before)));
            }
            // A round trip gives the server's loop a turn.
            self.bystander.null()?;
        }
    }
}
