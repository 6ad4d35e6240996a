//! Golden vectors: keys, digests and rows that must never change within one order version.
//!
//! `DATASETRT_GOLDEN_WRITE=1 cargo test -p dataset_rt_sampler --test golden` writes the file anew,
//! which is a change of the order of rows: allowed for draft version 0 with a decision record only.
//! `tests/golden/replay.py` computes the same file from the specification, without this crate.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails its test")]

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use dataset_rt_sampler::{
    CycleKeys, CycleWeights, Mode, Order, Purpose, SAMPLER_VERSION, StreamKey, TableDigest,
    TableDigester, WeightTable,
};

const HEADER: &str = "\
# Golden vectors of the order of rows, read by tests/golden.rs and tests/golden/replay.py.
# version NUMBER
# table NAME, then its rows in canonical order, cut into runs anyhow:
# run CACHE_ID FIRST_SAMPLE ROWS WEIGHT_BITS(hex)
# digest MODE HEX
# key MODE PURPOSE SEED PHILOX_KEY(2 words, hex) COUNTER_HIGH(2 words, hex)
# bits SEED K BITS(hex), of the multinomial draw stream
# seeds MODE SEED K0 SEED_AT(K0).. (hex), of the position seed stream
# rows SEED K0 ROW_AT(K0).. , of the multinomial order
# cycle MODE SEED CYCLE PHILOX_KEY(2 words, hex) COUNTER_HIGH(2 words, hex)
# pass MODE SEED K0 ROW_AT(K0).. , of an order without replacement
";

/// Rows up to which cycles by weight are written: each is worked out as a whole.
const WEIGHTED_ROWS_MAX: u64 = 1000;

const SEEDS: [u64; 4] = [0, 42, 42 + (1 << 32), u64::MAX];
/// The start, the carry into the second counter word, and the end of the stream.
const STARTS: [u64; 3] = [0, (1 << 32) - 16, (1 << 63) - 32];
const ROWS: usize = 32;
const WITHOUT_REPLACEMENT: [Mode; 2] = [Mode::Permutation, Mode::WeightedWithoutReplacement];

/// `(cache_id, first_sample, rows, weight)`
type Run = (u64, u64, u64, f64);

fn single(weights: impl IntoIterator<Item = f64>) -> Vec<Run> {
    weights.into_iter().enumerate().map(|(row, weight)| (7, row as u64, 1, weight)).collect()
}

fn tables() -> Vec<(&'static str, Vec<Run>)> {
    let tiny = f64::from_bits(1);
    vec![
        ("one_row", single([0.1])),
        ("untouched", vec![(3, 0, 1000, 1.0)]),
        ("untouched_odd_weight", vec![(3, 0, 1000, 0.3), (1 << 52, 0, 64_537, 0.3)]),
        ("shuffled_most", vec![(3, 0, 1 << 16, 1.0)]),
        ("untouched_beyond_memory", vec![(3, 0, (1 << 53) + 1, 1.5)]),
        ("duplicates", vec![(3, 5, 1, 1.0), (3, 5, 1, 1.0), (3, 5, 1, 4.0), (9, 0, 3, 1.0)]),
        ("linear", single((1..=10).map(f64::from))),
        ("heavy_tail", single((0..200).map(|row| 1.0 / (f64::from(row) + 0.01)))),
        ("halving", single((0..70).map(|row| 2.0_f64.powi(-row)))),
        ("thirds", single((0..40).map(|row| 1.0 / 3.0 * 2.0_f64.powi(-(row % 14))))),
        ("subnormal", single((1..=17).map(f64::from).map(|units| units * tiny))),
        ("extreme", single([tiny, f64::MAX, 1.0, 1.7e308, f64::MIN_POSITIVE, 8.9e307])),
        ("largest", single([f64::MAX, f64::MAX.next_down(), f64::MAX])),
    ]
}

fn digest(mode: Mode, runs: &[Run]) -> TableDigest {
    let mut digester = TableDigester::new(mode);
    for &(cache_id, first, rows, weight) in runs {
        digester.push_run(cache_id, first, rows, weight);
    }
    digester.finish()
}

fn weight_table(runs: &[Run]) -> Arc<WeightTable> {
    let rows = runs.iter().map(|run| run.2).sum();
    let weight = runs[0].3;
    let table = if runs.iter().all(|run| run.3 == weight) {
        WeightTable::equal(rows, weight)
    } else {
        WeightTable::build(runs.iter().flat_map(|run| (0..run.2).map(move |_| run.3)))
    };
    Arc::new(table.unwrap())
}

