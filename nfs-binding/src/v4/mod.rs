//! NFS version 4.0, 4.1 and 4.2 as far as its upper-layer binding needs to know it (RFC 8267,
//! section 6; nfs-ulb-v2-06, section 5): which operations a COMPOUND or CB_COMPOUND has, where
//! their DDP-eligible items are, and how long their results can be.
//!
//! Arguments and results are described by tables of [`fields::Fields`], from which both follow: how
//! to pass over them, and their longest encoding.

pub(crate) mod attributes;
pub(crate) mod compound;
pub(crate) mod fields;
pub(crate) mod operations;
pub(crate) mod sessions;
