//! The main job: what each way of moving an NFS request costs, measured here and now.

mod child;
mod floor;
mod latency;
mod rows;
mod sample_tree;
mod server_process;
mod table;

pub(crate) use latency::{Latency, median};
