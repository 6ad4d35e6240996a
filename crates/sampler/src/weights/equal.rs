//! All weights equal: the inverse CDF in closed form (rule S12); knows nothing of tables.

use super::quantise::Scale;

/// The integer of a weight that is a power of two.
const POWER_OF_TWO_QUANTUM: u64 = 1 << 61;

/// `rows` rows of one weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct EqualWeights {
    rows: u64,
    quantum: u64,
    shift: u32,
    total: u64,
}

impl EqualWeights {
    /// `rows` is at least 1, `weight` positive and finite.
    pub(super) fn new(rows: u64, weight: f64) -> Self {
        Self::of_quantum(rows, Scale::for_largest(weight).quantise(weight))
    }

    /// The same for the integer of a weight, between 2^61 and 2^62.
    pub(super) fn of_quantum(rows: u64, quantum: u64) -> Self {
        let sum = u128::from(rows) * u128::from(quantum);
        let shift = shift_of(sum);
        Self { rows, quantum, shift, total: (sum >> shift) as u64 }
    }

    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) const fn quantum(&self) -> u64 {
        self.quantum
    }

    /// The row of 128 random bits.
    #[inline]
    pub(super) fn row(&self, bits: u128) -> u64 {
        let mut row = multiply_high(bits, self.rows);
        if self.quantum == POWER_OF_TWO_QUANTUM {
            // Every threshold is then (i + 1) * 2^(61 - shift) without a remainder, and the shift
            // is at most 61: both floors of the definition fall together into this one.
            return row;
        }
        // Otherwise thresholds are rounded down, which may move the answer to a neighbour of the
        // estimate. Both loops end for any estimate: the last threshold exceeds every ticket.
        let ticket = multiply_high(bits, self.total);
        while self.threshold(row) <= ticket {
            row += 1;
        }
        while row > 0 && self.threshold(row - 1) > ticket {
            row -= 1;
        }
        row
    }

    #[inline]
    fn threshold(&self, row: u64) -> u64 {
        (((u128::from(row) + 1) * u128::from(self.quantum)) >> self.shift) as u64
    }
}

/// How far sums are shifted down so that the last one fits 64 bits (rule S9).
pub(super) const fn shift_of(sum: u128) -> u32 {
    (u128::BITS - sum.leading_zeros()).saturating_sub(u64::BITS)
}

/// `floor(bits * factor / 2^128)`, exactly (rule S10).
#[inline]
pub(crate) const fn multiply_high(bits: u128, factor: u64) -> u64 {
    let factor = factor as u128;
    let low = (bits as u64 as u128 * factor) >> 64;
    (((bits >> 64) * factor + low) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiply_high_carries_from_the_low_half() {
        assert_eq!(multiply_high(u128::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(multiply_high(1 << 127, 2), 1);
        assert_eq!(multiply_high((1 << 127) - 1, 2), 0);
        // 3 * ceil(2^128 / 3) reaches 2^128 only through the carry of the low half.
        assert_eq!(multiply_high(u128::MAX / 3 + 1, 3), 1);
        assert_eq!(multiply_high(u128::MAX / 3, 3), 0);
    }

    #[test]
    fn largest_row_count_obeys_the_definition() {
        // Above 1.0 an interval is narrower than one ticket here, so that some rows get none.
        for weight in [1.0, 1.3, 1.9999] {
            let equal = EqualWeights::new(u64::MAX, weight);
            for bits in [0, 1 << 64, 1 << 127, u128::MAX - (1 << 64), u128::MAX] {
                let (row, ticket) = (equal.row(bits), multiply_high(bits, equal.total));
                assert!(row < u64::MAX && equal.threshold(row) > ticket, "{weight} {bits:x}");
                assert!(row == 0 || equal.threshold(row - 1) <= ticket, "{weight} {bits:x}");
            }
        }
    }
}
