//! What building a table and drawing from it costs, on one thread: a line of JSON for each number
//! of rows, in seconds and in draws a second of `Order::rows_into` in blocks of 256. Without
//! replacement: permuted rows a second, and seconds to work out a cycle by weight.
//!
//! `cargo run --release -p dataset_rt_sampler --example draws -- [ROWS...]`

#![expect(clippy::disallowed_methods, reason = "measuring speed needs a clock")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dataset_rt_sampler::{
    CycleKeys, CycleWeights, Mode, Order, Purpose, StreamKey, TableDigest, WeightTable,
};

const DRAWS: u64 = 10_000_000;
const BLOCK: usize = 256;

fn key(purpose: Purpose) -> StreamKey {
    StreamKey::derive(42, Mode::Multinomial, &TableDigest([0; 32]), purpose)
}

/// Best of three runs, in rows a second.
fn speed(order: &Order) -> f64 {
    let run = || {
        let mut rows = [0; BLOCK];
        let start = Instant::now();
        for k in (0..DRAWS).step_by(BLOCK) {
            order.rows_into(k, &mut rows);
            black_box(&rows);
        }
        DRAWS as f64 / start.elapsed().as_secs_f64()
    };
    (0..3).map(|_| run()).fold(0.0, f64::max)
}

/// The floor of a table: the sums of the weights, one after another.
fn running_sum(weights: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let next = |weight: &f64| {
        sum += weight;
        sum
    };
    weights.iter().map(next).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let sizes: Vec<u64> =
        std::env::args().skip(1).map(|size| size.parse()).collect::<Result<_, _>>()?;
    for rows in sizes {
        let source = key(Purpose::PositionSeed);
        let uniform = |k| (source.seed_at(k) >> 11) as f64 / (1_u64 << 53) as f64;
        let weights: Vec<f64> = (0..rows).map(|k| uniform(k) + 0.01).collect();
        let start = Instant::now();
        black_box(running_sum(&weights));
        let cumsum = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let table = WeightTable::build(weights.iter().copied())?;
        let built = start.elapsed().as_secs_f64();
        let bytes = table.size_bytes() as f64 / rows as f64;
        let weighted = speed(&Order::multinomial(key(Purpose::Draw), Arc::new(table)));
        let equal = speed(&Order::uniform(key(Purpose::Draw), rows, 1.0)?);
        let odd = speed(&Order::uniform(key(Purpose::Draw), rows, 0.3)?);
        let keys = CycleKeys::new(42, Mode::Permutation, TableDigest([0; 32]));
        let order = Order::permutation(keys, rows);
        let permuted = order.tables().is_none().then(|| speed(&order).to_string());
        // Few rows are shuffled by a table, which costs as much as reading it.
        let permuted = permuted.unwrap_or_else(|| "null".to_owned());
        let order = Order::weighted_without_replacement(keys, CycleWeights::new(weights)?);
        let mut cycles = Vec::new();
        for cycle in 0..3 {
            let start = Instant::now();
            if let Some(source) = order.tables() {
                black_box(source.build(cycle, &mut || true)?);
            }
            cycles.push(start.elapsed().as_secs_f64());
        }
        let cycle = cycles.into_iter().fold(f64::INFINITY, f64::min);
        println!(
            "{{\"rows\": {rows}, \"cumsum\": {cumsum}, \"table\": {built}, \"bytes a row\": \
             {bytes}, \"weighted\": {weighted}, \"equal\": {equal}, \"equal, odd\": {odd}, \"permuted\": \
             {permuted}, \"weighted cycle\": {cycle}}}"
        );
    }
    Ok(())
}
