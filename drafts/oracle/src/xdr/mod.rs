//! The XDR files in `drafts/xdr`, as the parser of [`rpcrdma_conform::xdr`] reads them, and what is generated from
//! them.

mod emit;
mod lua;

use crate::list::FILES;

pub use emit::emit;
pub use lua::emit_lua;
pub use rpcrdma_conform::xdr::{Arm, Body, Declaration, Error, Shape, Specification, Type, parse};

/// Parses all [`FILES`].
///
/// # Errors
/// The name of a file and its error.
pub fn of_files() -> Result<Specification, (&'static str, Error)> {
    let mut all = Specification::default();
    for file in FILES {
        parse(file.text, &mut all).map_err(|error| (file.name, error))?;
    }
    Ok(all)
}
