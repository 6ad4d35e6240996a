//! Tables of the cycles of an order, made once, kept while somebody reads them and a little longer.
//! Knows no table of samples.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dataset_rt_sampler::{CycleError, CycleSource, CycleTable};
use dataset_rt_storage::{Error, Kind, Result};

use crate::turn::Turn;

/// Memory of tables that are kept though nobody reads them.
const KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// As many are kept whatever their size: a window may begin in one and end in the next.
const KEPT_MIN: u64 = 2;
/// Few enough to look through.
const KEPT_MAX: u64 = 64;
/// Tables of so few rows are worked out in milliseconds, by whoever needs them.
const QUICK_ROWS: u64 = 65_536;

/// Tables that stay in memory at least as long as this does.
pub type HeldCycles = Vec<Arc<CycleTable>>;

/// The tables of one order.
pub struct Cycles {
    source: Arc<CycleSource>,
    kept: Mutex<Kept>,
    turn: Turn,
}

#[derive(Default)]
struct Kept {
    /// The one used last at the back.
    latest: VecDeque<Arc<CycleTable>>,
    /// All that somebody holds.
    held: Vec<Weak<CycleTable>>,
}

impl Cycles {
    /// No table is made yet. `source` has at least one row.
    pub fn new(source: Arc<CycleSource>) -> Self {
        Self { source, kept: Mutex::default(), turn: Turn::default() }
    }

    /// The cycle of position `k`.
    pub fn cycle_of(&self, k: u64) -> u64 {
        k / self.source.rows()
    }

    /// Makes the tables of `cycles` that take long, by one thread while others wait for them, and
    /// holds them: of the first only when they are more than are ever kept. `attend` is called
    /// many times a second; its error ends the work or the wait.
    ///
    /// # Errors
    /// `Exhausted` without memory for a table, or what `attend` returned.
    pub fn prepare(
        &self,
        cycles: impl IntoIterator<Item = u64>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<HeldCycles> {
        if self.source.rows() <= QUICK_ROWS {
            return Ok(Vec::new());
        }
        let cycles = cycles.into_iter().take(self.kept_max());
        let table = |cycle| {
            let make = |attend: &mut dyn FnMut() -> Result<()>| self.make(cycle, attend);
            self.turn.done_once(|| self.find(cycle), make, attend)
        };
        cycles.map(table).collect()
    }

    /// The tables of `cycles`, when all are made.
    pub fn made(&self, cycles: RangeInclusive<u64>) -> Option<HeldCycles> {
        // More are never there.
        let few = cycles.end() - cycles.start() < KEPT_MAX;
        few.then(|| cycles.map(|cycle| self.find(cycle)).collect())?
    }

    /// Rows at positions `start, start + 1, ..`. Makes what [`Cycles::prepare`] did not.
    ///
    /// # Errors
    /// `Exhausted` without memory for a table.
    pub fn rows_into(&self, start: u64, out: &mut [u64]) -> Result<()> {
        let (mut position, mut out) = (start, out);
        while !out.is_empty() {
            let offset = (position % self.source.rows()) as usize;
            let table = self.table(self.cycle_of(position))?;
            let rows = &table.rows()[offset..];
            let (now, later) = out.split_at_mut(rows.len().min(out.len()));
            now.iter_mut().zip(rows).for_each(|(out, &row)| *out = u64::from(row));
            position += now.len() as u64;
            out = later;
        }
        Ok(())
    }

    /// Rows at any positions, each table looked up once.
    ///
    /// # Errors
    /// As [`Cycles::rows_into`].
    pub fn rows_at(&self, positions: &[u64], out: &mut [u64]) -> Result<()> {
        let cycle = |&i: &usize| self.cycle_of(positions[i]);
        let mut by_cycle: Vec<usize> = (0..positions.len().min(out.len())).collect();
        by_cycle.sort_by_key(cycle);
        for run in by_cycle.chunk_by(|a, b| cycle(a) == cycle(b)) {
            let table = self.table(cycle(&run[0]))?;
            for &i in run {
                out[i] = u64::from(table.rows()[(positions[i] % self.source.rows()) as usize]);
            }
        }
        Ok(())
    }

    fn table(&self, cycle: u64) -> Result<Arc<CycleTable>> {
        self.find(cycle).map_or_else(|| self.make(cycle, &mut || Ok(())), Ok)
    }

    fn find(&self, cycle: u64) -> Option<Arc<CycleTable>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.latest.iter().rposition(|table| table.cycle() == cycle) {
            let found = kept.latest.remove(at)?;
            kept.latest.push_back(Arc::clone(&found));
            return Some(found);
        }
        let found =
            kept.held.iter().filter_map(Weak::upgrade).find(|table| table.cycle() == cycle)?;
        self.keep(&mut kept, &found);
        Some(found)
    }

