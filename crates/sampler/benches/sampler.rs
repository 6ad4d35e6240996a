//! What drawing rows and preparing a table cost: `make bench-micro`.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::sync::Arc;

use dataset_rt_sampler::{
    Mode, Order, Purpose, StreamKey, TableDigest, TableDigester, WeightTable,
};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

/// Few rows where nothing is measured but that it runs.
const ROWS: &[u64] =
    if cfg!(debug_assertions) { &[1_000] } else { &[10_000, 1_000_000, 10_000_000] };

/// Positions drawn at once, as blocks of a stream are.
const BLOCK: usize = 256;

fn main() {
    divan::main();
}

fn key() -> StreamKey {
    StreamKey::derive(42, Mode::Multinomial, &TableDigest([0; 32]), Purpose::Draw)
}

fn weights(rows: u64) -> Vec<f64> {
    let seeds = key();
    (0..rows).map(|k| (seeds.seed_at(k) >> 11) as f64 / (1_u64 << 53) as f64 + 0.01).collect()
}

/// A block at a time, each at a place of its own.
fn draw(bencher: Bencher<'_, '_>, order: &Order) {
    let mut rows = [0; BLOCK];
    let mut start = 0;
    bencher.counter(ItemsCount::new(BLOCK)).bench_local(|| {
        order.rows_into(start, black_box(&mut rows));
        start += BLOCK as u64;
    });
}

#[divan::bench(args = ROWS)]
fn draws_weighted(bencher: Bencher<'_, '_>, rows: u64) {
    let table = WeightTable::build(weights(rows)).unwrap();
    draw(bencher, &Order::multinomial(key(), Arc::new(table)));
}

#[divan::bench(args = ROWS)]
fn draws_equal(bencher: Bencher<'_, '_>, rows: u64) {
    draw(bencher, &Order::uniform(key(), rows, 1.0).unwrap());
}

#[divan::bench(args = ROWS, sample_count = 10)]
fn table_of_weights(bencher: Bencher<'_, '_>, rows: u64) {
    let weights = weights(rows);
    let build = || WeightTable::build(weights.iter().copied()).unwrap();
    bencher.counter(ItemsCount::new(rows)).bench_local(build);
}

#[divan::bench(args = ROWS, sample_count = 10)]
fn table_digest(bencher: Bencher<'_, '_>, rows: u64) {
    let weights = weights(rows);
    bencher.counter(ItemsCount::new(rows)).bench_local(|| {
        let mut digester = TableDigester::new(Mode::Multinomial);
        let rows = (0..).zip(&weights);
        rows.for_each(|(sample_id, &weight)| digester.push(7, sample_id, weight));
        digester.finish()
    });
}
