//! Exponential sort keys from random bits, with integers only (rules S24, S25); knows nothing of
//! rows or tables.
//!
//! Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006: rows by
//! ascending `-log(u) / weight` stand as successive draws without replacement would pick them.
//! A library's logarithm differs from one processor to the next; this one has no rounding mode.

use crate::weights::parts;

/// Digits of the logarithm behind the binary point.
const DIGITS: u32 = u64::BITS;

/// Logarithms worked out side by side: each is a chain of multiplications that wait for each other.
pub(super) const CHAINS: usize = 8;

/// Added to the exponents of keys, which lie between -1,087 and 1,082, so that none is negative.
const EXPONENT_BIAS: i32 = 2048;

/// `-log2(max(bits, 1) / 2^128) * 2^64`, rounded up to less than 8 above: from 1 to 2^71.
pub(super) fn exponentials(bits: [u128; CHAINS]) -> [u128; CHAINS] {
    // u = m / 2^63 * 2^-(zeros + 1) with 2^63 <= m < 2^64.
    let bits = bits.map(|bits| bits.max(1));
    let zeros = bits.map(u128::leading_zeros);
    let mut mantissas = [0_u64; CHAINS];
    for ((mantissa, bits), zeros) in mantissas.iter_mut().zip(bits).zip(zeros) {
        *mantissa = ((bits << zeros) >> 64) as u64;
    }
    // A squared mantissa of 2 or more has a logarithm whose first binary digit is 1.
    let mut digits = [0_u64; CHAINS];
    for _ in 0..DIGITS {
        for (mantissa, digits) in mantissas.iter_mut().zip(&mut digits) {
            let square = u128::from(*mantissa) * u128::from(*mantissa);
            let digit = (square >> 127) as u64;
            *digits = *digits << 1 | digit;
            *mantissa = if digit == 1 { square >> 64 } else { square >> 63 } as u64;
        }
    }
    let mut exponentials = [0; CHAINS];
    for ((value, zeros), digits) in exponentials.iter_mut().zip(zeros).zip(digits) {
        *value = (u128::from(zeros + 1) << DIGITS) - u128::from(digits);
    }
    exponentials
}

/// `exponential / weight` rounded down to 64 significant bits, as an integer of 76 bits that
/// ascends with it. `exponential` is from 1 to 2^71, `weight` positive and finite.
pub(super) fn sort_key(exponential: u128, weight: f64) -> u128 {
    let (mantissa, exponent) = parts(weight);
    let up = mantissa.leading_zeros();
    let (divisor, divisor_exponent) = (mantissa << up, exponent - up as i32);
    let up = exponential.leading_zeros();
    // From 2^127 on, divided by at least 2^63 and less than 2^64: 64 or 65 bits.
    let quotient = (exponential << up) / u128::from(divisor);
    let surplus = (quotient >> 64) as u32;
    let exponent = surplus as i32 - up as i32 - divisor_exponent;
    ((exponent + EXPONENT_BIAS) as u128) << 64 | quotient >> surplus
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exponential(bits: u128) -> u128 {
        exponentials([bits; CHAINS])[0]
    }

    #[test]
    fn powers_of_two_have_whole_logarithms() {
        for power in 0..128 {
            assert_eq!(exponential(1 << power), (128 - power) << 64, "2^{power}");
        }
        assert_eq!(exponential(0), 128 << 64);
    }

    #[test]
    fn the_largest_bits_still_have_a_positive_logarithm() {
        // Of -log2(1 - 2^-128), almost nothing, the error is all.
        assert!((1..8).contains(&exponential(u128::MAX)), "{}", exponential(u128::MAX));
    }

    #[test]
    fn lanes_do_not_mix() {
        let bits = [0, u128::MAX, 1 << 127, 12_345 << 77, 1, 2, u128::MAX >> 1, 3 << 100];
        assert_eq!(exponentials(bits), bits.map(exponential));
    }

    #[test]
    fn a_known_logarithm_is_met_to_the_promised_error() {
        // -log2(3/4)
        let exact = 0.415_037_499_278_843_8_f64;
        let found = exponential(3 << 126) as f64 / 2.0_f64.powi(64);
        assert!((found - exact).abs() < 1e-15, "{found}");
        // The number above, to more digits, times 2^64 is 7656090530189244512.37..
        let exact = 7_656_090_530_189_244_513_u128;
        assert!((exact..exact + 8).contains(&exponential(3 << 126)), "{}", exponential(3 << 126));
    }

    #[test]
    fn extreme_weights_have_keys_in_order() {
        let weights = [f64::MAX, 1.7e308, 1.0, f64::MIN_POSITIVE, f64::from_bits(1)];
        for exponential in [1, 7, 1 << 64, 128 << 64] {
            let keys = weights.map(|weight| sort_key(exponential, weight));
            assert!(keys.is_sorted() && keys[0] < keys[4], "{keys:?}");
            assert!(keys.iter().all(|&key| key < 1 << 76), "{keys:?}");
        }
        // The two ends of all keys.
        assert!(sort_key(1, f64::MAX) >> 64 > 900);
        assert!(sort_key(128 << 64, f64::from_bits(1)) >> 64 < 3200);
    }

    /// `a / v < b / w`, exactly, for weights that are integers below 2^53.
    fn is_less(a: u128, v: u64, b: u128, w: u64) -> bool {
        a * u128::from(w) < b * u128::from(v)
    }

    proptest! {
        #[test]
        fn logarithms_ascend_as_their_bits_descend(a: u128, b: u128, near in 0..128_u32) {
            let b = if b & 1 == 0 { a ^ b >> near } else { b };
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(exponential(small) >= exponential(large));
        }

        #[test]
        fn logarithms_are_those_of_the_platform_within_its_error(bits: u128) {
            let exact = -(bits.max(1) as f64 / 2.0_f64.powi(128)).log2();
            let found = exponential(bits) as f64 / 2.0_f64.powi(64);
            prop_assert!((found - exact).abs() < 1e-12, "{} {}", found, exact);
        }

        #[test]
        fn keys_sort_as_exact_quotients(
            a in 1..1_u128 << 71, b in 1..1_u128 << 71, v in 1..1_u64 << 53, w in 1..1_u64 << 53,
        ) {
            // Of 124 bits at most: no product overflows.
            let (first, second) = (sort_key(a, v as f64), sort_key(b, w as f64));
            if first < second {
                prop_assert!(is_less(a, v, b, w));
            } else if second < first {
                prop_assert!(is_less(b, w, a, v));
            }
        }

        #[test]
        fn a_power_of_two_in_the_weight_only_moves_the_exponent(
            a in 1..1_u128 << 71, w in 1e-3..1e3_f64, power in -900..900_i32,
        ) {
            let moved = sort_key(a, w * 2.0_f64.powi(power));
            let (high, low) = (moved >> 64, moved << 64);
            let plain = sort_key(a, w);
            prop_assert_eq!(low, plain << 64);
            prop_assert_eq!(high as i32 + power, (plain >> 64) as i32);
        }
    }
}
