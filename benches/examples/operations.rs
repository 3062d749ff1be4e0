//! Performs NFS operations over `tcp`, `v1`, `v2`, `v2-cont`, `v2-ddp-cont`, `wg` or `wg-ddp`, with
//! client and server on one thread, for counting instructions, allocations or system calls. See the
//! example `calls`.
//!
//! ```sh
//! cargo build --release -p rpcrdma-benches --example operations --features libc
//! valgrind --tool=callgrind target/release/examples/operations v1 readdirplus 200 65536
//! ```

use rpcrdma_benches::calls::{Carrier, Outcomes};
use rpcrdma_benches::nfs::NfsEnds;

const USAGE: &str =
    "operations tcp|v1|v2|v2-cont|v2-ddp-cont|wg|wg-ddp getattr|read|write|readdirplus COUNT BYTES";

fn main() -> Outcomes<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [carrier, operation, count, bytes] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let carrier: Carrier = carrier.parse()?;
    let (count, bytes): (u32, u32) = (count.parse()?, bytes.parse()?);
    let mut ends = NfsEnds::new(carrier, bytes as usize)?;
    let data = vec![7; bytes as usize].into();
    for _ in 0..count {
        match &operation[..] {
            "getattr" => ends.getattr()?,
            "read" => ends.read(bytes)?,
            "write" => ends.write(&data)?,
            "readdirplus" => ends.readdirplus(bytes)?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(())
}
