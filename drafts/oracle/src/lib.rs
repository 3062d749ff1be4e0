//! The codecs of the workspace, held against an independent implementation: C that `rpcgen` makes
//! of the XDR files in `drafts/xdr`.
//!
//! [`xdr`] reads the files and writes the part of the C program that shows values by the names of
//! their fields. [`kind`] lists what is compared: every header type, operation and characteristic,
//! as its crate encodes, decodes and names it. [`program`] is the C program behind a pipe, [`judge`]
//! says whether both agree, and [`run`] does that for as many random values as are wanted, and for
//! as many damaged ones. [`vectors`] writes some of them down for other implementations.
//!
//! Only running the comparison needs C: this crate's own tests do not.

#![forbid(unsafe_code)]

pub mod constants;
pub mod damage;
pub mod judge;
pub mod kind;
pub mod program;
pub mod run;
pub mod show;
pub mod vectors;
pub mod xdr;
