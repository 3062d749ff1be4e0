//! The byte streams: the peer's, delivered in arbitrary pieces, and ours, which must consist of
//! valid FPDUs.

use super::*;

impl Run {
    pub(super) fn arrive(&mut self, most: usize) {
        let n = most.min(self.inbound.len());
        let bytes: Vec<u8> = self.inbound.drain(..n).collect();
        let result = crate::within(1 << 18, || self.side.put(&bytes));
        self.arrived += n as u64;
        self.ended = self.ended.or(result.err());
    }

    pub(super) fn leave(&mut self, most: usize) {
        match self.side.take(most) {
            Ok(bytes) => self.left(&bytes),
            Err(ended) => self.ended = Some(ended),
        }
    }

    /// Checks that our outgoing bytes are valid FPDUs.
    pub(super) fn left(&mut self, bytes: &[u8]) {
        self.outbound.extend_from_slice(bytes);
        loop {
            let Some(length) = self.outbound.first_chunk() else {
                return;
            };
            let ulpdu = usize::from(u16::from_be_bytes(*length));
            let end = LENGTH_FIELD + ulpdu + padding(ulpdu);
            if self.outbound.len() < end + CRC_FIELD {
                return;
            }
            let rest = self.outbound.split_off(end + CRC_FIELD);
            let fpdu = std::mem::replace(&mut self.outbound, rest);
            let (covered, crc) = fpdu.split_at(end);
            let expected = if self.set_up.crc {
                crc32c::crc32c(covered)
            } else {
                0
            };
            assert_eq!(crc, expected.to_le_bytes());
            assert!(ulpdu <= self.largest_ulpdu, "a ULPDU over MULPDU");
            let view = HeaderView::new(&covered[LENGTH_FIELD..]).expect("a whole header");
            let header = view.to_header().expect("a header of ours");
            let payload = &covered[LENGTH_FIELD + header.header_len()..LENGTH_FIELD + ulpdu];
            self.segment(&header, payload);
        }
    }

    pub(super) fn segment(&mut self, header: &Header, payload: &[u8]) {
        let opcode = Opcode::from_control(header.ulp_control).expect("an opcode of ours");
        assert_eq!(self.terminates, 0, "something follows a Terminate");
        match (opcode, header.placement) {
            (Opcode::Terminate, _) => {
                assert!(self.ended.is_some() && header.last);
                let terminate = Terminate::parse(payload).expect("a Terminate of ours");
                assert!(
                    terminate.code.name().is_some(),
                    "a code that no document has"
                );
                self.terminates += 1;
            }
            (Opcode::ReadResponse, Placement::Tagged { stag, offset }) => {
                if self.wild {
                    return;
                }
                let asked = self.asked.front_mut().expect("nobody asked");
                assert_eq!(
                    (stag, offset),
                    (asked.sink.0, asked.sink.1 + asked.done as u64)
                );
                assert!(
                    payload.iter().all(|byte| *byte == asked.fill),
                    "another's memory"
                );
                asked.done += payload.len();
                assert_eq!(header.last, asked.done == asked.len);
                if header.last {
                    self.asked.pop_front();
                }
            }
            (Opcode::ReadRequest, _) => {
                let request = payload
                    .first_chunk::<READ_REQUEST>()
                    .expect("a whole request");
                let request = ReadRequest::parse(request);
                assert_eq!(self.posted.pop_front(), Some(Vec::new()));
                self.answers
                    .push_back((request.sink_stag, request.length as usize, Vec::new()));
            }
            _ => {
                self.leaving.extend_from_slice(payload);
                if header.last {
                    let message = std::mem::take(&mut self.leaving);
                    assert_eq!(self.posted.pop_front(), Some(message), "another message");
                }
            }
        }
    }
}
