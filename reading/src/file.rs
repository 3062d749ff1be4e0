//! The packets of a capture file, pcap or pcapng.

use std::io::Read;
use std::time::Duration;

use pcap_parser::pcapng::Block;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::call::At;
use crate::limits::{MAX_BLOCK, MAX_INTERFACES};

/// Initial length of the buffer in bytes. It grows for longer blocks.
const BUFFER: usize = 1 << 20;

/// The reason why a file cannot be read any further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The beginning is of no known format.
    #[error("this is neither a pcap nor a pcapng file")]
    Format,
    /// A block is damaged.
    #[error("the file is damaged after packet {after}: {reason}")]
    Damaged {
        /// Number of the last packet before it; 0 if there is none.
        after: u64,
        /// Description of the damage.
        reason: String,
    },
    /// The file ends within a block.
    #[error("the file ends within a block, after packet {after}")]
    Truncated {
        /// Number of the last packet before it; 0 if there is none.
        after: u64,
    },
    /// The file cannot be read.
    #[error("cannot read the file, after packet {after}")]
    Io {
        /// Number of the last packet before it; 0 if there is none.
        after: u64,
    },
}

/// A packet of a file.
pub(crate) struct Packet<'a> {
    pub(crate) at: At,
    pub(crate) link: Linktype,
    pub(crate) bytes: &'a [u8],
}

/// An interface of a pcapng section, or that of a pcap file.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Units of time per second.
    resolution: u64,
    /// Seconds to add to times.
    offset: i64,
}

impl Interface {
    fn time(&self, units: u64) -> Duration {
        let seconds = (units / self.resolution).saturating_add_signed(self.offset);
        let part = u128::from(units % self.resolution) * 1_000_000_000;
        // Less than a second.
        Duration::new(seconds, (part / u128::from(self.resolution)) as u32)
    }
}

/// Returns the units per second that a pcapng file names by `if_tsresol`: a power of ten, or of two
/// with the highest bit. `None` if there are too many.
fn resolution(code: u8) -> Option<u64> {
    let power = u32::from(code & 0x7f);
    match code & 0x80 {
        0 => 10_u64.checked_pow(power),
        _ => 2_u64.checked_pow(power),
    }
}

/// Passes all packets of a file to `each`, which ends the reading by returning `false`. Returns the
/// number of packets.
///
/// # Errors
/// [`Error`]; the packets before it have been passed.
pub(crate) fn packets<R: Read + Send>(
    file: R,
    mut each: impl FnMut(Packet<'_>) -> bool,
) -> Result<u64, Error> {
    let mut reader = match create_reader(BUFFER, file) {
        Ok(reader) => reader,
        Err(PcapError::ReadError) => return Err(Error::Io { after: 0 }),
        Err(_) => return Err(Error::Format),
    };
    let mut state = State::default();
    let mut capacity = BUFFER;
    loop {
        let after = state.number;
        match reader.next() {
            Ok((len, block)) => {
                let goes_on = state.block(block, &mut each);
                reader.consume(len);
                match goes_on {
                    Ok(true) => {}
                    Ok(false) => return Ok(state.number),
                    Err(reason) => return Err(Error::Damaged { after, reason }),
                }
            }
            Err(PcapError::Eof) => return Ok(state.number),
            Err(PcapError::UnexpectedEof) => return Err(Error::Truncated { after }),
            Err(PcapError::ReadError) => return Err(Error::Io { after }),
            Err(PcapError::Incomplete(_)) => refill(&mut *reader, after)?,
            Err(PcapError::BufferTooSmall) => {
                if capacity >= MAX_BLOCK {
                    let reason = format!("a block of more than {MAX_BLOCK} bytes");
                    return Err(Error::Damaged { after, reason });
                }
                capacity = (capacity * 2).min(MAX_BLOCK);
                reader.grow(capacity);
                refill(&mut *reader, after)?;
            }
            Err(error) => {
                let reason = shown(&error);
                return Err(Error::Damaged { after, reason });
            }
        }
    }
}

fn refill(reader: &mut dyn PcapReaderIterator, after: u64) -> Result<(), Error> {
    reader.refill().map_err(|_| Error::Io { after })
}

fn shown(error: &PcapError<&[u8]>) -> String {
    match error {
        PcapError::HeaderNotRecognized => "a header of no known format".into(),
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
            format!("a block is invalid ({kind:?})")
        }
        other => other.to_string(),
    }
}

#[derive(Default)]
struct State {
    interfaces: Vec<Interface>,
    number: u64,
}

impl State {
    /// Takes a block. Returns whether the reading goes on, or what is wrong with the block.
    fn block(
        &mut self,
        block: PcapBlockOwned<'_>,
        each: &mut impl FnMut(Packet<'_>) -> bool,
    ) -> Result<bool, String> {
        Ok(match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![Interface {
                    link: header.network,
                    resolution: match header.is_nanosecond_precision() {
                        true => 1_000_000_000,
                        false => 1_000_000,
                    },
                    offset: 0,
                }];
                true
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(&interface) = self.interfaces.first() else {
                    return Ok(true);
                };
                // Fractions may exceed a second in a damaged file.
                let units = u64::from(packet.ts_sec) * interface.resolution;
                let time = interface.time(units + u64::from(packet.ts_usec));
                self.packet(each, interface.link, time, packet.data, packet.caplen)
            }
            PcapBlockOwned::NG(block) => return self.section(block, each),
        })
    }

    fn section(
        &mut self,
        block: Block<'_>,
        each: &mut impl FnMut(Packet<'_>) -> bool,
    ) -> Result<bool, String> {
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(description) if self.interfaces.len() < MAX_INTERFACES => {
                let code = description.if_tsresol;
                let Some(resolution) = resolution(code) else {
                    return Err(format!("an interface has times of resolution {code:#04x}"));
                };
                self.interfaces.push(Interface {
                    link: description.linktype,
                    resolution,
                    offset: description.ts_offset(),
                });
            }
            Block::EnhancedPacket(packet) => {
                let found = self.interfaces.get(packet.if_id as usize).copied();
                let Some(interface) = found else {
                    self.number += 1;
                    return Ok(true);
                };
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let time = interface.time(units);
                let captured = packet.caplen;
                return Ok(self.packet(each, interface.link, time, packet.data, captured));
            }
            Block::SimplePacket(packet) => {
                // It has no time of its own.
                let Some(&interface) = self.interfaces.first() else {
                    self.number += 1;
                    return Ok(true);
                };
                let time = Duration::ZERO;
                let captured = packet.origlen;
                return Ok(self.packet(each, interface.link, time, packet.data, captured));
            }
            // Statistics, names, secrets, and what is not known here.
            _ => {}
        }
        Ok(true)
    }

    fn packet(
        &mut self,
        each: &mut impl FnMut(Packet<'_>) -> bool,
        link: Linktype,
        time: Duration,
        bytes: &[u8],
        captured: u32,
    ) -> bool {
        self.number += 1;
        let at = At {
            packet: self.number,
            time,
        };
        // Blocks are filled up to a multiple of four bytes.
        let bytes = &bytes[..bytes.len().min(captured as usize)];
        each(Packet { at, link, bytes })
    }
}
