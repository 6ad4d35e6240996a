//! Orders without replacement: each row once a cycle, cycle by cycle, for any number of rows.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails its test")]

use std::sync::atomic::{AtomicU32, Ordering};

use dataset_rt_sampler::{CycleError, CycleKeys, CycleWeights, Mode, Order, TableDigest};
use proptest::prelude::*;

fn keys(seed: u64, mode: Mode) -> CycleKeys {
    CycleKeys::new(seed, mode, TableDigest([9; 32]))
}

fn permutation(seed: u64, rows: u64) -> Order {
    Order::permutation(keys(seed, Mode::Permutation), rows)
}

fn weighted(seed: u64, weights: Vec<f64>) -> Order {
    let weights = CycleWeights::new(weights).unwrap();
    Order::weighted_without_replacement(keys(seed, Mode::WeightedWithoutReplacement), weights)
}

/// Reads cycle `cycle` in full, in blocks that do not end where it does.
fn cycle_of(order: &Order, cycle: u64) -> Vec<u64> {
    let mut rows = vec![0; order.rows() as usize];
    match order.tables() {
        Some(source) => {
            let table = source.build(cycle, &mut || true).unwrap();
            rows = table.rows().iter().map(|&row| u64::from(row)).collect();
        }
        None => order.rows_into(cycle * order.rows(), &mut rows),
    }
    rows
}

fn assert_each_row_once(rows: &[u64], label: &str) {
    let mut is_seen = vec![false; rows.len()];
    for &row in rows {
        let seen = is_seen.get_mut(row as usize);
        assert!(seen.is_some_and(|seen| !std::mem::replace(seen, true)), "{label}: row {row}");
    }
}

#[test]
fn every_number_of_rows_is_permuted() {
    for rows in 1..=5000 {
        assert_each_row_once(&cycle_of(&permutation(1, rows), rows), &format!("{rows} rows"));
    }
}

#[test]
fn numbers_of_rows_around_powers_of_two_are_permuted() {
    for power in 13..=21 {
        for rows in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
            assert_each_row_once(&cycle_of(&permutation(2, rows), 3), &format!("{rows} rows"));
        }
    }
}

/// The same up to 2^24 rows, which takes half a minute.
#[test]
#[ignore = "slow: run with --release -- --ignored"]
fn larger_numbers_of_rows_are_permuted() {
    for power in 22..=24 {
        for rows in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
            assert_each_row_once(&cycle_of(&permutation(2, rows), 3), &format!("{rows} rows"));
        }
    }
}

/// Squares, and products of neighbours, are where the sides of the network change.
#[test]
fn numbers_of_rows_around_squares_are_permuted() {
    for root in [257_u64, 300, 511, 512] {
        for product in [root * root, root * (root + 1)] {
            for rows in product - 1..=product + 1 {
                assert_each_row_once(&cycle_of(&permutation(3, rows), 0), &format!("{rows} rows"));
            }
        }
    }
}

#[test]
fn numbers_of_rows_beyond_memory_have_rows() {
    for rows in [(1 << 32) + 1, (1 << 53) + 1, (1 << 63) - 1, u64::MAX] {
        let order = permutation(4, rows);
        let mut found = [0; 1000];
        order.rows_into(0, &mut found);
        assert!(found.iter().all(|&row| row < rows), "{rows}");
        assert!(found.iter().any(|&row| row > rows / 2), "{rows}");
        let mut sorted = found;
        sorted.sort_unstable();
        assert!(sorted.is_sorted_by(|a, b| a < b), "{rows}: a row twice");
    }
}

#[test]
fn cycles_by_weight_hold_each_row_once() {
    for rows in (1..300).chain([65_535, 65_536, 65_537, 200_003]) {
        let weights = (0..rows).map(|row| 1.0 / (f64::from(row % 97) + 0.01)).collect();
        let order = weighted(5, weights);
        assert_each_row_once(&cycle_of(&order, 0), &format!("{rows} rows"));
    }
}

