//! From an active table to an order: canonical rows, the table's digest, the sampler.
//! Knows no payload and no stream position.
//!
//! A shuffled table is a set: rows go to the sampler by identity and weight, so that neither row
//! order nor the order of the caches changes which samples are drawn (`docs/sampling.md`).

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use dataset_rt_sampler::{
    CycleKeys, CycleWeights, Mode, Order, Purpose, Share, StreamKey, TableDigest, TableDigester,
    WeightError, WeightParts, WeightTable, WeightTableBuilder,
};
use dataset_rt_storage::{Error, Kind, Result};
use dataset_rt_validator::table::CheckedTable;

use crate::active::ActiveTable;
use crate::canonical::IdentityRanks;
use crate::cycles::{Cycles, HeldCycles};

/// Rows between two looks for signals: about a millisecond of work.
pub const PIECE_ROWS: usize = 65_536;

/// An order over the rows of one active table.
pub struct Plan {
    order: Order,
    /// Of an order that needs tables.
    cycles: Option<Cycles>,
    rows: RowMap,
    digest: TableDigest,
    position_key: StreamKey,
}

/// Canonical row -> table row.
pub enum RowMap {
    /// They are the same.
    Same,
    /// Caches stand in another order than their ids: canonical start, table start, per run.
    Runs(Vec<(u64, u64)>),
    /// Any order; tables that are not whole hold fewer than 2^32 rows.
    Each(ScalarBuffer<u32>),
}

/// What an order over a user's table is made of, to be made again without work per row.
pub struct PlanParts<'a> {
    pub digest: TableDigest,
    /// Canonical row -> table row, where they differ.
    pub row_map: Option<&'a [u32]>,
    /// What drawn rows are drawn by.
    pub weights: Option<WeightParts<'a>>,
}

impl Plan {
    /// Builds the order of `table`; O(rows) only for a table that a user replaced.
    ///
    /// # Errors
    /// `Internal` when a checked table holds a weight that the check should have refused, or what
    /// `attend` returned, which is called many times a second.
    pub fn new(
        table: &ActiveTable,
        mode: Mode,
        seed: u64,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        match table.as_checked() {
            None => plan_whole(table, mode, seed),
            Some(checked) => plan_checked(table, checked, mode, seed, attend),
        }
    }

