//! Properties that need the inside of a weight table: thresholds, closed form and guide.

use proptest::prelude::*;

use super::guide::GuideBuilder;
use super::{WeightError, WeightProblem, WeightTable, WeightTableBuilder};

/// The definition, word for word (rule S11).
fn naive(thresholds: &[u64], ticket: u64) -> u64 {
    thresholds.iter().position(|&threshold| threshold > ticket).unwrap() as u64
}

/// Bits whose ticket under `total` is exactly `ticket`, as small as they come.
fn bits_of(ticket: u64, total: u64) -> u128 {
    let total = u128::from(total);
    let high = (u128::from(ticket) << 64) / total;
    let rest = (u128::from(ticket) << 64) % total;
    let floor = (high << 64) + (rest << 64) / total;
    floor + u128::from(!(rest << 64).is_multiple_of(total))
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.001..1000.0_f64,
        2 => (1_u64..=f64::MAX.to_bits()).prop_map(f64::from_bits),
        1 => Just(1.0),
        1 => Just(f64::from_bits(1)),
        1 => Just(f64::MAX),
        1 => (-40..40_i32).prop_map(|exponent| 2.0_f64.powi(exponent)),
    ]
}

/// Widths of intervals: many empty or narrow ones beside wide ones.
fn step() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..4_u64, any::<u32>().prop_map(u64::from)]
}

fn problem(weights: &[f64]) -> WeightError {
    WeightTable::build(weights.iter().copied()).unwrap_err()
}

#[test]
fn unusable_weights_are_named_with_row_and_reason() {
    let cases = [
        (f64::NAN, WeightProblem::NotANumber),
        (f64::INFINITY, WeightProblem::Infinite),
        (f64::NEG_INFINITY, WeightProblem::Negative),
        (-1.0, WeightProblem::Negative),
        (-f64::from_bits(1), WeightProblem::Negative),
        (0.0, WeightProblem::Zero),
        (-0.0, WeightProblem::Zero),
    ];
    for (weight, reason) in cases {
        let error = problem(&[1.0, 2.0, weight, f64::NAN]);
        assert_eq!((error.row, error.reason), (2, reason), "{weight}");
        assert_eq!(error.weight.to_bits(), weight.to_bits());
        assert!(error.to_string().contains("row 2"), "{error}");
        assert_eq!(WeightTable::equal(3, weight).unwrap_err().reason, reason);
    }
    assert!(problem(&[0.0]).to_string().contains("filter it out"));
    assert_eq!(problem(&[]).reason, WeightProblem::NoRows);
    assert_eq!(WeightTable::equal(0, 1.0).unwrap_err().reason, WeightProblem::NoRows);
}

#[test]
fn equal_weights_hold_no_memory() {
    let table = WeightTable::build([0.25; 1000]).unwrap();
    assert_eq!((table.len(), table.size_bytes()), (1000, 0));
    assert!(WeightTable::build([0.25, 0.5]).unwrap().size_bytes() > 0);
}

#[test]
fn a_table_is_made_in_the_memory_of_its_weights() {
    let mut builder = WeightTableBuilder::new(100_000);
    (1..=100_000).try_for_each(|row| builder.push(f64::from(row))).unwrap();
    let table = builder.finish(&mut || true).unwrap().unwrap();
    // 8 bytes a row, and 1 to 2 of the guide.
    assert!((900_000..1_000_100).contains(&table.size_bytes()), "{}", table.size_bytes());
}

#[test]
fn a_builder_stops_when_it_is_told() {
    for allowed in 0..4 {
        let mut builder = WeightTableBuilder::new(300_000);
        (1..=300_000).try_for_each(|row| builder.push(f64::from(row))).unwrap();
        let mut asked = 0;
        let stopped = builder.finish(&mut || {
            asked += 1;
            asked <= allowed
        });
        assert!(stopped.unwrap().is_none());
        assert_eq!(asked, allowed + 1);
    }
}

