//! Prints how many million rows per second `Order::rows_into` yields in blocks of 256, one thread.
//!
//! `cargo run --release -p dataset_rt_sampler --example draws`

#![expect(clippy::disallowed_methods, reason = "measuring speed needs a clock")]

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dataset_rt_sampler::{Mode, Order, Purpose, StreamKey, TableDigest, WeightTable};

const DRAWS: u64 = 20_000_000;
const BLOCK: usize = 256;

fn key(purpose: Purpose) -> StreamKey {
    StreamKey::derive(42, Mode::Multinomial, &TableDigest([0; 32]), purpose)
}

/// Best of three runs, in million rows per second.
fn speed(order: &Order) -> f64 {
    let run = || {
        let mut rows = [0; BLOCK];
        let start = Instant::now();
        for k in (0..DRAWS).step_by(BLOCK) {
            order.rows_into(k, &mut rows);
            black_box(&rows);
        }
        DRAWS as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    (0..3).map(|_| run()).fold(0.0, f64::max)
}

fn main() -> Result<(), Box<dyn Error>> {
    for rows in [1_000_000_u64, 10_000_000] {
        // Heavy-tailed weights 1 / (u + 1e-4) with u uniform in [0, 1).
        let source = key(Purpose::PositionSeed);
        let weights: Vec<f64> = (0..rows)
            .map(|k| 1.0 / ((source.seed_at(k) >> 11) as f64 / (1_u64 << 53) as f64 + 1e-4))
            .collect();
        let start = Instant::now();
        let table = WeightTable::build(weights.iter().copied())?;
        let cold = start.elapsed();
        let start = Instant::now();
        let table = WeightTable::build_reusing(table, weights.iter().copied())?;
        println!(
            "{rows:>9} rows: build {cold:.1?} cold, {:.1?} warm, {:.2} bytes per row",
            start.elapsed(),
            table.size_bytes() as f64 / rows as f64
        );
        let weighted = Order::multinomial(key(Purpose::Draw), Arc::new(table));
        let uniform = Order::uniform(key(Purpose::Draw), rows, 1.0)?;
        let uniform_odd = Order::uniform(key(Purpose::Draw), rows, 0.3)?;
        println!("  weighted      {:7.1} M draws/s", speed(&weighted));
        println!("  equal at 1.0  {:7.1} M draws/s", speed(&uniform));
        println!("  equal at 0.3  {:7.1} M draws/s", speed(&uniform_odd));
        println!("  sequential    {:7.1} M rows/s", speed(&Order::sequential(rows)));
    }
    Ok(())
}
