//! The key of one stream and its random bits; knows nothing of rows, weights or epochs.

use crate::digest::TableDigest;
use crate::mode::{Mode, SAMPLER_VERSION};
use crate::philox::philox4x32_10;

/// Context of rule S5. BLAKE3 wants it fixed and unique to one use; changing it changes all orders.
const STREAM_CONTEXT: &str = "DatasetRT order of rows v0: stream key";

/// Bytes of key material hashed for one stream (rule S5).
const MATERIAL_BYTES: usize = 56;

/// What the bits of a stream are used for: each purpose has its own, unrelated stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Choosing the row of a position.
    Draw,
    /// Seeding augmentations at a position.
    PositionSeed,
}

impl Purpose {
    /// The byte of rule S5. Codes are append-only.
    const fn code(self) -> u8 {
        match self {
            Self::Draw => 0,
            Self::PositionSeed => 1,
        }
    }
}

/// The identity of one endless stream of random bits, addressed by position.
///
/// Streams with any difference in version, mode, purpose, seed or table share nothing: the whole
/// material goes through BLAKE3. Combining seed and position by xor or addition instead would make
/// the streams of nearby seeds shifted or permuted copies of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    key: [u32; 2],
    counter_high: [u32; 2],
}

impl StreamKey {
    /// The key of the stream with these fields (rule S5). Costs one BLAKE3 block, about 0.2 us.
    #[must_use]
    pub fn derive(seed: u64, mode: Mode, table: &TableDigest, purpose: Purpose) -> Self {
        // One stream through all cycles; `CycleKeys` has those of the modes without replacement.
        Self::derive_cycle(seed, mode, table, purpose, 0)
    }

    fn derive_cycle(
        seed: u64,
        mode: Mode,
        table: &TableDigest,
        purpose: Purpose,
        cycle: u64,
    ) -> Self {
        let mut material = [0_u8; MATERIAL_BYTES];
        material[0..4].copy_from_slice(&SAMPLER_VERSION.to_le_bytes());
        material[4] = mode.code();
        material[5] = purpose.code();
        // Bytes 6 and 7 stay zero so that the integers behind them are aligned.
        material[8..16].copy_from_slice(&seed.to_le_bytes());
        material[16..24].copy_from_slice(&cycle.to_le_bytes());
        material[24..56].copy_from_slice(&table.0);
        let derived = blake3::derive_key(STREAM_CONTEXT, &material);
        let [k0, k1, c2, c3] = leading_words(&derived);
        Self { key: [k0, k1], counter_high: [c2, c3] }
    }

    /// The 128 random bits of position `k`, any `k` at the same cost (rule S6).
    #[must_use]
    #[inline]
    pub fn bits(&self, k: u64) -> u128 {
        let [c2, c3] = self.counter_high;
        let [x0, x1, x2, x3] = philox4x32_10([k as u32, (k >> 32) as u32, c2, c3], self.key);
        u128::from(x0) | u128::from(x1) << 32 | u128::from(x2) << 64 | u128::from(x3) << 96
    }

    /// A 64-bit seed for position `k`: the low half of its bits.
    ///
    /// Meant for keys derived with [`Purpose::PositionSeed`]. It belongs to the position, not to
    /// a process, so augmentations survive a change of world size or worker count.
    #[must_use]
    pub fn seed_at(&self, k: u64) -> u64 {
        self.bits(k) as u64
    }

    /// The two words of the generator's key, for golden vectors and diagnosis.
    #[must_use]
    pub const fn philox_key(&self) -> [u32; 2] {
        self.key
    }

    /// The two high words of the generator's counter, for golden vectors and diagnosis.
    #[must_use]
    pub const fn counter_high(&self) -> [u32; 2] {
        self.counter_high
    }
}

/// The keys of a mode without replacement: each cycle over the rows draws from its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleKeys {
    seed: u64,
    mode: Mode,
    table: TableDigest,
}

impl CycleKeys {
    /// The keys of all cycles of the stream with these fields.
    #[must_use]
    pub const fn new(seed: u64, mode: Mode, table: TableDigest) -> Self {
        Self { seed, mode, table }
    }

    /// The key of cycle `cycle` (rules S5 and S20), at the cost of [`StreamKey::derive`].
    #[must_use]
    pub fn key(&self, cycle: u64) -> StreamKey {
        StreamKey::derive_cycle(self.seed, self.mode, &self.table, Purpose::Draw, cycle)
    }
}

/// The first four little-endian words of a digest.
fn leading_words(bytes: &[u8; 32]) -> [u32; 4] {
    let mut words = [0_u32; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*chunk);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableDigest = TableDigest([7; 32]);

    fn key() -> StreamKey {
        StreamKey::derive(1, Mode::Multinomial, &TABLE, Purpose::Draw)
    }

    #[test]
    fn every_field_of_the_material_changes_key_and_counter() {
        let mut other_table = TABLE;
        other_table.0[31] ^= 0x80;
        let others = [
            StreamKey::derive(2, Mode::Multinomial, &TABLE, Purpose::Draw),
            StreamKey::derive(1 | 1 << 63, Mode::Multinomial, &TABLE, Purpose::Draw),
            StreamKey::derive(1, Mode::Sequential, &TABLE, Purpose::Draw),
            StreamKey::derive(1, Mode::Multinomial, &TABLE, Purpose::PositionSeed),
            StreamKey::derive(1, Mode::Multinomial, &other_table, Purpose::Draw),
            StreamKey::derive_cycle(1, Mode::Multinomial, &TABLE, Purpose::Draw, 1),
        ];
        for other in others {
            assert_ne!(key().philox_key(), other.philox_key());
            assert_ne!(key().counter_high(), other.counter_high());
        }
    }

    #[test]
    fn both_halves_of_a_position_reach_the_bits() {
        let bits = [0, 1, 1 << 31, 1 << 32, 1 << 63].map(|k| key().bits(k));
        for (i, a) in bits.iter().enumerate() {
            assert!(bits[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn words_enter_the_bits_lowest_first() {
        let [c2, c3] = key().counter_high();
        let words = philox4x32_10([5, 1, c2, c3], key().philox_key());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(key().bits(5 | 1 << 32).to_le_bytes().as_slice(), bytes);
        assert_eq!(key().seed_at(5 | 1 << 32).to_le_bytes().as_slice(), &bytes[..8]);
    }
}
