//! The counter-based generator Philox4x32-10; knows nothing of keys, seeds or draws.
//!
//! Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

/// Multipliers of the two halves of a round, and the Weyl steps of the key (paper, section 3).
const MULTIPLIER: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Ten is the number of rounds the paper recommends; seven already pass its test batteries.
const ROUNDS: u32 = 10;

/// The 128 random bits that belong to one counter under one key.
///
/// A pure function of its arguments, computed in constant time without any state, so that draw `k`
/// never needs draw `k - 1`. It only multiplies 32-bit words: every CPU gives the same bits.
#[must_use]
#[inline]
pub const fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    let mut round = 0;
    while round < ROUNDS {
        let p0 = MULTIPLIER[0] as u64 * c0 as u64;
        let p1 = MULTIPLIER[1] as u64 * c2 as u64;
        (c0, c1, c2, c3) =
            ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
        round += 1;
    }
    [c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three rows for this generator in the known-answer file of Random123.
    #[test]
    fn known_answers_of_random123_hold() {
        let answers = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in answers {
            assert_eq!(philox4x32_10(counter, key), expected, "counter {counter:x?} key {key:x?}");
        }
    }
}