    fn make(&self, cycle: u64, attend: &mut dyn FnMut() -> Result<()>) -> Result<Arc<CycleTable>> {
        let mut attended = Ok(());
        let built = self.source.build(cycle, &mut || {
            attended = attend();
            attended.is_ok()
        });
        attended?;
        let table = Arc::new(built.map_err(|e| cycle_failure(&e))?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.held.retain(|table| table.strong_count() > 0);
        kept.held.push(Arc::downgrade(&table));
        self.keep(&mut kept, &table);
        Ok(table)
    }

    fn keep(&self, kept: &mut Kept, table: &Arc<CycleTable>) {
        kept.latest.push_back(Arc::clone(table));
        while kept.latest.len() > self.kept_max() {
            kept.latest.pop_front();
        }
    }

    fn kept_max(&self) -> usize {
        (KEPT_BYTES / self.source.table_bytes().max(1)).clamp(KEPT_MIN, KEPT_MAX) as usize
    }
}

fn cycle_failure(error: &CycleError) -> Error {
    let kind = match error {
        CycleError::Memory { .. } => Kind::Exhausted,
        CycleError::TooManyRows { .. } => Kind::Unsupported,
        _ => Kind::Internal,
    };
    Error::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use dataset_rt_sampler::{CycleKeys, CycleWeights, Mode, Order, TableDigest};

    use super::*;

    fn order(rows: u64) -> Order {
        let mode = Mode::WeightedWithoutReplacement;
        let weights = (0..rows).map(|row| row as f64 + 1.0).collect();
        let weights = CycleWeights::new(weights).unwrap();
        Order::weighted_without_replacement(CycleKeys::new(1, mode, TableDigest([0; 32])), weights)
    }

    fn cycles(rows: u64) -> Cycles {
        Cycles::new(Arc::clone(order(rows).tables().unwrap()))
    }

    fn number_kept(cycles: &Cycles) -> usize {
        cycles.kept.lock().unwrap().latest.len()
    }

    #[test]
    fn rows_are_those_of_the_order() {
        for rows in [1, 7, 300] {
            let (order, cycles) = (order(rows), cycles(rows));
            let mut expected = [0; 1000];
            order.rows_into(5, &mut expected);
            let mut found = [0; 1000];
            cycles.rows_into(5, &mut found).unwrap();
            assert_eq!(found, expected);
            let positions: Vec<u64> = (5..1005).map(|k| 1009 - k).collect();
            cycles.rows_at(&positions, &mut found).unwrap();
            found.reverse();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let few = cycles(3);
        few.rows_into(0, &mut [0; 3000]).unwrap();
        assert_eq!(number_kept(&few), KEPT_MAX as usize);
        assert_eq!(few.kept.lock().unwrap().held.len(), KEPT_MAX as usize + 1);
        let source = CycleWeights::equal(40_000_000, 1.0).unwrap();
        let keys = CycleKeys::new(1, Mode::Permutation, TableDigest([0; 32]));
        let order = Order::weighted_without_replacement(keys, source);
        let large = Cycles::new(Arc::clone(order.tables().unwrap()));
        assert_eq!(large.kept_max(), 2);
        let source = CycleWeights::equal(1_000_000, 1.0).unwrap();
        let order = Order::weighted_without_replacement(keys, source);
        let some = Cycles::new(Arc::clone(order.tables().unwrap()));
        assert_eq!(some.kept_max(), 16);
    }

    #[test]
    fn what_is_read_is_made_once_however_many_others_come() {
        let cycles = cycles(QUICK_ROWS + 1);
        let mut looks = 0;
        let mut attend = || {
            looks += 1;
            Ok(())
        };
        let held = cycles.prepare([7], &mut attend).unwrap();
        cycles.prepare(100..100 + KEPT_MAX, &mut attend).unwrap();
        assert_eq!(number_kept(&cycles), KEPT_MAX as usize);
        assert!(looks > 0);
        let again = cycles.prepare([7], &mut || Err(Error::internal("made again"))).unwrap();
        assert!(Arc::ptr_eq(&held[0], &again[0]));
        assert!(cycles.made(7..=7).is_some() && cycles.made(7..=8).is_none());
        // Nobody holds the first of the others, and later ones took its place.
        drop((held, again));
        assert!(cycles.made(100..=100).is_none());
    }

    #[test]
    fn an_interrupt_leaves_nothing_half_made() {
        let cycles = cycles(QUICK_ROWS + 1);
        let interrupted = cycles.prepare([3], &mut || Err(Error::conflict("interrupted")));
        assert_eq!(interrupted.unwrap_err(), Error::conflict("interrupted"));
        assert!(cycles.made(3..=3).is_none());
        assert_eq!(cycles.prepare([3], &mut || Ok(())).unwrap().len(), 1);
    }
}
