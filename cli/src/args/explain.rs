//! Options of `explain`.

use clap::{Args, ValueEnum};
use rpcrdma_programs::workload::{LONG, Op};
use rpcrdma_setup::catalog::Features;
use rpcrdma_setup::inline::InlineSizes;
use rpcrdma_setup::units;

use super::MountArgs;
use super::tuning::features;

/// The default size of READ, WRITE and so on, bytes.
const DEFAULT_SIZE: u32 = 8192;

/// Say how operations would be transferred: all possible modes, what each costs, and the one that
/// is chosen.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is sent. Client and server are simulated with the given options; the server supports all
features of this program unless --server-features says otherwise. The resources of each transfer
mode are counted from its plan, and priced by a cost model with the link's --delay and --rate. The
cheapest mode is chosen; among those within 2 % of it, the one with the fewest registrations, and
then the fewest bytes unplaced. The same code decides for every call of every command. The cost
model is printed first, with the source of each value; without --costs, most are those of the
class of the device. The only mount options with an effect here are those that affect transfer
modes: rpcrdma=, features=, inline=, rsize= with a read, and wsize= with a write. Others that have
one elsewhere are refused.

The resources of a mode, for both ends together, with the longest reply that the call can have:
  sends, B             Sends, and the bytes of all messages and RDMA operations
  RDMA operations      RDMA Reads and RDMA Writes
  turn-arounds         how often the server must wait for RDMA Reads before it can begin; each is
                       a round trip
  waits for credits    with rpcrdma=2wg, how often a sender must wait until its peer can receive
                       more messages; each is a round trip
  registrations        memory regions that the client registers
  local invalidations  registrations that the client must invalidate itself
  B unplaced           bytes of file data that arrive inside a message, so that their receiver
                       has to copy them to their destination

Examples:
  rpcrdma explain write:8192
  rpcrdma explain -o rpcrdma=1 read:64k write:1M
  rpcrdma explain --inline 64k -o rpcrdma=1 write:8k
  rpcrdma explain --ladder -o rpcrdma=1 write:8k read:8k
  rpcrdma explain --server-features none -o rpcrdma=2 write:8k
  rpcrdma explain --costs interrupt=20us,registration=9us write:8k
  rpcrdma explain --delay 1ms -o rpcrdma=2 readdirplus:64k null")]
pub(crate) struct ExplainArgs {
    /// Operations: null, getattr, read:SIZE, write:SIZE, readdirplus:SIZE, long-call:SIZE (bytes
    /// that are not DDP-eligible), long-both:SIZE
    #[arg(value_name = "OP[:SIZE]", required = true, value_parser = op)]
    pub(crate) ops: Vec<Op>,

    /// Longest messages without chunks that the server sends and receives, in every version: see
    /// `serve --inline`. They are also the client's, unless -o inline= says otherwise
    #[arg(long, value_name = "SIZE|SEND:RECEIVE", default_value_t)]
    pub(crate) inline: InlineSizes,

    /// Features for fewer round trips that the server offers in version 2: see `serve --features`.
    /// Default: all
    #[arg(long, value_name = "FEATURES", value_parser = features)]
    pub(crate) server_features: Option<Features>,

    /// Also draw each call as a ladder, from the call to its results: `text` for a terminal, or `svg`, which
    /// then is all that is printed. A simulation performs the calls, with the costs that are shown
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) ladder: Option<LadderForm>,

    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// A form of ladders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LadderForm {
    /// Text for a terminal of 100 columns
    Text,
    /// An SVG file
    Svg,
}

/// Parses an operation from its name and size.
fn op(text: &str) -> Result<Op, String> {
    let (name, size) = match text.split_once(':') {
        Some((name, size)) => (name, Some(units::size(size)?)),
        None => (text, None),
    };
    let most = nfs_binding::server::MAX_TRANSFER;
    let size = match size.map(u32::try_from) {
        None => None,
        Some(Ok(size)) if (1..=most).contains(&size) => Some(size),
        Some(_) => return Err(format!("`{text}`: sizes are from 1 to {most} bytes")),
    };
    let or = |default| size.unwrap_or(default);
    match (name, size) {
        ("null", None) => Ok(Op::Null),
        ("getattr", None) => Ok(Op::Getattr),
        ("null" | "getattr", Some(_)) => Err(format!("`{name}` has no size")),
        ("read", _) => Ok(Op::Read(or(DEFAULT_SIZE))),
        ("write", _) => Ok(Op::Write(or(DEFAULT_SIZE))),
        ("readdirplus", _) => Ok(Op::Readdirplus(or(LONG))),
        ("long-call", _) => Ok(Op::LongCall(or(LONG))),
        ("long-both", _) => Ok(Op::LongBoth(or(LONG))),
        _ => Err(format!(
            "`{name}` is none of null, getattr, read, write, readdirplus, long-call and long-both"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_sizes_where_they_move_something() {
        assert_eq!(op("null"), Ok(Op::Null));
        assert_eq!(op("write:8192"), Ok(Op::Write(8192)));
        assert_eq!(op("read:1M"), Ok(Op::Read(1 << 20)));
        assert_eq!(op("read"), Ok(Op::Read(DEFAULT_SIZE)));
        for wrong in ["null:4", "sing", "write:0", "read:1G", "read:x", ""] {
            assert!(op(wrong).is_err(), "{wrong}");
        }
    }
}
