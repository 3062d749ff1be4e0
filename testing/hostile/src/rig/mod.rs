//! The honest side: a server, and a client of it that was there before the lies and must not notice
//! them.

mod bystander;
mod limits;
mod serve;

use std::net::SocketAddr;
use std::time::Instant;

use rdma::Pool;
use rpc_transport::Runtime;

pub(crate) use bystander::root;
pub use bystander::{Bystander, content};
pub(crate) use limits::features;
pub use limits::{BYSTANDER_POOL, Limits, SERVER, VICTIM_POOL};
pub use serve::{EXPORT, Served, Timeouts};

use crate::stream::PATIENCE;
use crate::{Wrong, wrong};

/// In which version hostile peers and their victims speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In version 1, which is all that the victims have.
    First,
    /// In version 2, scripts of version 1 put into its form.
    Translated,
    /// In version 2. The victims have all features.
    Second,
}

/// What a server, and this process, hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    /// Bytes of the server's pool: receives, fetched chunks, replies on their way.
    server: usize,
    /// Bytes of the bystander's.
    bystander: usize,
    /// Sockets and the like.
    descriptors: usize,
}

impl Holdings {
    fn is_within(&self, before: &Self) -> bool {
        self.server <= before.server
            && self.bystander <= before.bystander
            && self.descriptors <= before.descriptors
    }
}

/// Round trips in which what is held without any hostile peer is found out.
const SETTLING: usize = 32;

/// A server and its bystander.
#[derive(Debug)]
pub struct Rig {
    served: Served,
    /// The client that has been there all along.
    pub bystander: Bystander,
    before: Holdings,
    reconnects: u64,
    /// What is spoken with hostile peers.
    pub form: Form,
    /// Whether the server may close connections that say nothing for a moment.
    impatient: bool,
}

impl Rig {
    /// Starts a server, connects the bystander, and notes what they hold.
    ///
    /// # Errors
    /// The system or the server refused, or the server serves wrong data.
    pub fn start(timeouts: Timeouts, form: Form) -> Result<Self, Wrong> {
        let served = Served::start(timeouts, form)?;
        let runtime = Runtime::new().map_err(wrong)?;
        let mut bystander = Bystander::connect(runtime, served.address, form)?;
        bystander.works()?;
        let mut rig = Self {
            before: Holdings {
                server: 0,
                bystander: 0,
                descriptors: 0,
            },
            reconnects: 0,
            form,
            impatient: timeouts.are_short(),
            bystander,
            served,
        };
        // First what the last call held goes back. Then it is seen what a client holds that is at
        // peace: a receive more or less, as they are replaced behind the answer. A leak of that size
        // shows when it comes a second time.
        for round in 0..2 * SETTLING {
            rig.bystander.null()?;
            if round >= SETTLING {
                let now = rig.holdings()?;
                rig.before.server = rig.before.server.max(now.server);
                rig.before.bystander = rig.before.bystander.max(now.bystander);
                rig.before.descriptors = now.descriptors;
            }
        }
        Ok(rig)
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.served.address
    }

    /// The server's address for TCP.
    #[must_use]
    pub fn tcp(&self) -> SocketAddr {
        self.served.tcp
    }

    /// The server lets go of what lies made it hold, while those who told them hold on to their
    /// connections. The bystander works all the time.
    ///
    /// # Errors
    /// It does not, or the bystander is harmed.
    pub fn lets_go(&mut self) -> Result<(), Wrong> {
        let start = Instant::now();
        while self.served.pool.in_use() > self.before.server {
            if start.elapsed() > PATIENCE {
                let (held, before) = (self.served.pool.in_use(), self.before.server);
                return Err(wrong(format!(
                    "{held} bytes are held, {before} were before"
                )));
            }
            self.bystander.works()?;
        }
        Ok(())
    }

    /// The server's pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.served.pool
    }

    fn holdings(&self) -> Result<Holdings, Wrong> {
        let descriptors = std::fs::read_dir("/proc/self/fd").map_err(wrong)?.count();
        Ok(Holdings {
            server: self.served.pool.in_use(),
            bystander: self.bystander.pool.in_use(),
            descriptors,
        })
    }

    /// Everything that the lies made the server hold comes back, and the bystander's connection,
    /// the same as ever, still moves the right data.
    ///
    /// # Errors
    /// Otherwise.
    pub fn unharmed(&mut self) -> Result<(), Wrong> {
        if !self.served.runs() {
            return Err(wrong("the server has ended"));
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
            // A round trip is a turn of the server's loop.
            self.bystander.null()?;
        }
    }
}
