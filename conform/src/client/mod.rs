//! A judge for clients: a server of NFS version 3 over RPC-over-RDMA, of version 1 or of either version 2, that goes to
//! the edges of what the rules allow, and looks at everything that a client sends.
//!
//! A *case* ([`case::Case`]) is data, as for servers: an address, a level, a sentence, the operation that the client
//! has to perform ([`case::Operation`]), what the server does meanwhile ([`case::Act`]), and the rules
//! ([`rules::Rule`]) that decide. [`cases`] has the table. Cases with the same operation and the same act share one
//! performance. Whoever runs the client under test implements [`under_test::Client`]; [`judge::judge`] does the rest.
//!
//! The server is made of [`crate::wire`] and shares nothing with the product. It accepts connections on the listener
//! that it is given, and reads and writes only memory that the client offered, except where a case says otherwise.

mod answer;
mod arrival;
mod call;
pub mod case;
pub mod cases;
pub mod changes;
mod connection;
mod export;
mod fetching;
pub mod judge;
mod misuse;
mod mountd;
mod nfs;
mod outstanding;
pub mod performance;
mod placed;
mod placing;
mod refusing;
pub mod rules;
mod second;
mod sending;
mod serving;
mod sizes;
mod stage;
mod strays;
mod transmitting;
pub mod under_test;
mod versions;
mod waiting;
mod wg;