    /// Works out what the order needs for some stream positions and takes long; other threads
    /// wait. It stays in memory as long as what comes back is kept.
    ///
    /// # Errors
    /// `Exhausted` without memory for it, or what `attend` returned, which is called many times a
    /// second.
    pub fn prepare(
        &self,
        positions: Range<u64>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<HeldCycles> {
        match &self.cycles {
            Some(cycles) if !positions.is_empty() => {
                let last = cycles.cycle_of(positions.end - 1);
                cycles.prepare(cycles.cycle_of(positions.start)..=last, attend)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// [`Plan::prepare`] for any positions.
    ///
    /// # Errors
    /// As [`Plan::prepare`].
    pub fn prepare_each(
        &self,
        positions: &[u64],
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<HeldCycles> {
        let Some(cycles) = &self.cycles else { return Ok(Vec::new()) };
        let mut needed: Vec<u64> = positions.iter().map(|&k| cycles.cycle_of(k)).collect();
        needed.sort_unstable();
        needed.dedup();
        cycles.prepare(needed, attend)
    }

    /// What the order needs for some stream positions, when it is worked out.
    pub fn prepared(&self, positions: Range<u64>) -> Option<HeldCycles> {
        match &self.cycles {
            Some(cycles) if !positions.is_empty() => {
                let last = cycles.cycle_of(positions.end - 1);
                cycles.made(cycles.cycle_of(positions.start)..=last)
            }
            _ => Some(Vec::new()),
        }
    }

    /// Table rows at stream positions `start..start + out.len()`, prepared or not.
    ///
    /// # Errors
    /// `Exhausted` without memory for what was not prepared.
    pub fn rows_into(&self, start: u64, out: &mut [u64]) -> Result<()> {
        match &self.cycles {
            None => self.order.rows_into(start, out),
            Some(cycles) => cycles.rows_into(start, out)?,
        }
        self.to_table_rows(out);
        Ok(())
    }

    /// Table rows at any stream positions.
    ///
    /// # Errors
    /// As [`Plan::rows_into`].
    pub fn rows_at(&self, positions: &[u64], out: &mut [u64]) -> Result<()> {
        match &self.cycles {
            None => self.order.rows_at(positions, out),
            Some(cycles) => cycles.rows_at(positions, out)?,
        }
        self.to_table_rows(out);
        Ok(())
    }

    fn to_table_rows(&self, out: &mut [u64]) {
        match &self.rows {
            RowMap::Same => {}
            RowMap::Runs(runs) => {
                for row in out {
                    let run = runs.partition_point(|&(canonical, _)| canonical <= *row) - 1;
                    *row = runs[run].1 + (*row - runs[run].0);
                }
            }
            RowMap::Each(rows) => {
                let rows: &[u32] = rows;
                for row in out {
                    *row = u64::from(rows[*row as usize]);
                }
            }
        }
    }

    /// Table rows of numbers `first, first + 1, ..` of a share.
    ///
    /// # Errors
    /// As [`Plan::rows_into`].
    pub fn share_rows_into(&self, share: &Share, first: u64, out: &mut [u64]) -> Result<()> {
        match share.stretch_begin() {
            Some(begin) => self.rows_into(begin + first, out),
            None => {
                let mut positions = vec![0; out.len()];
                share.positions_into(first, &mut positions);
                self.rows_at(&positions, out)
            }
        }
    }

    /// Digest of everything of the table that decides the order.
    pub fn digest(&self) -> &TableDigest {
        &self.digest
    }

    /// The parts of the order of a user's table; `None` for orders that are made anew instead.
    pub(crate) fn parts(&self, mode: Mode) -> Option<PlanParts<'_>> {
        let row_map = match &self.rows {
            RowMap::Same => None,
            RowMap::Each(rows) => Some(&**rows),
            RowMap::Runs(_) => return None,
        };
        let weights = match mode {
            Mode::Sequential | Mode::Permutation => None,
            Mode::Multinomial => Some(self.order.drawn_weights()?.parts()),
            _ => return None,
        };
        Some(PlanParts { digest: self.digest, row_map, weights })
    }

    /// The order of `table` with the parts of another one over the same table.
    ///
    /// # Errors
    /// `Corrupt` when they are not parts of such an order.
    pub(crate) fn restored(
        mode: Mode,
        seed: u64,
        digest: TableDigest,
        rows: RowMap,
        weights: Option<WeightTable>,
        table: &ActiveTable,
    ) -> Result<Self> {
        let count = table.rows();
        let maps_all = !matches!(&rows, RowMap::Each(rows) if rows.len() as u64 != count);
        let order = |key, keys| match (mode, weights) {
            (Mode::Sequential, None) => Some(Order::sequential(count)),
            (Mode::Permutation, None) => Some(Order::permutation(keys, count)),
            (Mode::Multinomial, Some(weights)) if weights.len() == count => {
                Some(Order::multinomial(key, Arc::new(weights)))
            }
            _ => None,
        };
        Self::assemble(mode, seed, digest, rows, |key, keys| {
            order(key, keys).filter(|_| maps_all).ok_or_else(|| {
                Error::corrupt("the order of a table in shared memory is not that of the table")
            })
        })
    }

    /// A seed for augmentations at stream position `k`.
    pub fn position_seed(&self, k: u64) -> u64 {
        self.position_key.seed_at(k)
    }

    fn assemble(
        mode: Mode,
        seed: u64,
        digest: TableDigest,
        rows: RowMap,
        order: impl FnOnce(StreamKey, CycleKeys) -> Result<Order>,
    ) -> Result<Self> {
        let key = StreamKey::derive(seed, mode, &digest, Purpose::Draw);
        let position_key = StreamKey::derive(seed, mode, &digest, Purpose::PositionSeed);
        let order = order(key, CycleKeys::new(seed, mode, digest))?;
        let cycles = order.tables().filter(|source| source.rows() > 0);
        let cycles = cycles.map(|source| Cycles::new(Arc::clone(source)));
        Ok(Self { order, cycles, rows, digest, position_key })
    }
}

fn weight_failure(error: &WeightError) -> Error {
    Error::internal(format!("a checked table holds a bad weight: {error}"))
}

fn unknown_mode(mode: Mode) -> Error {
    Error::internal(format!("sampling mode {mode} has no order"))
}

fn plan_whole(table: &ActiveTable, mode: Mode, seed: u64) -> Result<Plan> {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    let mut start = 0;
    for cache in table.caches().iter() {
        runs.push((cache.cache_id(), start, cache.rows()));
        start += cache.rows();
    }
    if mode != Mode::Sequential {
        runs.sort_unstable();
    }
    let mut digester = TableDigester::new(mode);
    let mut canonical = 0;
    let mut map = Vec::with_capacity(runs.len());
    for &(cache_id, table_start, rows) in &runs {
        digester.push_run(cache_id, 0, rows, 1.0);
        map.push((canonical, table_start));
        canonical += rows;
    }
    let is_same = map.iter().all(|(canonical, table_start)| canonical == table_start);
    let rows = if is_same { RowMap::Same } else { RowMap::Runs(map) };
    let count = table.rows();
    Plan::assemble(mode, seed, digester.finish(), rows, |key, keys| match mode {
        Mode::Sequential => Ok(Order::sequential(count)),
        Mode::Multinomial => Order::uniform(key, count, 1.0).map_err(|e| weight_failure(&e)),
        Mode::Permutation => Ok(Order::permutation(keys, count)),
        Mode::WeightedWithoutReplacement => CycleWeights::equal(count, 1.0)
            .map(|weights| Order::weighted_without_replacement(keys, weights))
            .map_err(|e| weight_failure(&e)),
        other => Err(unknown_mode(other)),
    })
}

fn plan_checked(
    table: &ActiveTable,
    checked: &CheckedTable,
    mode: Mode,
    seed: u64,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Plan> {
    let ranks = IdentityRanks::new(table, checked);
    let rows = if mode == Mode::Sequential || ranks.are_canonical(attend)? {
        RowMap::Same
    } else {
        RowMap::Each(ranks.canonical_rows(attend)?.into())
    };
    let mut digester = TableDigester::new(mode);
    let mut weights = Weights::for_mode(mode, checked.rows())?;
    let mut outcome = Ok(());
    let mut take = |cache: u32, sample_id: u64, weight: f64| {
        digester.push(ranks.cache_id(cache), sample_id, weight);
        if outcome.is_ok() {
            outcome = weights.push(weight);
        }
    };
    match &rows {
        RowMap::Each(order) => {
            for piece in order.chunks(PIECE_ROWS) {
                attend()?;
                for &row in piece {
                    let (cache, sample_id, weight) = ranks.row(row as usize);
                    take(cache, sample_id, weight);
                }
            }
        }
        _ => {
            ranks.for_each(attend, |_, cache, sample_id, weight| take(cache, sample_id, weight))?
        }
    }
    outcome.map_err(|e| weight_failure(&e))?;
    let count = table.rows();
    Plan::assemble(mode, seed, digester.finish(), rows, |key, keys| match (mode, weights) {
        (Mode::Sequential, _) => Ok(Order::sequential(count)),
        (Mode::Permutation, _) => Ok(Order::permutation(keys, count)),
        (_, Weights::Drawn(weights)) => finish_weights(weights, attend)
            .map(|weights| Order::multinomial(key, Arc::new(weights))),
        (_, Weights::Kept(weights)) => CycleWeights::new(weights)
            .map(|weights| Order::weighted_without_replacement(keys, weights))
            .map_err(|e| weight_failure(&e)),
        (other, Weights::Unused) => Err(unknown_mode(other)),
    })
}

/// What a mode needs of the weights.
enum Weights {
    Unused,
    Drawn(WeightTableBuilder),
    Kept(Vec<f64>),
}

impl Weights {
    fn for_mode(mode: Mode, rows: usize) -> Result<Self> {
        Ok(match mode {
            Mode::Multinomial => Self::Drawn(WeightTableBuilder::new(rows)),
            Mode::WeightedWithoutReplacement => {
                let mut weights = Vec::new();
                let no_memory = |_| {
                    let text = format!("no memory for the weights of {rows} rows; free some");
                    Error::new(Kind::Exhausted, text)
                };
                weights.try_reserve_exact(rows).map_err(no_memory)?;
                Self::Kept(weights)
            }
            _ => Self::Unused,
        })
    }

    fn push(&mut self, weight: f64) -> std::result::Result<(), WeightError> {
        match self {
            Self::Unused => {}
            Self::Drawn(builder) => builder.push(weight)?,
            Self::Kept(weights) => weights.push(weight),
        }
        Ok(())
    }
}

/// The inverse CDF of the weights; its builder knows no signals, and stops when `attend` fails.
fn finish_weights(
    weights: WeightTableBuilder,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<WeightTable> {
    let mut outcome = Ok(());
    let built = weights.finish(&mut || {
        outcome = attend();
        outcome.is_ok()
    });
    outcome?;
    let built = built.map_err(|e| weight_failure(&e))?;
    built.ok_or_else(|| Error::internal("a table of weights ended early"))
}