/// A row that outweighs all others together by far comes before them; within a class all orders
/// are possible.
#[test]
fn weights_of_any_size_put_the_heaviest_first() {
    let tiny = f64::from_bits(1);
    let weights = vec![1.0, tiny, f64::MAX, f64::MIN_POSITIVE, 1e200, 1e-200, 1e100, 1e-100];
    for cycle in 0..200 {
        let found = cycle_of(&weighted(6, weights.clone()), cycle);
        assert_eq!(found, [2, 4, 6, 0, 7, 5, 3, 1], "cycle {cycle}");
    }
    for weight in [tiny, f64::MIN_POSITIVE, 1.0, f64::MAX] {
        let order = weighted(6, vec![weight; 50]);
        assert_each_row_once(&cycle_of(&order, 1), &format!("weight {weight:e}"));
        assert_ne!(cycle_of(&order, 1), cycle_of(&order, 2));
    }
}

#[test]
fn equal_weights_need_no_list() {
    let keys = keys(7, Mode::WeightedWithoutReplacement);
    let equal = CycleWeights::equal(1000, 0.3).unwrap();
    let equal = Order::weighted_without_replacement(keys, equal);
    assert_eq!(cycle_of(&equal, 2), cycle_of(&weighted(7, vec![0.3; 1000]), 2));
}

#[test]
fn weights_that_cannot_be_drawn_are_refused_by_row() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let failed = CycleWeights::new(vec![1.0, bad]).unwrap_err();
        assert_eq!(failed.row, 1);
        assert!(CycleWeights::equal(3, bad).is_err());
    }
}

/// A long cycle asks many times whether to go on, and stops at once when not.
#[test]
fn a_cycle_by_weight_can_be_stopped_anywhere() {
    let rows = 1_000_000;
    let order = weighted(8, (0..rows).map(|row| f64::from(row % 1000) + 1.0).collect());
    let source = order.tables().unwrap();
    let looks = AtomicU32::new(0);
    let until = |last| {
        looks.store(0, Ordering::Relaxed);
        source.build(0, &mut || looks.fetch_add(1, Ordering::Relaxed) + 1 < last).map(drop)
    };
    assert_eq!(until(u32::MAX), Ok(()));
    let all = looks.load(Ordering::Relaxed);
    assert!(all > 60, "{all} looks");
    for last in [1, 10, all / 2, all] {
        assert_eq!(until(last), Err(CycleError::Stopped));
        assert_eq!(looks.load(Ordering::Relaxed), last);
    }
}

#[test]
fn a_cycle_that_no_memory_holds_is_an_error() {
    let weights = CycleWeights::equal(u64::from(u32::MAX) + 1, 1.0).unwrap();
    let order = Order::weighted_without_replacement(keys(0, Mode::Permutation), weights);
    let failed = order.tables().unwrap().build(0, &mut || true).unwrap_err();
    assert_eq!(failed, CycleError::TooManyRows { rows: 1 << 32 });
    assert!(failed.to_string().contains("4294967296"), "{failed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A window is a piece of the stream, whatever cycles it begins and ends in.
    #[test]
    fn windows_across_cycles_join_their_parts(
        seed: u64, rows in 1..200_u64, start in 0..1000_u64, len in 0..700_usize,
    ) {
        let by_weight = weighted(seed, (0..rows).map(|row| row as f64 + 0.5).collect());
        for order in [permutation(seed, rows), by_weight, permutation(seed, 70_000 + rows)] {
            // Near the end of a cycle where that is long.
            let rows = order.rows();
            let start = if rows > 1000 { rows - start } else { start };
            let mut found = vec![0; len];
            order.rows_into(start, &mut found);
            let cycles = start / rows..=(start + len as u64) / rows;
            let all = cycles.flat_map(|cycle| cycle_of(&order, cycle));
            let expected: Vec<u64> = all.skip((start % rows) as usize).take(len).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// Both rules of the definition with the widest weights: a permutation, and the same each time.
    #[test]
    fn any_weights_give_each_row_once(
        seed: u64, bits in prop::collection::vec(1..=f64::MAX.to_bits(), 1..300),
    ) {
        let weights: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        let order = weighted(seed, weights.clone());
        let mut rows = cycle_of(&order, seed % 5);
        prop_assert_eq!(&rows, &cycle_of(&weighted(seed, weights), seed % 5));
        rows.sort_unstable();
        prop_assert!(rows.into_iter().eq(0..order.rows()));
    }
}
