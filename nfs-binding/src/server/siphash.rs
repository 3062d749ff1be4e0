//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a keyed hash of
//! 64 bits that nobody without the key can make. The standard library's has no stable interface
//! with a key.

/// The hash of `data` under a key.
pub(super) fn hash(key: [u8; 16], data: &[u8]) -> u64 {
    let key = u128::from_le_bytes(key);
    let (k0, k1) = (key as u64, (key >> 64) as u64);
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    // The last word: what is left, and the length in its top byte.
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = data.len() as u8;
    absorb(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state.into_iter().fold(0, |hash, word| hash ^ word)
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [mut v0, mut v1, mut v2, mut v3] = *state;
    v0 = v0.wrapping_add(v1);
    v1 = v1.rotate_left(13) ^ v0;
    v0 = v0.rotate_left(32);
    v2 = v2.wrapping_add(v3);
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.wrapping_add(v3);
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v2 = v2.rotate_left(32);
    *state = [v0, v1, v2, v3];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the paper's reference implementation: key 00 01 .. 0f, data 00 01 ..
    #[test]
    fn agrees_with_the_published_vectors() {
        let key = std::array::from_fn(|n| n as u8);
        let data: [u8; 15] = std::array::from_fn(|n| n as u8);
        assert_eq!(hash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(hash(key, &data[..1]), 0x74f8_39c5_93dc_67fd);
        assert_eq!(hash(key, &data[..8]), 0x93f5_f579_9a93_2462);
        assert_eq!(hash(key, &data), 0xa129_ca61_49be_45e5);
    }
}
