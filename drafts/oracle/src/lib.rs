//! Compares the codecs of the workspace with an independent implementation: C code that `rpcgen`
//! generates from the XDR files in `drafts/xdr`.
//!
//! [`xdr`] has the files parsed and generates the part of the C program that shows values by the names
//! of their fields. [`kind`] has the types to compare: every header type, operation and
//! characteristic, with the codec of its crate. [`list`] is where files, numbers and types are
//! registered. [`check`] compares names of fields. [`program`] runs the C program, [`judge`] decides
//! whether both agree, and [`run`] compares random values and damaged ones. [`vectors`] writes some of
//! them as test vectors for other implementations.
//!
//! Only the comparison needs C: this crate's own tests do not.
//!
//! ```
//! use xdr_oracle::{constants, list, vectors, xdr};
//!
//! // The constants of the crates are those of the XDR files.
//! let all = xdr::of_files().map_err(|(file, error)| format!("{file}: {error}"))?;
//! assert!(constants::differences(&all).is_empty());
//! // A decoder's answer: the bytes consumed, the value encoded again, and the value.
//! let kinds = list::kinds();
//! let answer = vectors::answer(&kinds, "xchrbrs 00000001");
//! assert_eq!(answer.as_deref(), Some("accept 4 00000001 \"BKREQSUP_INLINE\""));
//! assert_eq!(vectors::answer(&kinds, "xchrbrs ffffffff").as_deref(), Some("reject"));
//! # Ok::<_, String>(())
//! ```

#![forbid(unsafe_code)]

pub mod check;
pub mod constants;
pub mod damage;
pub mod judge;
pub mod kind;
pub mod list;
pub mod program;
pub mod run;
pub mod show;
pub mod vectors;
pub mod xdr;
