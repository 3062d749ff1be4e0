//! Files in the formats of captures.

/// The format of a file: its endianness, whether times have nanoseconds, and whether it is pcapng.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) big: bool,
    pub(super) nanos: bool,
    pub(super) ng: bool,
}

pub(super) const USUAL: Format = Format {
    big: false,
    nanos: false,
    ng: false,
};

/// Link-layer header in front of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Link {
    Ethernet,
    Vlan,
    Cooked,
    CookedTwo,
    Raw,
}

pub(super) struct File {
    pub(super) format: Format,
    pub(super) link: Link,
    pub(super) bytes: Vec<u8>,
    pub(super) packets: u32,
}

impl File {
    pub(super) fn new(format: Format, link: Link) -> Self {
        let mut file = Self {
            format,
            link,
            bytes: Vec::new(),
            packets: 0,
        };
        let network = match link {
            Link::Ethernet | Link::Vlan => 1,
            Link::Cooked => 113,
            Link::CookedTwo => 276,
            Link::Raw => 101,
        };
        if format.ng {
            file.block(0x0a0d_0d0a, |file| {
                file.word(0x1a2b_3c4d);
                file.half(1);
                file.half(0);
                file.word(u32::MAX);
                file.word(u32::MAX);
            });
            // An interface that is not used, and blocks that are not known.
            file.interface(147);
            file.block(0x0bad, |file| file.word(7));
            file.interface(network);
            return file;
        }
        file.word(if format.nanos {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        });
        file.half(2);
        file.half(4);
        for word in [0, 0, 0x0004_0000, network] {
            file.word(word);
        }
        file
    }

    pub(super) fn interface(&mut self, network: u32) {
        self.interface_of(network, if self.format.nanos { 9 } else { 6 });
    }

    /// Adds an interface whose times have a resolution, in the code of pcapng.
    pub(super) fn interface_of(&mut self, network: u32, resolution: u8) {
        self.block(1, |file| {
            file.half(network as u16);
            file.half(0);
            file.word(0);
            // if_tsresol.
            file.half(9);
            file.half(1);
            file.bytes.extend_from_slice(&[resolution, 0, 0, 0]);
            file.word(0);
        });
    }

    pub(super) fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&match self.format.big {
            true => word.to_be_bytes(),
            false => word.to_le_bytes(),
        });
    }

    pub(super) fn half(&mut self, half: u16) {
        self.bytes.extend_from_slice(&match self.format.big {
            true => half.to_be_bytes(),
            false => half.to_le_bytes(),
        });
    }

    pub(super) fn block(&mut self, kind: u32, content: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.word(kind);
        self.word(0);
        content(self);
        let length = (self.bytes.len() - start + 4) as u32;
        self.word(length);
        let end = self.bytes.len();
        self.bytes.copy_within(end - 4..end, start + 4);
    }

    /// Adds a packet, a microsecond after the one before it.
    pub(super) fn packet(&mut self, ip: &[u8]) {
        let version = ip[0] >> 4;
        let kind: [u8; 2] = if version == 6 { [0x86, 0xdd] } else { [8, 0] };
        let mut frame = match self.link {
            Link::Ethernet => vec![0; 12],
            Link::Vlan => [&[0; 12][..], &[0x81, 0, 0, 7]].concat(),
            Link::Cooked => vec![0; 14],
            Link::CookedTwo => [&kind[..], &[0; 18]].concat(),
            Link::Raw => Vec::new(),
        };
        if matches!(self.link, Link::Ethernet | Link::Vlan | Link::Cooked) {
            frame.extend_from_slice(&kind);
        }
        frame.extend_from_slice(ip);
        self.packets += 1;
        let length = frame.len() as u32;
        let micros = 10 + self.packets;
        let part = if self.format.nanos {
            1000 * micros
        } else {
            micros
        };
        if !self.format.ng {
            for word in [5, part, length, length] {
                self.word(word);
            }
            self.bytes.extend_from_slice(&frame);
            return;
        }
        let units = 5 * if self.format.nanos {
            1_000_000_000
        } else {
            1_000_000
        } + u64::from(part);
        self.enhanced(1, units, &frame);
    }

    /// Adds a packet of an interface to a pcapng file.
    pub(super) fn enhanced(&mut self, interface: u32, units: u64, frame: &[u8]) {
        let length = frame.len() as u32;
        let (high, low) = ((units >> 32) as u32, units as u32);
        self.block(6, |file| {
            for word in [interface, high, low, length, length] {
                file.word(word);
            }
            file.bytes.extend_from_slice(frame);
            file.bytes.resize(file.bytes.len().next_multiple_of(4), 0);
        });
    }
}
