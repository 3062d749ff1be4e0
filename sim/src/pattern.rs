//! Contents that say which write they are of.

/// The content of a write: of its number, and `len` bytes long. Number 0 is what was never written.
pub(crate) fn content(number: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 8);
    let mut word = number;
    while out.len() < len {
        out.extend_from_slice(&word.to_le_bytes());
        if number != 0 {
            word = word.wrapping_add(0x0101_0101_0101_0101);
        }
    }
    out.truncate(len);
    out
}

/// The number of the write whose content this is; nothing if it is not all of one. What is missing
/// at the end counts as never written.
pub(crate) fn number(data: &[u8], len: usize) -> Option<u64> {
    let mut whole;
    let data = match data.len() < len {
        true => {
            whole = data.to_vec();
            whole.resize(len, 0);
            &whole[..]
        }
        false => data,
    };
    let number = u64::from_le_bytes(data.get(..8)?.try_into().ok()?);
    let mut word = number;
    for chunk in data.chunks(8) {
        if chunk != &word.to_le_bytes()[..chunk.len()] {
            return None;
        }
        if number != 0 {
            word = word.wrapping_add(0x0101_0101_0101_0101);
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_recognised_and_mixtures_are_not() {
        for len in [16, 100, 4096] {
            assert_eq!(number(&content(7, len), len), Some(7));
            assert_eq!(number(&[], len), Some(0));
            let mut torn = content(7, len);
            torn[len - 1] ^= 1;
            assert_eq!(number(&torn, len), None);
        }
        let mut short = content(7, 100);
        short.truncate(50);
        assert_eq!(number(&short, 100), None);
    }
}
