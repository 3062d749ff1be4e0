//! Captures of traffic: files of any content, and files whose packets carry arbitrary messages in valid FPDUs
//! or packets of RoCE, so that the state behind them is reached.

use arbitrary::{Arbitrary, Unstructured};
use rpcrdma_reading::lint::Lint;
use rpcrdma_reading::{Collected, read};
use transfer_plan::CostModel;

/// The most memory that a reader may take: its buffers, and what it keeps of a short file.
const MOST: usize = 8 << 20;

/// Checks the reader. The first byte chooses what the rest is: a file, iWARP or RoCE.
pub fn check(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let file = match choice % 3 {
        0 => rest.to_vec(),
        kind => packets(kind == 1, &mut Unstructured::new(rest)),
    };
    crate::within(MOST, || {
        let mut all = Collected::up_to(1000);
        let mut lint = Lint::new(3, &CostModel::default());
        let read_again = read(&file[..], &mut lint).map(|summary| summary.connections);
        let connections = read(&file[..], &mut all).map(|summary| summary.connections);
        assert_eq!(
            connections.ok(),
            read_again.ok(),
            "the same file is read in the same way"
        );
        let report = lint.report();
        let numbered =
            |(index, it): (usize, &rpcrdma_reading::Connection)| it.id.0 as usize == index;
        assert!(all.connections.iter().enumerate().all(numbered));
        assert_eq!(report.calls, all.calls.len() as u64);
        for call in &all.calls {
            assert!(call.round_trips() >= 1);
        }
    });
}

/// One packet.
#[derive(Arbitrary, Debug)]
struct Piece<'a> {
    /// Direction, kind, whether it is the last of its message, and whether something is done to it.
    flags: u8,
    handle: u8,
    offset: u16,
    payload: &'a [u8],
}

impl Piece<'_> {
    fn from(&self) -> usize {
        usize::from(self.flags & 1)
    }

    fn kind(&self) -> u8 {
        self.flags >> 1 & 7
    }

    fn is_last(&self) -> bool {
        self.flags & 0x10 == 0
    }

    /// Whether the packet is lost, or repeated, or nothing is done to it.
    fn fate(&self) -> usize {
        match self.flags >> 5 {
            0 => 0,
            1 => 2,
            _ => 1,
        }
    }
}

fn packets(is_iwarp: bool, input: &mut Unstructured<'_>) -> Vec<u8> {
    // A pcap file of raw IP packets.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x0004_0000, 101] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    let mut ends = Ends::default();
    if is_iwarp {
        for (from, key) in [b"MPA ID Req Frame", b"MPA ID Rep Frame"]
            .into_iter()
            .enumerate()
        {
            let mut frame = key.to_vec();
            frame.extend_from_slice(&[0x40, 1, 0, 8, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3]);
            ends.tcp(&mut file, from, 0x10, &frame, 1);
        }
    }
    while let Ok(piece) = Piece::arbitrary(input) {
        match is_iwarp {
            true => ends.iwarp(&mut file, &piece),
            false => ends.roce(&mut file, &piece),
        }
        if input.is_empty() {
            break;
        }
    }
    file
}

/// The counts of both ends.
#[derive(Default)]
struct Ends {
    sequence: [u32; 2],
    messages: [[u32; 3]; 2],
    offsets: [[u32; 3]; 2],
    numbers: [u32; 2],
    packets: u32,
}

impl Ends {
    fn packet(&mut self, file: &mut Vec<u8>, from: usize, protocol: u8, payload: &[u8]) {
        let length = 20 + payload.len();
        self.packets += 1;
        for word in [self.packets, 0, length as u32, length as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&[0x45, 0]);
        file.extend_from_slice(&(length as u16).to_be_bytes());
        file.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
        for end in [from, 1 - from] {
            file.extend_from_slice(&[10, 0, 0, end as u8 + 1]);
        }
        file.extend_from_slice(payload);
    }

