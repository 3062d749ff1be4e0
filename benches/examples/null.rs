//! Makes NULL calls over `tcp`, `v1` or `v2`, client and server on one thread: to be counted.
//!
//! ```sh
//! cargo build --release -p rpcrdma-benches --example null --features libc
//! valgrind --tool=callgrind target/release/examples/null v1 2000
//! ```
//!
//! A second run with another number of calls tells what a call costs from what the rest does.

use rpcrdma_benches::null::{Carrier, Ends, Outcomes};

fn main() -> Outcomes<()> {
    let mut arguments = std::env::args().skip(1);
    let carrier: Carrier = arguments.next().ok_or("null tcp|v1|v2 CALLS")?.parse()?;
    let calls: u32 = arguments.next().ok_or("null tcp|v1|v2 CALLS")?.parse()?;
    let mut ends = Ends::new(carrier)?;
    for _ in 0..calls {
        ends.call()?;
    }
    Ok(())
}