#[test]
fn a_bucket_of_many_rows_is_searched_to_its_end() {
    // Rows so light that thousands share a bucket, beside one that owns almost all tickets.
    let weights: Vec<f64> = (0..5000).map(|row| if row == 2500 { 1e9 } else { 1e-3 }).collect();
    let table = WeightTable::build_general(&weights).unwrap();
    let thresholds = table.thresholds().unwrap();
    let total = *thresholds.last().unwrap();
    for row in (0..5000).step_by(7) {
        let bits = bits_of(thresholds[row] - 1, total);
        assert_eq!(table.draw(bits), row as u64);
    }
}

#[test]
fn rows_without_an_interval_are_passed_over() {
    let table = WeightTable::build([1e-30, 1.0, 1e-30, 1e-30, 1.0, 1e-30]).unwrap();
    let thresholds = table.thresholds().unwrap();
    assert_eq!(thresholds, [0, 1 << 61, 1 << 61, 1 << 61, 1 << 62, 1 << 62]);
    for (bits, row) in [(0, 1), ((1 << 127) - 1, 1), (1 << 127, 4), (u128::MAX, 4)] {
        assert_eq!(table.draw(bits), row);
    }
}

proptest! {
    #[test]
    fn draws_follow_the_definition(
        weights in prop::collection::vec(weight(), 1..200),
        random in prop::collection::vec(any::<u128>(), 100),
    ) {
        let general = WeightTable::build_general(&weights).unwrap();
        let thresholds = general.thresholds().unwrap();
        let total = *thresholds.last().unwrap();
        // Interval ends are where an off-by-one shows.
        let ends = thresholds.iter().flat_map(|&end| {
            let ticket = |ticket: u64| bits_of(ticket.min(total - 1), total);
            [ticket(end), ticket(end).saturating_sub(1), ticket(end.saturating_sub(1))]
        });
        let bits: Vec<u128> = random.into_iter().chain(ends).chain([0, u128::MAX]).collect();
        let mut rows = vec![0; bits.len()];
        WeightTable::build(weights.iter().copied()).unwrap().draw_into(&bits, &mut rows);
        for (&bits, row) in bits.iter().zip(rows) {
            let ticket = super::equal::multiply_high(bits, total);
            prop_assert_eq!(row, naive(thresholds, ticket), "ticket {}", ticket);
            prop_assert_eq!(row, general.draw(bits));
        }
    }

    #[test]
    fn closed_form_equals_the_table_of_equal_weights(
        weight in weight(),
        rows in 1..3000_usize,
        random in prop::collection::vec(any::<u128>(), 60),
    ) {
        let closed = WeightTable::equal(rows as u64, weight).unwrap();
        let general = WeightTable::build_general(&vec![weight; rows]).unwrap();
        let thresholds = general.thresholds().unwrap();
        let total = *thresholds.last().unwrap();
        let ends = thresholds.iter().step_by(rows.div_ceil(50)).flat_map(|&end| {
            let bits = bits_of(end.min(total - 1), total);
            [bits, bits.saturating_sub(1), bits.saturating_add(1)]
        });
        for bits in random.into_iter().chain(ends).chain([0, u128::MAX]) {
            prop_assert_eq!(closed.draw(bits), general.draw(bits), "bits {:x}", bits);
        }
    }

    #[test]
    fn guide_brackets_the_definition_for_any_layout(
        steps in prop::collection::vec(step(), 1..200),
        buckets_max in 1..300_u64,
        coarse in 0..9_u32,
        random in prop::collection::vec(any::<u64>(), 50),
    ) {
        let mut sum = 0;
        let mut thresholds: Vec<u64> = steps.iter().map(|step| { sum += step; sum }).collect();
        thresholds.push(sum + 1);
        let total = sum + 1;
        let mut builder = GuideBuilder::with(total, buckets_max, coarse);
        thresholds.iter().for_each(|&threshold| builder.push(threshold));
        let guide = builder.finish();
        let guide = guide.view();
        let ends = thresholds.iter().flat_map(|&end| [end.min(sum), end.saturating_sub(1)]);
        for ticket in random.into_iter().map(|random| random % total).chain(ends) {
            let (first, last) = (guide.first(ticket), guide.last(ticket));
            let row = naive(&thresholds, ticket);
            prop_assert!(first <= row && row <= last, "{} not in {}..={}", row, first, last);
            prop_assert!(last < thresholds.len() as u64);
        }
    }
}
