//! The peer's frames: valid except where the script changes them.

use super::*;

impl Run {
    pub(super) fn frame(&mut self, frame: &Frame) {
        let len = 2 * usize::from(frame.len);
        let fill = self.sent as u8;
        let mut last = !frame.more;
        let mut payload = vec![fill; len];
        let (opcode, placement) = match &frame.kind {
            Kind::Empty => return self.queue(&[], frame.flip),
            Kind::Send {
                how,
                wrong_offset,
                wrong_msn,
                invalidate,
            } => {
                let opcodes = [
                    Opcode::Send,
                    Opcode::SendInvalidate,
                    Opcode::SendSolicited,
                    Opcode::SendSolicitedInvalidate,
                ];
                let opcode = opcodes[usize::from(how % 4)];
                let stag = self
                    .pick(*invalidate)
                    .map_or(1, |at| self.regions[at].segment.stag.0);
                let placement = Placement::Untagged {
                    ulp_word: stag,
                    queue: 0,
                    msn: self.msn[0].wrapping_add(u32::from(*wrong_msn)),
                    offset: (self.message.len() as u32).wrapping_add(u32::from(*wrong_offset) << 2),
                };
                self.message.extend_from_slice(&payload);
                if last {
                    self.msn[0] += 1;
                    let message = std::mem::take(&mut self.message);
                    let first = self.set_up.empty_rtr && self.sent == 0;
                    if !(first && message.is_empty() && opcode == Opcode::Send) {
                        self.messages.push_back(message);
                    }
                }
                (opcode, placement)
            }
            Kind::Write {
                region,
                at,
                wrong_at,
            } => {
                let to = self.pick(*region);
                let (stag, offset) = match to {
                    Some(to) => {
                        let known = &self.regions[to];
                        let room = known.content.len().saturating_sub(len);
                        let from = match edge(*wrong_at) {
                            None => 4 * usize::from(*at) % (room + 1),
                            Some(past) => room + past,
                        };
                        let wrong = match edge(*wrong_at) {
                            None => u64::from(*wrong_at) << 3,
                            Some(_) => 0,
                        };
                        let offset = known.segment.offset.wrapping_add(from as u64);
                        let inside = from + len <= known.content.len();
                        let fits = inside && wrong == 0 && known.writable;
                        if fits && len > 0 {
                            let end = self.sent + frame_len(TAGGED + len);
                            self.writes.push_back((end, to, from, payload.clone()));
                        }
                        (known.segment.stag.0, offset.wrapping_sub(wrong))
                    }
                    None => (5, 5),
                };
                (Opcode::Write, Placement::Tagged { stag, offset })
            }
            Kind::Request {
                region,
                at,
                read,
                wrong_msn,
            } => {
                let from = self.pick(*region);
                let (source_stag, base, fill, whole) = from.map_or((3, 0, 0, 0), |from| {
                    let known = &self.regions[from];
                    let whole = known.content.len();
                    (
                        known.segment.stag.0,
                        known.segment.offset,
                        known.fill,
                        whole,
                    )
                });
                let read = match edge((*read >> 8) as u8) {
                    None => usize::from(*read),
                    Some(past) => (whole + past).saturating_sub(usize::from(*at)),
                };
                let request = ReadRequest {
                    sink_stag: 0x5151,
                    sink_offset: self.sent << 8,
                    length: read as u32,
                    source_stag,
                    source_offset: base.wrapping_add(u64::from(*at)),
                };
                payload = request.to_bytes().to_vec();
                last = true;
                self.asked.push_back(Asked {
                    sink: (request.sink_stag, request.sink_offset),
                    len: read,
                    fill,
                    done: 0,
                });
                let msn = self.msn[1].wrapping_add(u32::from(*wrong_msn));
                self.msn[1] += 1;
                let placement = Placement::Untagged {
                    ulp_word: 0,
                    queue: 1,
                    msn,
                    offset: 0,
                };
                (Opcode::ReadRequest, placement)
            }
            Kind::Response {
                wrong_stag,
                wrong_offset,
                wrong_last,
            } => {
                let Some((stag, wanted, content)) = self.answers.front_mut() else {
                    // Without payload it answers a request that has not all left yet.
                    self.wild = true;
                    let placement = Placement::Tagged { stag: 1, offset: 0 };
                    return self.send(Opcode::ReadResponse, last, placement, &payload, frame.flip);
                };
                payload.truncate(*wanted - content.len());
                let placement = Placement::Tagged {
                    stag: stag.wrapping_add(u32::from(*wrong_stag)),
                    offset: content.len() as u64 + u64::from(*wrong_offset),
                };
                content.extend_from_slice(&payload);
                last = (content.len() == *wanted) != *wrong_last;
                if content.len() == *wanted
                    && let Some((_, _, content)) = self.answers.pop_front()
                {
                    self.answered.push_back(content);
                }
                (Opcode::ReadResponse, placement)
            }
            Kind::Terminate(bytes) => {
                payload.splice(0..0, *bytes);
                let placement = Placement::Untagged {
                    ulp_word: 0,
                    queue: 2,
                    msn: 1,
                    offset: 0,
                };
                (Opcode::Terminate, placement)
            }
            Kind::Any {
                control,
                ulp,
                words,
            } => {
                self.wild = true;
                let mut ulpdu = vec![*control, *ulp];
                ulpdu.extend(words.iter().flat_map(|word| word.to_be_bytes()));
                ulpdu.extend_from_slice(&payload);
                return self.queue(&ulpdu, frame.flip);
            }
        };
        self.send(opcode, last, placement, &payload, frame.flip);
    }

    pub(super) fn send(
        &mut self,
        opcode: Opcode,
        last: bool,
        placement: Placement,
        payload: &[u8],
        flip: u16,
    ) {
        let header = Header {
            last,
            ulp_control: opcode.control(),
            placement,
        };
        let mut ulpdu = vec![0; UNTAGGED];
        let len = header.emit(&mut ulpdu);
        ulpdu.truncate(len);
        ulpdu.extend_from_slice(payload);
        self.queue(&ulpdu, flip);
    }

    /// Queues a ULPDU as an FPDU, with one bit flipped if `flip` is not 0.
    pub(super) fn queue(&mut self, ulpdu: &[u8], flip: u16) {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend_from_slice(ulpdu);
        fpdu.extend_from_slice(&[0; 3][..padding(ulpdu.len())]);
        let crc = crc32c::crc32c(&fpdu);
        fpdu.extend_from_slice(&crc.to_le_bytes());
        self.sent += fpdu.len() as u64;
        if flip != 0 {
            let bit = usize::from(flip) % (8 * fpdu.len());
            fpdu[bit / 8] ^= 1 << (bit % 8);
            // As long as it is clear where frames begin and end.
            if bit >= 8 * LENGTH_FIELD && !self.wild {
                self.damage = Some(self.sent);
            }
            self.wild = true;
        }
        self.inbound.extend(fpdu);
    }
}

/// Returns, for half of all choices, the number of bytes by which an access exceeds its region.
fn edge(choice: u8) -> Option<usize> {
    (choice >= 128).then_some(usize::from(choice % 3))
}

fn frame_len(ulpdu: usize) -> u64 {
    (LENGTH_FIELD + ulpdu + padding(ulpdu) + CRC_FIELD) as u64
}
