//! Chances of rows against exact arithmetic: how far the integer table may be from the weights.

use dataset_rt_sampler::WeightTable;
use proptest::prelude::*;

/// An unsigned 256-bit integer, high half first so that the derived order is the numeric one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wide(u128, u128);

impl Wide {
    fn product(a: u128, b: u128) -> Self {
        let half = |x: u128| (x >> 64, x & u128::from(u64::MAX));
        let ((a1, a0), (b1, b0)) = (half(a), half(b));
        let (low, mid_a, mid_b, high) = (a0 * b0, a1 * b0, a0 * b1, a1 * b1);
        let (m1, m0) = half(mid_a);
        let (n1, n0) = half(mid_b);
        let carry = (low >> 64) + m0 + n0;
        Self(high + m1 + n1 + (carry >> 64), carry << 64 | (low & u128::from(u64::MAX)))
    }

    fn plus(self, other: Self) -> Self {
        let (low, carry) = self.1.overflowing_add(other.1);
        Self(self.0 + other.0 + u128::from(carry), low)
    }

    fn distance(self, other: Self) -> Self {
        let (large, small) = if self > other { (self, other) } else { (other, self) };
        let (low, borrow) = large.1.overflowing_sub(small.1);
        Self(large.0 - small.0 - u128::from(borrow), low)
    }
}

#[test]
fn wide_integers_carry() {
    let all = u128::MAX;
    assert_eq!(Wide::product(all, all), Wide(all - 1, 1));
    assert_eq!(Wide(0, all).plus(Wide(0, 1)), Wide(1, 0));
    assert_eq!(Wide(1, 0).distance(Wide(0, 1)), Wide(0, all));
}

/// The first 128 random bits that no longer pick a row up to `row`, found by bisection through the
/// public draw: `2^128` is out of reach and stands as `None`.
fn interval_end(table: &WeightTable, row: u64) -> Option<u128> {
    if table.draw(u128::MAX) <= row {
        return None;
    }
    let (mut below, mut above) = (0, u128::MAX);
    while below < above {
        let middle = below + (above - below) / 2;
        if table.draw(middle) > row { above = middle } else { below = middle + 1 }
    }
    Some(below)
}

/// Weights `mantissa * 2^exponent` as integers: full mantissas and ratios to 2^13 make every
/// quantum round, and sums still fit the exact arithmetic.
fn integer_weights() -> impl Strategy<Value = Vec<u128>> {
    let weight =
        (1_u128 << 52..1 << 53, 0..14_u32).prop_map(|(mantissa, exponent)| mantissa << exponent);
    prop::collection::vec(weight, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Half the sum of |w_i / W - p_i| stays below n * 2^-62 * w_max / W + n * 2^-63, where p_i is
    /// the exact share of all 2^128 random bits that pick row i. The draw itself adds 2^-128 a row.
    #[test]
    fn total_variation_stays_within_the_promised_bound(weights in integer_weights()) {
        let rows = weights.len() as u128;
        let (sum, largest) = (weights.iter().sum::<u128>(), *weights.iter().max().unwrap());
        let table = WeightTable::build(weights.iter().map(|&w| w as f64)).unwrap();
        let mut start = 0_u128;
        let mut difference = Wide(0, 0);
        for (row, &weight) in weights.iter().enumerate() {
            let end = interval_end(&table, row as u64);
            // The share over 2^128; the last interval ends at 2^128, which wraps to 0.
            let share = end.unwrap_or(0).wrapping_sub(start);
            let exact = Wide(weight, 0);
            let drawn = if weights.len() == 1 { Wide(sum, 0) } else { Wide::product(share, sum) };
            difference = difference.plus(exact.distance(drawn));
            start = end.unwrap_or(0);
        }
        // Both sides times 2 * W * 2^128, so that nothing is divided.
        let right = rows * (2 * largest + sum);
        let right = Wide(right >> 62, right << 66).plus(Wide::product(2 * rows, sum));
        prop_assert!(difference <= right, "{difference:?} > {right:?}");
    }

    #[test]
    fn a_common_power_of_two_changes_no_draw(
        weights in prop::collection::vec(1e-3..1e3_f64, 1..50),
        exponent in -900..900_i32,
        bits in prop::collection::vec(any::<u128>(), 50),
    ) {
        let plain = WeightTable::build(weights.iter().copied()).unwrap();
        let scaled = weights.iter().map(|weight| weight * 2.0_f64.powi(exponent));
        let scaled = WeightTable::build(scaled.collect::<Vec<_>>()).unwrap();
        for bits in bits {
            prop_assert_eq!(plain.draw(bits), scaled.draw(bits));
        }
    }

    #[test]
    fn draws_are_monotone_in_their_bits(
        weights in prop::collection::vec(1e-9..1e9_f64, 1..50),
        mut bits in prop::collection::vec(any::<u128>(), 2..50),
    ) {
        let table = WeightTable::build(weights.iter().copied()).unwrap();
        bits.sort_unstable();
        let rows: Vec<u64> = bits.iter().map(|&bits| table.draw(bits)).collect();
        prop_assert!(rows.is_sorted());
    }
}
