//! Streams of related seeds, tables and epochs: none may be a shifted or permuted copy of another.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails its test")]

use std::collections::HashSet;

use dataset_rt_sampler::{
    Cursor, Mode, Order, Purpose, StreamKey, TableDigest, TableDigester, Window,
};

const ROWS: u64 = 4096;
const LAGS: i64 = 200;

/// At one lag two unrelated epochs agree in about 1 of 4,096 positions; more than 12 happen once in
/// 10^10 lags, and fewer than 10^5 are looked at here.
const AGREEMENTS_MAX: usize = 12;

fn table() -> TableDigest {
    let mut digester = TableDigester::new(Mode::Multinomial);
    digester.push_run(1, 0, ROWS, 1.0);
    digester.finish()
}

fn key(seed: u64) -> StreamKey {
    StreamKey::derive(seed, Mode::Multinomial, &table(), Purpose::Draw)
}

fn window(seed: u64, window: Window) -> Vec<u64> {
    let mut rows = vec![0; window.len as usize];
    Order::uniform(key(seed), ROWS, 1.0).unwrap().rows_into(window.start, &mut rows);
    rows
}

fn epoch(seed: u64, epoch: u64) -> Vec<u64> {
    let mut cursor = Cursor::new(ROWS);
    cursor.set_epoch(epoch).unwrap();
    window(seed, cursor.claim().unwrap())
}

fn related_seeds() -> Vec<(u64, u64)> {
    let flips = (0..64).map(|bit| (42, 42 ^ 1 << bit));
    let sums = [1, 2, 1 << 32, (1 << 32) + 1, 7 << 32].map(|step| (42, 42 + step));
    flips.chain(sums).chain([(0, 1), (0, u64::MAX), (u64::MAX, u64::MAX - 1)]).collect()
}

fn assert_unrelated(a: &[u64], b: &[u64], label: &str) {
    for lag in -LAGS..=LAGS {
        let (skip_a, skip_b) = (lag.max(0) as usize, (-lag).max(0) as usize);
        let pairs = a[skip_a..].iter().zip(&b[skip_b..]);
        let agreements = pairs.filter(|(a, b)| a == b).count();
        assert!(agreements <= AGREEMENTS_MAX, "{label}, lag {lag}: {agreements} agreements");
    }
    let sorted = |rows: &[u64]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows
    };
    assert_ne!(sorted(a), sorted(b), "{label}: the same rows in another order");
}

#[test]
fn related_seeds_give_unrelated_epochs() {
    for (a, b) in related_seeds() {
        assert_unrelated(&epoch(a, 0), &epoch(b, 0), &format!("seeds {a} and {b}"));
    }
}

/// Any xor of positions would map one stream on the other if seed and position were combined by
/// xor; sums likewise.
#[test]
fn no_rewiring_of_positions_maps_one_seed_on_another() {
    for (a, b) in [(42, 42 + (1 << 32)), (42, 43), (0, 1 << 63)] {
        let (a, b) = (epoch(a, 0), epoch(b, 0));
        for mask in 0..ROWS as usize {
            let agreements = (0..a.len()).filter(|&k| a[k] == b[k ^ mask]).count();
            assert!(agreements <= AGREEMENTS_MAX, "mask {mask}: {agreements} agreements");
        }
    }
}

/// The strongest form: 128-bit blocks never meet, wherever in the streams they are.
#[test]
fn streams_of_many_seeds_share_no_block() {
    let mut seeds: Vec<u64> = related_seeds().into_iter().flat_map(|(a, b)| [a, b]).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let starts = [0, 1 << 31, 1 << 32, 1 << 62];
    let mut seen = HashSet::new();
    for &seed in &seeds {
        let key = key(seed);
        for k in starts.iter().flat_map(|&start| start..start + 256) {
            assert!(seen.insert(key.bits(k)), "seed {seed}, position {k}: block seen before");
        }
    }
    assert_eq!(seen.len(), seeds.len() * starts.len() * 256);
}

#[test]
fn next_epoch_of_a_seed_is_not_the_same_epoch_of_the_next_seed() {
    for seed in [0, 1, 5, 42, 1 << 32] {
        for e in [0, 1, 7] {
            let label = format!("seed {seed}, epoch {e}");
            assert_unrelated(&epoch(seed, e + 1), &epoch(seed + 1, e), &label);
            assert_unrelated(&epoch(seed, e), &epoch(seed, e + 1), &label);
            assert_unrelated(&epoch(seed, e), &epoch(seed + e + 1, 0), &label);
        }
    }
}

#[test]
fn tables_modes_and_purposes_have_their_own_streams() {
    let digest = |rows, weight| {
        let mut digester = TableDigester::new(Mode::Multinomial);
        digester.push_run(1, 0, rows, weight);
        digester.finish()
    };
    let base = StreamKey::derive(42, Mode::Multinomial, &table(), Purpose::Draw);
    let others = [
        StreamKey::derive(42, Mode::Multinomial, &digest(ROWS + 1, 1.0), Purpose::Draw),
        StreamKey::derive(42, Mode::Multinomial, &digest(ROWS, 2.0), Purpose::Draw),
        StreamKey::derive(42, Mode::Multinomial, &table(), Purpose::PositionSeed),
        StreamKey::derive(42, Mode::Sequential, &table(), Purpose::Draw),
    ];
    let rows = |key| {
        let mut rows = vec![0; ROWS as usize];
        Order::uniform(key, ROWS, 1.0).unwrap().rows_into(0, &mut rows);
        rows
    };
    for other in others {
        assert_unrelated(&rows(base), &rows(other), &format!("{other:?}"));
    }
}