    fn tcp(&mut self, file: &mut Vec<u8>, from: usize, flags: u8, bytes: &[u8], times: usize) {
        let ports = [1000u16, 20049];
        let mut segment = Vec::new();
        for end in [from, 1 - from] {
            segment.extend_from_slice(&ports[end].to_be_bytes());
        }
        segment.extend_from_slice(&self.sequence[from].to_be_bytes());
        segment.extend_from_slice(&self.sequence[1 - from].to_be_bytes());
        segment.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend_from_slice(bytes);
        (0..times).for_each(|_| self.packet(file, from, 6, &segment));
        self.sequence[from] = self.sequence[from].wrapping_add(bytes.len() as u32);
    }

    fn iwarp(&mut self, file: &mut Vec<u8>, piece: &Piece<'_>) {
        let from = piece.from();
        let last = if piece.is_last() { 0x40 } else { 0 };
        let mut ulpdu = Vec::new();
        let opcode = piece.kind();
        let queue = match opcode {
            0 | 2 => None,
            1 => Some(1),
            7 => Some(2),
            _ => Some(0),
        };
        match queue {
            None => {
                ulpdu.extend_from_slice(&[0x81 | last, 0x40 | opcode]);
                ulpdu.extend_from_slice(&u32::from(piece.handle).to_be_bytes());
                ulpdu.extend_from_slice(&u64::from(piece.offset).to_be_bytes());
            }
            Some(queue) => {
                let count = &mut self.messages[from][queue];
                let offset = &mut self.offsets[from][queue];
                ulpdu.extend_from_slice(&[1 | last, 0x40 | opcode]);
                for word in [piece.handle.into(), queue as u32, *count, *offset] {
                    ulpdu.extend_from_slice(&word.to_be_bytes());
                }
                *offset += piece.payload.len() as u32;
                if piece.is_last() {
                    (*count, *offset) = (*count + 1, 0);
                }
            }
        }
        ulpdu.extend_from_slice(piece.payload);
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend_from_slice(&ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        let crc = crc32c::crc32c(&fpdu);
        fpdu.extend_from_slice(&crc.to_le_bytes());
        self.tcp(file, from, 0x10, &fpdu, piece.fate());
    }

    fn roce(&mut self, file: &mut Vec<u8>, piece: &Piece<'_>) {
        let from = piece.from();
        // Sends, Writes, Reads and their responses, with and without others around them.
        const OPCODES: [[u8; 2]; 8] = [
            [0x00, 0x04],
            [0x01, 0x02],
            [0x06, 0x0a],
            [0x07, 0x08],
            [0x0c, 0x0c],
            [0x0d, 0x10],
            [0x0e, 0x0f],
            [0x16, 0x17],
        ];
        let opcode = OPCODES[usize::from(piece.kind())][usize::from(piece.is_last())];
        let is_response = (0x0d..=0x10).contains(&opcode);
        let number = match is_response {
            true => u32::from(piece.offset & 0xff),
            false => {
                self.numbers[from] += 1;
                self.numbers[from]
            }
        };
        let mut datagram = vec![0x12, 0xb7, 0x12, 0xb7, 0, 0, 0, 0];
        datagram.extend_from_slice(&[opcode, 0, 0xff, 0xff, 0, 0, 0, from as u8 + 2]);
        datagram.extend_from_slice(&number.to_be_bytes());
        match opcode {
            0x06 | 0x0a | 0x0c => {
                datagram.extend_from_slice(&u64::from(piece.offset).to_be_bytes());
                datagram.extend_from_slice(&u32::from(piece.handle).to_be_bytes());
                datagram.extend_from_slice(&(piece.payload.len() as u32).to_be_bytes());
            }
            0x0d | 0x0f | 0x10 | 0x16 | 0x17 => {
                datagram.extend_from_slice(&u32::from(piece.handle).to_be_bytes());
            }
            _ => {}
        }
        datagram.extend_from_slice(piece.payload);
        datagram.extend_from_slice(&[0; 4]);
        let length = datagram.len() as u16;
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        (0..piece.fate()).for_each(|_| self.packet(file, from, 17, &datagram));
    }
}
