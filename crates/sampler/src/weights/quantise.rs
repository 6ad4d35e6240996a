//! Exact integers for floating-point weights; knows nothing of sums or rows.
//!
//! Only integer operations on the parts of a float: no rounding mode, extended precision or
//! flush-to-zero setting of a CPU can change a result.

/// Bits of the largest weight's integer: `2^61 <= q < 2^62` for it (rule S8).
///
/// The most that leaves room for 2^64 weights in a 128-bit sum with a margin.
const QUANTUM_BITS: i32 = 62;

const MANTISSA_BITS: u32 = 52;
const MANTISSA_MASK: u64 = (1 << MANTISSA_BITS) - 1;
const EXPONENT_MASK: u64 = 0x7ff;
/// Power of two of a subnormal's last bit, the smallest there is.
const EXPONENT_MIN: i32 = -1074;

/// A positive finite float as `mantissa * 2^exponent`, exactly.
#[inline]
pub(crate) fn parts(weight: f64) -> (u64, i32) {
    let bits = weight.to_bits();
    let mantissa = bits & MANTISSA_MASK;
    match (bits >> MANTISSA_BITS) & EXPONENT_MASK {
        0 => (mantissa, EXPONENT_MIN),
        // At most 0x7fe for a finite float, so the conversion is exact.
        biased => (mantissa | 1 << MANTISSA_BITS, EXPONENT_MIN + biased as i32 - 1),
    }
}

/// The common scale of a table's weights, fixed by the largest of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// `QUANTUM_BITS - e` with `e` the smallest integer for which `weight_max < 2^e`.
    exponent: i32,
}

impl Scale {
    /// The scale for weights up to `weight_max`, which is positive and finite.
    pub(super) fn for_largest(weight_max: f64) -> Self {
        let (mantissa, exponent) = parts(weight_max);
        let bit_length = (u64::BITS - mantissa.leading_zeros()) as i32;
        Self { exponent: QUANTUM_BITS - (exponent + bit_length) }
    }

    /// `round_half_even(weight * 2^(62 - e))` for a positive weight up to the largest.
    #[inline]
    pub(super) fn quantise(self, weight: f64) -> u64 {
        let (mantissa, exponent) = parts(weight);
        let shift = exponent + self.exponent;
        if shift >= 0 {
            // No bit is lost: weight < 2^e makes the product smaller than 2^62.
            return mantissa << shift;
        }
        let dropped = shift.unsigned_abs();
        if dropped > MANTISSA_BITS + 1 {
            // Below one half, since mantissa < 2^53.
            return 0;
        }
        let whole = mantissa >> dropped;
        let rest = mantissa & ((1 << dropped) - 1);
        let half = 1 << (dropped - 1);
        whole + u64::from(rest > half || (rest == half && whole & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same number by floating-point scaling, which is exact where it does not underflow to
    /// something that rounds to zero anyway. `powi` is avoided: its accuracy is not promised.
    fn by_floats(weight: f64, weight_max: f64) -> u64 {
        let mut scaled = weight;
        let mut largest = weight_max;
        while largest >= 2.0_f64.powi(62) {
            (scaled, largest) = (scaled / 2.0, largest / 2.0);
        }
        while largest < 2.0_f64.powi(61) {
            (scaled, largest) = (scaled * 2.0, largest * 2.0);
        }
        scaled.round_ties_even() as u64
    }

    #[test]
    fn edges_of_the_float_range_are_exact() {
        let tiny = f64::from_bits(1);
        assert_eq!(Scale::for_largest(tiny).quantise(tiny), 1 << 61);
        assert_eq!(Scale::for_largest(f64::MAX).quantise(f64::MAX), ((1 << 53) - 1) << 9);
        assert_eq!(Scale::for_largest(f64::MAX).quantise(tiny), 0);
        assert_eq!(Scale::for_largest(1.0).quantise(1.0), 1 << 61);
        assert_eq!(Scale::for_largest(2.0_f64.next_down()).quantise(1.0), 1 << 61);
        let subnormal = f64::from_bits(MANTISSA_MASK);
        assert_eq!(Scale::for_largest(subnormal).quantise(tiny), 1 << 10);
    }

    #[test]
    fn halves_round_to_even_integers() {
        // Under a largest weight of 1.0 the unit of q is 2^-61.
        let unit = 2.0_f64.powi(-61);
        let scale = Scale::for_largest(1.0);
        let expected = [(0.5, 0), (0.75, 1), (1.5, 2), (2.5, 2), (3.5, 4), (0.25, 0)];
        for (units, q) in expected {
            assert_eq!(scale.quantise(units * unit), q, "{units} units");
        }
        assert_eq!(scale.quantise((0.5_f64).next_up() * unit), 1);
        assert_eq!(scale.quantise((0.5_f64).next_down() * unit), 0);
        assert_eq!(scale.quantise((1.0_f64).next_down() * unit), 1);
    }

    /// Any positive finite float, with exponents spread over the whole range.
    fn positive() -> impl Strategy<Value = f64> {
        (1_u64..=f64::MAX.to_bits()).prop_map(f64::from_bits)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn integers_equal_exact_float_scaling(
            a in positive(), b in positive(), near in 0..130_u64,
        ) {
            // Half of the pairs are within 2^130, where rounding has something to decide.
            let step = near << 52 | b.to_bits() >> 12;
            let close = f64::from_bits(a.to_bits().saturating_sub(step).max(1));
            for (w, max) in [(a.min(b), a.max(b)), (close, a)] {
                prop_assert_eq!(Scale::for_largest(max).quantise(w), by_floats(w, max));
            }
        }
    }
}
