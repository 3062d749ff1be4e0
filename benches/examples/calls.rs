//! Makes calls over `tcp`, `v1`, `v2`, `v2-cont`, `v2-ddp-cont`, `wg` or `wg-ddp`, with client and
//! server on one thread, for counting instructions or system calls. The calls are NULL, or have the
//! given number of bytes of bulk data.
//!
//! ```sh
//! cargo build --release -p rpcrdma-benches --example calls --features libc
//! valgrind --tool=callgrind target/release/examples/calls v1 2000
//! strace -c target/release/examples/calls v2-ddp-cont 200 1048576
//! ```
//!
//! A second run with another number of calls separates the cost per call from the rest.

use rpcrdma_benches::calls::{Carrier, Ends, Outcomes};

const USAGE: &str = "calls tcp|v1|v2|v2-cont|v2-ddp-cont|wg|wg-ddp CALLS [BYTES]";

fn main() -> Outcomes<()> {
    let mut arguments = std::env::args().skip(1);
    let carrier: Carrier = arguments.next().ok_or(USAGE)?.parse()?;
    let calls: u32 = arguments.next().ok_or(USAGE)?.parse()?;
    let bytes: Option<usize> = arguments.next().map(|bytes| bytes.parse()).transpose()?;
    let mut ends = Ends::new(carrier)?;
    let data = bytes.map(|bytes| vec![7; bytes].into());
    for _ in 0..calls {
        match &data {
            Some(data) => ends.write(data)?,
            None => ends.call()?,
        }
    }
    Ok(())
}
