//! Chances of orders without replacement against exact ones: chi-square tests with fixed seeds, so
//! that a pass stays a pass.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails its test")]

use dataset_rt_sampler::{CycleKeys, CycleWeights, Mode, Order, TableDigest};

const SEEDS: [u64; 5] = [0, 1, 42, 1 << 32, u64::MAX];

/// Standard deviations from the mean that no sound order reaches in the few dozen runs made here:
/// one in 10^5 for a normal value, and a little more for a chi-square of few cells.
const Z_MAX: f64 = 4.5;

fn keys(seed: u64, mode: Mode) -> CycleKeys {
    CycleKeys::new(seed, mode, TableDigest([9; 32]))
}

fn permutation(seed: u64, rows: u64) -> Order {
    Order::permutation(keys(seed, Mode::Permutation), rows)
}

fn weighted(seed: u64, weights: &[f64]) -> Order {
    let weights = CycleWeights::new(weights.to_vec()).unwrap();
    Order::weighted_without_replacement(keys(seed, Mode::WeightedWithoutReplacement), weights)
}

fn cycle_of(order: &Order, cycle: u64) -> Vec<usize> {
    let table = order.tables().unwrap().build(cycle, &mut || true).unwrap();
    table.rows().iter().map(|&row| row as usize).collect()
}

