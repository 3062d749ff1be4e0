//! Expected operations of extensions of version 2 of 2016.

use crate::difference::difference;
use crate::wire::v2;

/// An expected RDMA2_OPTIONAL (version-two-01, section 4.2). What is `None` is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_optdir`.
    pub direction: Option<u32>,
    /// `rdma_opttype`.
    pub opttype: u32,
    /// The words of `rdma_optinfo`.
    pub info: Vec<Option<u32>>,
    /// The bytes that follow the header.
    pub begins: Vec<u8>,
    /// The last bytes of the message.
    pub ends: Vec<u8>,
    /// The bytes of the whole message.
    pub length: Option<usize>,
}

impl Operation {
    /// Expects an operation of a responder with this information, and anything behind it.
    #[must_use]
    pub fn new(xid: u32, opttype: u32, info: &[Option<u32>]) -> Self {
        Self {
            xid,
            direction: Some(v2::REPLY),
            opttype,
            info: info.to_vec(),
            begins: Vec::new(),
            ends: Vec::new(),
            length: None,
        }
    }

    /// Compares an operation whose message has `length` bytes. An error says what it is instead.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn check(&self, is: &v2::Operation, length: usize) -> Result<(), String> {
        let name = v2::operation_name(is.opttype);
        if is.opttype != self.opttype {
            return Err(format!("{name}, not {}", v2::operation_name(self.opttype)));
        }
        let direction = self.direction.unwrap_or(is.direction);
        if (is.xid, is.direction) != (self.xid, direction) {
            return Err(format!(
                "{name} with XID {:#x} and direction {}, not {:#x} and {direction}",
                is.xid, is.direction, self.xid
            ));
        }
        let mut pairs = is.info.iter().zip(&self.info);
        let is_same = is.info.len() == self.info.len()
            && pairs.all(|(is, wanted)| wanted.is_none_or(|it| it == *is));
        if !is_same {
            return Err(format!(
                "{name} with the words {}, not {}",
                words(is.info.iter().map(|it| Some(*it))),
                words(self.info.iter().copied())
            ));
        }
        if let Some(wanted) = self.length.filter(|it| *it != length) {
            return Err(format!("{name} of {length} bytes, not {wanted}"));
        }
        if let Some(difference) = difference(&is.rest, &self.begins, true) {
            return Err(format!("{name} with {difference}"));
        }
        match is.rest.ends_with(&self.ends) {
            true => Ok(()),
            false => Err(format!("{name} with other bytes at its end than the data")),
        }
    }
}

/// Shows the first words, those that may be any as `*`.
fn words(words: impl Iterator<Item = Option<u32>>) -> String {
    let shown = words.take(16).map(|word| match word {
        Some(word) => word.to_string(),
        None => "*".to_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_an_operation_is_compared() {
        let message = v2::operation(7, v2::REPLY, v2::XMTRESP, &[0, 1, 4], &[1, 2, 3, 4]);
        let whole = Operation {
            begins: vec![1, 2],
            ends: vec![3, 4],
            length: Some(message.len()),
            ..Operation::new(7, v2::XMTRESP, &[Some(0), None, Some(4)])
        };
        let is = v2::parse(&message).unwrap();
        assert_eq!(whole.check(&is, message.len()), Ok(()));
        let same = || whole.clone();
        let others = [
            Operation { xid: 8, ..same() },
            Operation {
                direction: Some(v2::CALL),
                ..same()
            },
            Operation {
                opttype: v2::XMTCONT,
                ..same()
            },
            Operation {
                info: vec![Some(0), None, Some(5)],
                ..same()
            },
            Operation {
                info: vec![None, None],
                ..same()
            },
            Operation {
                begins: vec![2],
                ..same()
            },
            Operation {
                ends: vec![3],
                ..same()
            },
            Operation {
                length: Some(message.len() + 1),
                ..same()
            },
        ];
        for other in others {
            assert!(other.check(&is, message.len()).is_err(), "{other:?}");
        }
    }
}
