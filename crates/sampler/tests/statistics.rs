//! Frequencies of drawn rows: chi-square tests with fixed seeds, so that a pass stays a pass.

use std::sync::Arc;

use dataset_rt_sampler::{Mode, Order, Purpose, StreamKey, TableDigest, WeightTable};

const SEEDS: [u64; 5] = [0, 1, 42, 1 << 32, u64::MAX];
const ROWS: u64 = 500;
const DRAWS: usize = 100_000;

/// Standard deviations from the mean that no sound order reaches in the few runs made here.
const Z_MAX: f64 = 4.5;

/// The weight of a row.
type Shape = fn(u64) -> f64;

fn key(seed: u64) -> StreamKey {
    StreamKey::derive(seed, Mode::Multinomial, &TableDigest([9; 32]), Purpose::Draw)
}

/// How many standard deviations the chi-square statistic of `counts` lies off its mean.
fn chi_square_z(counts: &[u64], chances: &[f64]) -> f64 {
    let draws = counts.iter().sum::<u64>() as f64;
    let terms = counts.iter().zip(chances).map(|(&count, chance)| {
        let expected = chance * draws;
        (count as f64 - expected).powi(2) / expected
    });
    let freedom = (counts.len() - 1) as f64;
    (terms.sum::<f64>() - freedom) / (2.0 * freedom).sqrt()
}

fn counts(order: &Order, k0: u64) -> Vec<u64> {
    let mut rows = vec![0; DRAWS];
    order.rows_into(k0, &mut rows);
    let mut counts = vec![0; order.rows() as usize];
    rows.iter().for_each(|&row| counts[row as usize] += 1);
    counts
}

fn assert_fits(order: &Order, chances: &[f64], label: &str) {
    for k0 in [0, 1 << 32, (1 << 63) - DRAWS as u64] {
        let z = chi_square_z(&counts(order, k0), chances);
        // A value far below the mean is as wrong as one above: too even is not random.
        assert!(z.abs() < Z_MAX, "{label} from {k0}: z = {z:.2}");
    }
}

#[test]
fn equal_weights_draw_evenly() {
    for seed in SEEDS {
        for weight in [1.0, 0.3] {
            let order = Order::uniform(key(seed), ROWS, weight).unwrap();
            assert_fits(&order, &[1.0 / ROWS as f64; ROWS as usize], &format!("seed {seed}"));
        }
    }
}

#[test]
fn rows_are_drawn_in_proportion_to_their_weights() {
    let shapes: [(&str, Shape); 3] = [
        ("linear", |row| row as f64 + 5.0),
        ("two classes", |row| if row.is_multiple_of(7) { 10.0 } else { 1.0 }),
        ("heavy tail", |row| 1.0 / (row as f64 + 3.0)),
    ];
    for (label, shape) in shapes {
        let weights: Vec<f64> = (0..ROWS).map(shape).collect();
        let sum: f64 = weights.iter().sum();
        let chances: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
        let table = Arc::new(WeightTable::build(weights).unwrap());
        for seed in SEEDS {
            let order = Order::multinomial(key(seed), Arc::clone(&table));
            assert_fits(&order, &chances, &format!("{label}, seed {seed}"));
        }
    }
}

#[test]
fn neighbouring_draws_are_independent() {
    for seed in SEEDS {
        let order = Order::uniform(key(seed), 20, 1.0).unwrap();
        let mut rows = vec![0; DRAWS];
        order.rows_into(0, &mut rows);
        for lag in [1, 2, 63, 64, 256, 4096] {
            let mut pairs = vec![0; 400];
            rows.iter().zip(&rows[lag..]).for_each(|(a, b)| pairs[(a * 20 + b) as usize] += 1);
            let z = chi_square_z(&pairs, &[1.0 / 400.0; 400]);
            assert!(z.abs() < Z_MAX, "seed {seed}, lag {lag}: z = {z:.2}");
        }
    }
}

/// The share of rows an epoch never sees is (1 - 1/n)^n, about 36.8 %.
#[test]
fn an_epoch_with_replacement_leaves_the_expected_share_unseen() {
    for seed in SEEDS {
        let rows = 10_000;
        let order = Order::uniform(key(seed), rows, 1.0).unwrap();
        let mut drawn = vec![0; rows as usize];
        order.rows_into(0, &mut drawn);
        drawn.sort_unstable();
        drawn.dedup();
        let unseen = rows as f64 - drawn.len() as f64;
        // Mean n/e, variance n * (1/e - 2/e^2): 3,679 and 31 for 10,000 rows.
        assert!((unseen - 3678.8).abs() < Z_MAX * 31.2, "seed {seed}: {unseen} unseen");
    }
}

#[test]
fn each_bit_of_a_stream_is_a_fair_coin() {
    for purpose in [Purpose::Draw, Purpose::PositionSeed] {
        let key = StreamKey::derive(7, Mode::Multinomial, &TableDigest([9; 32]), purpose);
        let mut ones = [0_u32; 128];
        let draws = 20_000;
        for k in 0..draws {
            let bits = key.bits(k);
            ones.iter_mut().enumerate().for_each(|(bit, ones)| *ones += (bits >> bit & 1) as u32);
        }
        for (bit, ones) in ones.into_iter().enumerate() {
            let z = (f64::from(ones) - draws as f64 / 2.0) / (draws as f64 / 4.0).sqrt();
            assert!(z.abs() < Z_MAX, "bit {bit}: z = {z:.2}");
        }
    }
}