/// How many standard deviations the chi-square statistic of `counts` lies off its mean.
fn chi_square_z(counts: &[u64], chances: &[f64]) -> f64 {
    let draws = counts.iter().sum::<u64>() as f64;
    let terms = counts.iter().zip(chances).map(|(&count, chance)| {
        let expected = chance * draws;
        (count as f64 - expected).powi(2) / expected
    });
    let freedom = (counts.len() - 1) as f64;
    // A chi-square of few degrees has a long tail; that of its cube root is normal (Wilson and
    // Hilferty, 1931).
    let spread = 2.0 / (9.0 * freedom);
    ((terms.sum::<f64>() / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

#[track_caller]
fn assert_fits(counts: &[u64], chances: &[f64], label: &str) {
    let z = chi_square_z(counts, chances);
    // A value far below the mean is as wrong as one above: too even is not random.
    assert!(z.abs() < Z_MAX, "{label}: z = {z:.2}");
}

/// The number of an order among all of its rows, in the order of a dictionary.
fn number_of(order: &[usize]) -> usize {
    order.iter().enumerate().fold(0, |number, (i, row)| {
        let smaller = order[i..].iter().filter(|other| *other < row).count();
        number * (order.len() - i) + smaller
    })
}

/// All orders of `rows` rows, by their number.
fn all_orders(rows: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..rows {
        let longer = |order: &Vec<usize>| {
            let rest: Vec<usize> = (0..rows).filter(|row| !order.contains(row)).collect();
            rest.into_iter().map(|row| [order.clone(), vec![row]].concat()).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

#[test]
fn orders_are_numbered_without_gaps() {
    for rows in 1..=5 {
        let numbers: Vec<usize> = all_orders(rows).iter().map(|order| number_of(order)).collect();
        assert!(numbers.into_iter().eq(0..(1..=rows).product()));
    }
}

fn counts_of_orders(order: &Order, cycles: u64) -> Vec<u64> {
    let orders: usize = (1..=order.rows() as usize).product();
    let mut counts = vec![0; orders];
    (0..cycles).for_each(|cycle| counts[number_of(&cycle_of(order, cycle))] += 1);
    counts
}

#[test]
fn all_orders_of_few_rows_are_equally_likely() {
    for rows in 2..=6_usize {
        let orders = (1..=rows).product::<usize>();
        let chances = vec![1.0 / orders as f64; orders];
        let cycles = 40 * orders as u64;
        for seed in SEEDS {
            let label = format!("{rows} rows, seed {seed}");
            let counts = counts_of_orders(&permutation(seed, rows as u64), cycles);
            assert_fits(&counts, &chances, &label);
            let counts = counts_of_orders(&weighted(seed, &vec![0.7; rows]), cycles);
            assert_fits(&counts, &chances, &format!("{label}, by weight"));
        }
    }
}

/// The chance of an order of successive draws without replacement.
fn chance_of(order: &[usize], weights: &[f64]) -> f64 {
    let mut left: f64 = weights.iter().sum();
    order.iter().fold(1.0, |chance, &row| {
        let drawn = chance * weights[row] / left;
        left -= weights[row];
        drawn
    })
}

#[test]
fn orders_by_weight_are_those_of_successive_draws() {
    let tables: [&[f64]; 5] = [
        &[1.0, 2.0],
        &[1.0, 1.0, 5.0],
        &[0.3, 1.7, 4.0, 11.0],
        &[1e-300, 2e-300, 3e-300, 4e-300],
        &[3e307, 2e307, 1e307, 5e307, 4e307],
    ];
    for weights in tables {
        let scale = weights.iter().fold(0.0, |a: f64, &b| a.max(b));
        let scaled: Vec<f64> = weights.iter().map(|weight| weight / scale).collect();
        let orders = all_orders(weights.len());
        let chances: Vec<f64> = orders.iter().map(|order| chance_of(order, &scaled)).collect();
        for seed in SEEDS {
            let counts = counts_of_orders(&weighted(seed, weights), 20_000);
            assert_fits(&counts, &chances, &format!("{weights:?}, seed {seed}"));
        }
    }
}

#[test]
fn the_first_row_is_drawn_in_proportion_to_its_weight() {
    let shapes: [fn(f64) -> f64; 3] = [
        |row| row + 1.0,
        |row| 1.0 / (row + 0.5),
        |row| if row % 7.0 == 0.0 { 1e-3 } else { 1e-4 },
    ];
    for shape in shapes {
        let weights: Vec<f64> = (0..40).map(|row| shape(f64::from(row))).collect();
        let sum: f64 = weights.iter().sum();
        let chances: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        for seed in SEEDS {
            let order = weighted(seed, &weights);
            let mut counts = vec![0; weights.len()];
            (0..10_000).for_each(|cycle| counts[cycle_of(&order, cycle)[0]] += 1);
            assert_fits(&counts, &chances, &format!("first of {}.., seed {seed}", weights[1]));
        }
    }
}

const BINS: usize = 64;

/// Differences of neighbours modulo the rows: a network of too few rounds has favourites.
#[test]
fn successive_differences_are_even() {
    for (rows, cycles) in [(1000, 50), (65_537, 1), (1_000_000_000, 1)] {
        let per_cycle = (rows - 1).min(60_000);
        let bin =
            |difference: u64| (u128::from(difference) * BINS as u128 / u128::from(rows)) as usize;
        // The first difference of a bin; 0 is none at all.
        let first = |bin: usize| (bin as u64 * rows).div_ceil(BINS as u64).max(1);
        let chance = |bin| (first(bin + 1) - first(bin)) as f64 / (rows - 1) as f64;
        let chances: Vec<f64> = (0..BINS).map(chance).collect();
        for seed in SEEDS {
            let order = permutation(seed, rows);
            let mut counts = vec![0; BINS];
            let mut found = vec![0; per_cycle as usize + 1];
            for cycle in 0..cycles {
                order.rows_into(cycle * rows, &mut found);
                for pair in found.windows(2) {
                    counts[bin((pair[1] + rows - pair[0]) % rows)] += 1;
                }
            }
            assert_fits(&counts, &chances, &format!("{rows} rows, seed {seed}"));
        }
    }
}

/// Over many cycles any one position of a network meets all rows alike, and two of them any pair.
#[test]
fn a_position_of_a_network_meets_all_rows() {
    for rows in [65_537, 1_000_000_000] {
        let order = permutation(3, rows);
        let bin = |row: u64| (u128::from(row) * 16 / u128::from(rows)) as usize;
        for (a, b) in [(0, 1), (0, rows - 1), (rows / 3, rows / 2)] {
            let mut pairs = vec![0; 256];
            for cycle in 0..20_000 {
                let mut found = [0; 2];
                order.rows_at(&[cycle * rows + a, cycle * rows + b], &mut found);
                pairs[bin(found[0]) * 16 + bin(found[1])] += 1;
            }
            assert_fits(&pairs, &[1.0 / 256.0; 256], &format!("{rows} rows, {a} and {b}"));
        }
    }
}

const ROWS: u64 = 4096;
const LAGS: i64 = 200;
/// At one lag two unrelated cycles agree in about one position; more than 12 happen once in 10^10
/// lags, and fewer than 10^5 are looked at here.
const AGREEMENTS_MAX: usize = 12;

fn assert_unrelated(a: &[u64], b: &[u64], label: &str) {
    for lag in -LAGS..=LAGS {
        let (skip_a, skip_b) = (lag.max(0) as usize, (-lag).max(0) as usize);
        let pairs = a[skip_a..].iter().zip(&b[skip_b..]);
        let agreements = pairs.filter(|(a, b)| a == b).count();
        assert!(agreements <= AGREEMENTS_MAX, "{label}, lag {lag}: {agreements} agreements");
    }
    // Of rows that follow each other in both, there are as few.
    let place = |rows: &[u64]| {
        let mut places = vec![0_i64; ROWS as usize];
        (0..).zip(rows).for_each(|(place, &row)| places[row as usize] = place);
        places
    };
    let place = place(b);
    let steps = a.windows(2).map(|pair| place[pair[1] as usize] - place[pair[0] as usize]);
    let steps = steps.filter(|step| step.abs() == 1).count();
    assert!(steps <= AGREEMENTS_MAX, "{label}: {steps} neighbours in both");
}

#[test]
fn cycles_of_related_seeds_and_numbers_are_unrelated() {
    let by_weight = |seed| weighted(seed, &[1.0; ROWS as usize]);
    let by_table = |seed| permutation(seed, ROWS);
    let kinds: [(&str, &dyn Fn(u64) -> Order); 2] =
        [("by weight", &by_weight), ("permuted", &by_table)];
    for (kind, order) in kinds {
        let cycle = |seed, cycle: u64| -> Vec<u64> {
            cycle_of(&order(seed), cycle).into_iter().map(|row| row as u64).collect()
        };
        for (seed, other) in [(42, 43), (42, 42 + (1 << 32)), (0, u64::MAX), (0, 1 << 63)] {
            for number in [0, 1, 1 << 32] {
                let base = cycle(seed, number);
                let label = format!("{kind}, seeds {seed} and {other}, cycle {number}");
                assert_unrelated(&base, &cycle(other, number), &label);
                assert_unrelated(&base, &cycle(seed, number + 1), &label);
                assert_unrelated(&cycle(seed, number + 1), &cycle(other, number), &label);
            }
        }
    }
    let rows = |order: Order| -> Vec<u64> {
        cycle_of(&order, 0).into_iter().map(|row| row as u64).collect()
    };
    assert_unrelated(&rows(by_weight(42)), &rows(by_table(42)), "modes");
}
