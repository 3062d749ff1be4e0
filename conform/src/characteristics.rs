//! Transport characteristics that an end tells in version 2 of 2016 (xcharext-02; rtrext-00, section 8).

use crate::wire::{Reader, v2};

/// Characteristics of a server without which a case does not apply to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// The operations of rtrext-00, as bits of XCHAR_RTRSUPP.
    pub operations: u32,
    /// The transmissions that a call may have (XCHAR_REQRXLIM).
    pub request: u32,
    /// The transmissions that a reply may have (XCHAR_RESPSXLIM).
    pub response: u32,
}

/// Where bulk data goes in the receives of an end: the first segment for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The octets before it.
    pub(crate) offset: usize,
    /// Its octets.
    pub(crate) length: usize,
}

/// The longest message that is made, octets, whatever a server says of its receives.
const MOST_OCTETS: usize = 1 << 20;

/// The characteristics of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Characteristics {
    /// The longest message that it receives, octets.
    pub(crate) receive: usize,
    /// The first segment of its receives for bulk data, if there is one.
    pub(crate) target: Option<Target>,
    operations: u32,
    request: u32,
    response: u32,
}

/// The defaults (xcharext-02, section 3; rtrext-00, section 8.1).
impl Default for Characteristics {
    fn default() -> Self {
        Self {
            receive: v2::INLINE,
            target: None,
            operations: 0,
            request: 1,
            response: 1,
        }
    }
}

impl Characteristics {
    /// Decodes the information of ROPT_INITXCH. Returns `None` if it, or a value in it, cannot be decoded.
    pub(crate) fn of(info: &[u32]) -> Option<Self> {
        let info = v2::bytes(info);
        let mut from = Reader(&info);
        let mut told = Self::default();
        let (mut size, mut sum) = (None, None);
        for _ in 0..from.word()? {
            let (which, length) = (from.word()?, from.word()? as usize);
            let mut value = Reader(from.take(length)?);
            from.take(length.wrapping_neg() % 4)?;
            match which {
                v2::RBSIZ => size = Some(value.word()? as usize),
                v2::RTRSUPP => told.operations = value.word()?,
                v2::RBSTRUCT => {
                    let (all, target) = structure(&mut value)?;
                    (sum, told.target) = (Some(all), target);
                }
                v2::REQRXLIM => told.request = value.word()?,
                v2::RESPSXLIM => told.response = value.word()?,
                _ => continue,
            }
            if !value.0.is_empty() {
                return None;
            }
        }
        for _ in 0..from.word()? {
            from.word()?;
        }
        // A size that is not told follows from the structure (rtrext-00, section 8.3).
        told.receive = size.or(sum).unwrap_or(told.receive);
        from.0.is_empty().then_some(told)
    }

    /// Returns where this much data goes in a message behind a header of this length, if this end can receive that.
    pub(crate) fn place(&self, header: usize, data: usize) -> Option<usize> {
        let target = self
            .target
            .filter(|it| header <= it.offset && data <= it.length)?;
        let end = target.offset.checked_add(data)?;
        (end <= self.receive.min(MOST_OCTETS)).then_some(target.offset)
    }

    /// Says which of the needed characteristics this end lacks, if any.
    pub(crate) fn lack(&self, needed: &Needed) -> Option<String> {
        let missing = needed.operations & !self.operations;
        if missing != 0 {
            return Some(format!(
                "the server does not say that it supports all of rtrext-00 that the case uses: XCHAR_RTRSUPP is {:#x} and lacks {missing:#x} (rtrext-00, 8.2)",
                self.operations
            ));
        }
        let limits = [
            ("calls", "8.4", self.request, needed.request),
            ("replies", "8.5", self.response, needed.response),
        ];
        let (what, section, most, wanted) = limits.into_iter().find(|it| it.2 < it.3)?;
        Some(format!(
            "{what} of the server have at most {most} transmissions, and the case needs {wanted} (rtrext-00, {section})"
        ))
    }
}

/// The characteristics of both ends of a connection, as far as they were told.
#[derive(Debug, Default)]
pub(crate) struct BothEnds {
    /// Characteristics of this client.
    pub(crate) own: Characteristics,
    /// Characteristics of the server.
    pub(crate) server: Characteristics,
}