fn hex(words: impl IntoIterator<Item = u64>) -> String {
    words.into_iter().map(|word| format!(" {word:x}")).collect()
}

fn write_table(out: &mut String, name: &str, runs: &[Run]) -> Result<(), Box<dyn Error>> {
    writeln!(out, "\ntable {name}")?;
    for &(cache_id, first, rows, weight) in runs {
        writeln!(out, "run {cache_id} {first} {rows} {:x}", weight.to_bits())?;
    }
    for mode in [Mode::Sequential, Mode::Multinomial] {
        writeln!(out, "digest {mode} {}", digest(mode, runs))?;
    }
    let table = weight_table(runs);
    for seed in SEEDS {
        for mode in [Mode::Sequential, Mode::Multinomial] {
            let digest = digest(mode, runs);
            for (purpose, label) in [(Purpose::Draw, "draw"), (Purpose::PositionSeed, "seed")] {
                let key = StreamKey::derive(seed, mode, &digest, purpose);
                let words = key.philox_key().into_iter().chain(key.counter_high());
                writeln!(out, "key {mode} {label} {seed}{}", hex(words.map(u64::from)))?;
            }
            let key = StreamKey::derive(seed, mode, &digest, Purpose::PositionSeed);
            let k0 = STARTS[1] + 15;
            writeln!(
                out,
                "seeds {mode} {seed} {k0}{}",
                hex([key.seed_at(k0), key.seed_at(k0 + 1)])
            )?;
        }
        let set = digest(Mode::Multinomial, runs);
        let key = StreamKey::derive(seed, Mode::Multinomial, &set, Purpose::Draw);
        let order = Order::multinomial(key, Arc::clone(&table));
        for k0 in STARTS {
            writeln!(out, "bits {seed} {k0} {:x}", key.bits(k0))?;
            let mut rows = [0; ROWS];
            order.rows_into(k0, &mut rows);
            let rows: String = rows.iter().map(|row| format!(" {row}")).collect();
            writeln!(out, "rows {seed} {k0}{rows}")?;
        }
    }
    Ok(())
}

/// Cycles of the modes without replacement: the first, and those around the third start.
fn write_cycles(out: &mut String, runs: &[Run]) -> Result<(), Box<dyn Error>> {
    let rows: u64 = runs.iter().map(|run| run.2).sum();
    for (seed, mode) in SEEDS.into_iter().flat_map(|seed| WITHOUT_REPLACEMENT.map(|m| (seed, m))) {
        let keys = CycleKeys::new(seed, mode, digest(mode, runs));
        for cycle in [0, 1, (1 << 63) / rows] {
            let key = keys.key(cycle);
            let words = key.philox_key().into_iter().chain(key.counter_high());
            writeln!(out, "cycle {mode} {seed} {cycle}{}", hex(words.map(u64::from)))?;
        }
        let order = match mode {
            Mode::Permutation => Order::permutation(keys, rows),
            _ if rows > WEIGHTED_ROWS_MAX => continue,
            _ => {
                let weights = runs.iter().flat_map(|run| (0..run.2).map(|_| run.3));
                let weights = CycleWeights::new(weights.collect())?;
                Order::weighted_without_replacement(keys, weights)
            }
        };
        for k0 in [0, rows.saturating_sub(ROWS as u64 / 2), STARTS[2]] {
            let mut found = [0; ROWS];
            order.rows_into(k0, &mut found);
            let found: String = found.iter().map(|row| format!(" {row}")).collect();
            writeln!(out, "pass {mode} {seed} {k0}{found}")?;
        }
    }
    Ok(())
}

fn render() -> Result<String, Box<dyn Error>> {
    let mut out = format!("{HEADER}\nversion {SAMPLER_VERSION}\n");
    for (name, runs) in tables() {
        write_table(&mut out, name, &runs)?;
        write_cycles(&mut out, &runs)?;
    }
    Ok(out)
}

#[test]
fn order_equals_the_golden_vectors() -> Result<(), Box<dyn Error>> {
    let name = format!("tests/golden/order-v{SAMPLER_VERSION}.txt");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    let found = render()?;
    if std::env::var_os("DATASETRT_GOLDEN_WRITE").is_some() {
        std::fs::write(&path, &found)?;
    }
    let expected = std::fs::read_to_string(&path)?;
    let lines = expected.lines().zip(found.lines());
    for (number, (expected, found)) in lines.enumerate() {
        assert_eq!(found, expected, "{name}, line {}", number + 1);
    }
    assert_eq!(found.len(), expected.len(), "{name} has another number of lines");
    Ok(())
}
