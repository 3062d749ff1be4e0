//! File contents that identify the write that they come from.

/// The difference between consecutive words of eight bytes.
const STEP: u64 = 0x0101_0101_0101_0101;

/// Returns the words of eight bytes of a content.
fn words(number: u64) -> impl Iterator<Item = [u8; 8]> {
    let step = if number == 0 { 0 } else { STEP };
    let next = move |word: &u64| Some(word.wrapping_add(step));
    std::iter::successors(Some(number), next).map(u64::to_le_bytes)
}

/// Returns the content of the write with this number, `len` bytes long. Number 0 is content that
/// was never written.
#[must_use]
pub fn content(number: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len.next_multiple_of(8)];
    for (place, word) in out.chunks_exact_mut(8).zip(words(number)) {
        place.copy_from_slice(&word);
    }
    out.truncate(len);
    out
}

/// Returns the number of the write whose content this is, or `None` if it does not come from a
/// single one. Bytes missing at the end count as never written.
#[must_use]
pub fn number(data: &[u8], len: usize) -> Option<u64> {
    let mut whole;
    let data = match data.len() < len {
        true => {
            whole = data.to_vec();
            whole.resize(len, 0);
            &whole[..]
        }
        false => data,
    };
    let number = u64::from_le_bytes(*data.first_chunk()?);
    let (chunks, rest) = data.as_chunks::<8>();
    let mut words = words(number);
    let same = chunks
        .iter()
        .zip(&mut words)
        .all(|(chunk, word)| *chunk == word);
    let last = words.next()?;
    (same && *rest == last[..rest.len()]).then_some(number)
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
