//! A keyed bijection of many rows without any memory (rule S22); knows nothing of positions.
//!
//! Source: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002: a generalised Feistel
//! network over `a * b` values with cycle walking, here with additions, whose sides alternate.

use super::LANES;
use crate::key::StreamKey;
use crate::weights::multiply_high;

/// Four rounds of a network like this leave differences of neighbours visible; eight do not.
const ROUNDS: u64 = 8;

/// The network over `rows` rows: values are pairs of a side below `left` and one below `right`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feistel {
    rows: u64,
    left: u64,
    right: u64,
}

impl Feistel {
    /// For at least 1 row. Both sides fit 32 bits and a little: `left` is at most 2^32.
    pub(crate) const fn new(rows: u64) -> Self {
        let left = (rows - 1).isqrt() + 1;
        Self { rows, left, right: rows.div_ceil(left) }
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Puts the row of each offset below `rows` in its place.
    pub(crate) fn permute(&self, key: &StreamKey, offsets: &mut [u64]) {
        for lanes in offsets.chunks_mut(LANES) {
            self.rounds(key, lanes);
            // One value in `sqrt(rows)` at most lies behind the rows: its own value is next.
            for value in lanes {
                while *value >= self.rows {
                    self.rounds(key, std::slice::from_mut(value));
                }
            }
        }
    }

    /// Up to [`LANES`] values, a round of all at a time: each round of one waits for that before.
    fn rounds(&self, key: &StreamKey, values: &mut [u64]) {
        let (mut left, mut right) = ([0; LANES], [0; LANES]);
        let (left, right) = (&mut left[..values.len()], &mut right[..values.len()]);
        for ((value, left), right) in values.iter().zip(left.iter_mut()).zip(right.iter_mut()) {
            (*left, *right) = (value / self.right, value % self.right);
        }
        for round in (0..ROUNDS).step_by(2) {
            add(key, round, right, left, self.left);
            add(key, round + 1, left, right, self.right);
        }
        for ((value, left), right) in values.iter_mut().zip(left).zip(right) {
            // At most `left * right - 1`, which fits 64 bits for any number of rows.
            *value = *left * self.right + *right;
        }
    }
}

/// Adds to each of `to`, modulo `modulus`, a random number that round and `from` decide.
#[inline]
fn add(key: &StreamKey, round: u64, from: &[u64], to: &mut [u64], modulus: u64) {
    let mut bits = [0; LANES];
    for (bits, from) in bits.iter_mut().zip(from) {
        *bits = key.bits(round << 32 | from);
    }
    for (to, bits) in to.iter_mut().zip(bits) {
        let sum = *to + multiply_high(bits, modulus);
        *to = if sum >= modulus { sum - modulus } else { sum };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_cover_the_rows_with_little_to_spare() {
        for rows in (1..5000).chain([65_537, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, u64::MAX]) {
            let Feistel { left, right, .. } = Feistel::new(rows);
            let values = u128::from(left) * u128::from(right);
            assert!(values >= u128::from(rows) && values - 1 <= u128::from(u64::MAX), "{rows}");
            assert!(values - u128::from(rows) < u128::from(left), "{rows}");
            assert!(right <= left && left <= 1 << 32, "{rows}");
        }
    }
}