impl BothEnds {
    /// Looks at a message before it is sent: this client may tell its characteristics in it.
    pub(crate) fn sends(&mut self, message: &[u8]) {
        let told = v2::parse(message).filter(|it| it.opttype == v2::INITXCH);
        if let Some(own) = told.and_then(|it| Characteristics::of(&it.info)) {
            self.own = own;
        }
    }
}

/// Decodes XCHAR_RBSTRUCT: the length of all segments, and the first one for bulk data. Segments beyond the end of the
/// address space cannot be decoded.
fn structure(from: &mut Reader<'_>) -> Option<(usize, Option<Target>)> {
    const FOR_BULK_DATA: u32 = 1;
    // The length of the receive is that of its segments.
    from.word()?;
    let (mut sum, mut target) = (0_usize, None);
    for _ in 0..from.word()? {
        let (count, length) = (from.word()? as usize, from.word()? as usize);
        let (_, flags) = (from.word()?, from.word()?);
        if target.is_none() && flags & FOR_BULK_DATA != 0 && count > 0 {
            let offset = sum;
            target = Some(Target { offset, length });
        }
        sum = sum.checked_add(count.checked_mul(length)?)?;
    }
    Some((sum, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_decoded_and_what_is_not_has_its_default() {
        let all = Characteristics::of(&v2::everything()).unwrap();
        assert_eq!(all.receive, v2::HEAD + v2::TARGET);
        let (offset, length) = (v2::HEAD, v2::TARGET);
        assert_eq!(all.target, Some(Target { offset, length }));
        assert_eq!((all.operations, all.request, all.response), (7, 16, 64));
        assert_eq!(
            Characteristics::of(&[0, 0]),
            Some(Characteristics::default())
        );
        // Without a size, it is that of the structure: two segments of 512 octets, and one for bulk data.
        let told = [1, v2::RBSTRUCT, 40, 9216, 2, 2, 512, 1, 0, 1, 8192, 1, 1, 0];
        let told = Characteristics::of(&told).unwrap();
        let (offset, length) = (1024, 8192);
        assert_eq!(
            (told.receive, told.target),
            (9216, Some(Target { offset, length }))
        );
    }

    #[test]
    fn no_data_is_placed_beyond_what_can_be_received() {
        let told = |structure: [u32; 8]| {
            let info = [&[1, v2::RBSTRUCT, 40, 9216, 2], &structure[..], &[0]].concat();
            Characteristics::of(&info).unwrap()
        };
        let usual = told([2, 512, 1, 0, 1, 8192, 1, 1]);
        assert_eq!(usual.place(1024, 8192), Some(1024));
        assert_eq!(usual.place(1025, 8192), None);
        assert_eq!(usual.place(1024, 8193), None);
        // The offset fits a word of 64 bits, and no memory.
        let most = u32::MAX;
        let huge = told([most, most, 1, 0, 1, 4096, 1, 1]);
        assert!(huge.target.is_some());
        assert_eq!(huge.place(64, 4096), None);
        let long = told([1, 1 << 20, 1, 0, 1, 4096, 1, 1]);
        assert_eq!(long.place(64, 1), None);
    }

    #[test]
    fn what_cannot_be_decoded_is_not() {
        for wrong in [
            &[][..],
            &[1],
            &[1, v2::RBSIZ, 0, 0],
            &[1, v2::RBSIZ, 8, 1, 1, 0],
            &[0],
            &[0, 0, 0],
        ] {
            assert_eq!(Characteristics::of(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_a_case_needs_and_a_server_lacks_is_said() {
        let all = Characteristics::of(&v2::everything()).unwrap();
        let needed = Needed {
            operations: 7,
            request: 16,
            response: 64,
        };
        assert_eq!(all.lack(&needed), None);
        let lack = |needed| Characteristics::default().lack(&needed).unwrap();
        assert!(lack(needed).contains("lacks 0x7"));
        let none = Needed::default();
        assert_eq!(Characteristics::default().lack(&none), None);
        assert!(lack(Needed { request: 2, ..none }).contains("calls"));
        assert!(
            lack(Needed {
                response: 2,
                ..none
            })
            .contains("replies")
        );
    }
}
