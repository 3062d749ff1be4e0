//! COMPOUNDs of NFS version 4.0 with several DDP-eligible items (RFC 7530; RFC 8267, section 6.4.2).

use bytes::Bytes;
use onc_rpc::Encoder;
use rdma_sim::Random;

/// The minor version, and numbers of operations.
const MINOR: u32 = 0;
const PUTFH: u32 = 22;
const READ: u32 = 25;
const WRITE: u32 = 38;
/// The maximum number of READs and WRITEs.
const MOST: usize = 4;
/// The number of words of the arguments before the file handle: tag, minor version, number of operations, PUTFH.
pub(super) const BEFORE_HANDLE: usize = 4;

/// An operation with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read(u32),
    Write(u32),
}

/// The operations of a COMPOUND that follow PUTFH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compound([Option<Operation>; MOST]);

impl Compound {
    /// Chooses operations with data of these lengths.
    pub(super) fn choose(lengths: &[u32], random: &mut Random) -> Self {
        let count = random.between(1, MOST as u64) as usize;
        let mut all = [None; MOST];
        for operation in &mut all[..count] {
            let len = random.pick(lengths);
            *operation = Some(match random.below(2) {
                0 => Operation::Read(len),
                _ => Operation::Write(len),
            });
        }
        Self(all)
    }

    /// Returns the COMPOUND whose call is longest, with data of this length in each operation.
    #[cfg(test)]
    pub(super) fn of_writes(len: u32) -> Self {
        Self([Some(Operation::Write(len)); MOST])
    }

    fn operations(&self) -> impl Iterator<Item = Operation> {
        self.0.into_iter().flatten()
    }

    /// Returns the lengths of the data of its results.
    pub(super) fn results(&self) -> impl Iterator<Item = u32> {
        self.operations().filter_map(|operation| match operation {
            Operation::Read(len) => Some(len),
            Operation::Write(_) => None,
        })
    }

    /// Adds the arguments. At most so many items are held apart; `data` makes each of a length.
    pub(super) fn encode_call(
        &self,
        call: &mut Encoder,
        handle: &Bytes,
        mut max_items: usize,
        data: impl Fn(u32) -> Bytes,
    ) {
        let count = self.operations().count() as u32;
        call.u32(0).u32(MINOR).u32(count + 1);
        call.u32(PUTFH).opaque(handle);
        for operation in self.operations() {
            let (number, len) = match operation {
                Operation::Read(len) => (READ, len),
                Operation::Write(len) => (WRITE, len),
            };
            // The state, and the offset.
            call.u32(number).opaque_fixed(&[7; 16]).u64(4096);
            match operation {
                Operation::Read(_) => {
                    call.u32(len);
                }
                Operation::Write(_) => {
                    call.u32(2);
                    if max_items > 0 {
                        max_items -= 1;
                        call.bulk(data(len));
                    } else {
                        call.opaque(&data(len));
                    }
                }
            }
        }
    }

    /// Adds the results, with the data of READs held apart.
    pub(super) fn encode_reply(&self, reply: &mut Encoder, data: impl Fn(u32) -> Bytes) {
        let count = self.operations().count() as u32;
        reply.u32(0).u32(0).u32(count + 1);
        reply.u32(PUTFH).u32(0);
        for operation in self.operations() {
            match operation {
                // Whether it is the end of the file.
                Operation::Read(len) => {
                    reply.u32(READ).u32(0).u32(0).bulk(data(len));
                }
                // Count, stability and verifier.
                Operation::Write(len) => {
                    reply.u32(WRITE).u32(0).u32(len).u32(2).u64(9);
                }
            }
        }
    }
}
