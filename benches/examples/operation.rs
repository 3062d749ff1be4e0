//! Makes one NFS operation many times, for profilers: `operation CARRIER OPERATION SIZE COUNT [TRACE]`, where the
//! operation is null, getattr, read, write or readdirplus. With a fifth argument, the calls are traced to the
//! new file of that name, which is written at the end.
//!
//! Client and server take turns on one thread, so that counts of instructions are exact. The cost of
//! an operation is the difference between two counts, divided by that of the operations:
//!
//! ```text
//! cargo build --release -p rpcrdma-benches --features libc --example operation
//! for count in 100 1100; do
//!     valgrind --tool=callgrind --callgrind-out-file=read.$count \
//!         target/release/examples/operation v2-ddp-cont read 8192 $count
//! done
//! ```

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use rdma::Clock;
use rdma::trace::Trace;
use rpcrdma_benches::calls::{Carrier, Outcomes};
use rpcrdma_benches::nfs::NfsEnds;
use rpcrdma_trace::{Options, TraceFile};

#[expect(clippy::print_stdout, reason = "the output of the program")]
fn run(args: &[String]) -> Outcomes<()> {
    let (args, file) = args.split_at(args.len().min(4));
    let [carrier, operation, size, count] = args else {
        return Err(
            "operation CARRIER null|getattr|read|write|readdirplus SIZE COUNT [TRACE]".into(),
        );
    };
    let file = file.first().map(|path| {
        let options = Options {
            process: "operation".to_owned(),
            virtual_time: false,
            size: u64::MAX,
            name: |_| None,
        };
        TraceFile::create(Path::new(path), options)
    });
    let file = file.transpose()?;
    let trace = file
        .as_ref()
        .map(|file| Trace::new(file.sink(), Clock::monotonic()));
    let carrier: Carrier = carrier.parse()?;
    let (size, count): (u32, u32) = (size.parse()?, count.parse()?);
    let mut ends = NfsEnds::traced(carrier, size as usize, trace.as_ref())?;
    let data = Bytes::from(vec![7; size as usize]);
    let begun = Instant::now();
    for _ in 0..count {
        match operation.as_str() {
            "null" => ends.null()?,
            "getattr" => ends.getattr()?,
            "read" => ends.read(size)?,
            "write" => ends.write(&data)?,
            "readdirplus" => ends.readdirplus(size)?,
            other => return Err(format!("{other}: no such operation").into()),
        }
    }
    println!(
        "{:.2} us",
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1))
    );
    if let Some(file) = file {
        println!("{}", file.finish(None)?);
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the output of the program")]
fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operation: {error}");
            ExitCode::FAILURE
        }
    }
}
