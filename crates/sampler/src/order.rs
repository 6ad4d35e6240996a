//! From a stream position to a row; knows nothing of epochs, ranks, workers or what a row holds.

use std::sync::Arc;

use crate::cycle::{CycleSource, CycleWeights, Feistel, LANES, SHUFFLED_ROWS_MAX};
use crate::key::{CycleKeys, StreamKey};
use crate::weights::{WeightError, WeightTable};

/// The answer of an order that has none: a row that no table has.
pub const NO_ROW: u64 = u64::MAX;

/// Positions whose random bits are made together.
const BLOCK: usize = LANES;

/// A pure function from stream position to row. Cheap to clone and to share between threads.
///
/// Rows count in table order for [`Order::sequential`] and in canonical order (see
/// [`crate::RowKey`]) for the drawn orders: the weights must have been given in that order.
#[derive(Clone, Debug)]
pub struct Order {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Sequential { rows: u64 },
    Multinomial { key: StreamKey, table: Arc<WeightTable> },
    Network { keys: CycleKeys, network: Feistel },
    Tables(Arc<CycleSource>),
}

impl Order {
    /// Row `k mod rows` at position `k` (rule S13).
    #[must_use]
    pub const fn sequential(rows: u64) -> Self {
        Self { kind: Kind::Sequential { rows } }
    }

    /// Independent weighted draws with replacement (rule S11).
    #[must_use]
    pub const fn multinomial(key: StreamKey, table: Arc<WeightTable>) -> Self {
        Self { kind: Kind::Multinomial { key, table } }
    }

    /// [`Order::multinomial`] over `rows` rows of one `weight`, in constant time and memory.
    ///
    /// # Errors
    /// A weight that is not finite and positive, or no rows.
    pub fn uniform(key: StreamKey, rows: u64, weight: f64) -> Result<Self, WeightError> {
        Ok(Self::multinomial(key, Arc::new(WeightTable::equal(rows, weight)?)))
    }

    /// The weights that a multinomial order draws by; `None` for every other order.
    #[must_use]
    pub fn drawn_weights(&self) -> Option<&WeightTable> {
        match &self.kind {
            Kind::Multinomial { table, .. } => Some(table),
            _ => None,
        }
    }

    /// Each of `rows` rows once a cycle, all orders alike (rules S21 and S22).
    #[must_use]
    pub fn permutation(keys: CycleKeys, rows: u64) -> Self {
        if rows > SHUFFLED_ROWS_MAX {
            return Self { kind: Kind::Network { keys, network: Feistel::new(rows) } };
        }
        Self::of_tables(CycleSource::shuffled(keys, rows as u32))
    }

    /// Each row once a cycle, as successive draws in proportion to the weights of the rows left
    /// would pick them (rules S23 to S25).
    #[must_use]
    pub fn weighted_without_replacement(keys: CycleKeys, weights: CycleWeights) -> Self {
        Self::of_tables(CycleSource::weighted(keys, weights))
    }

    fn of_tables(source: CycleSource) -> Self {
        Self { kind: Kind::Tables(Arc::new(source)) }
    }

    /// Number of rows of the table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        match &self.kind {
            Kind::Sequential { rows } => *rows,
            Kind::Multinomial { table, .. } => table.len(),
            Kind::Network { network, .. } => network.rows(),
            Kind::Tables(source) => source.rows(),
        }
    }

    /// What makes the tables of an order that needs one for each cycle of [`Order::rows`]
    /// positions; `None` where any position costs the same.
    ///
    /// Whoever reads such an order more than once should keep the tables it needs: the functions
    /// below make them anew at every call.
    #[must_use]
    pub fn tables(&self) -> Option<&Arc<CycleSource>> {
        match &self.kind {
            Kind::Tables(source) => Some(source),
            _ => None,
        }
    }

    /// The row at position `k`; [`NO_ROW`] when there are no rows, or no memory for a table.
    #[must_use]
    pub fn row_at(&self, k: u64) -> u64 {
        let mut row = [NO_ROW];
        self.rows_at(&[k], &mut row);
        row[0]
    }

    /// The rows at positions `k0, k0 + 1, ..`: the same as [`Order::row_at`], several times faster.
    ///
    /// Best in blocks of 64 and more. Positions wrap around behind the last 64-bit one, far beyond
    /// [`crate::POSITION_LIMIT`].
    pub fn rows_into(&self, k0: u64, out: &mut [u64]) {
        self.fill(|i| k0.wrapping_add(i as u64), out);
    }

    /// The rows at any positions, as fast as [`Order::rows_into`] where neighbours share a cycle.
    ///
    /// The shorter slice decides how many rows are written.
    pub fn rows_at(&self, positions: &[u64], out: &mut [u64]) {
        let len = positions.len().min(out.len());
        self.fill(|i| positions[i], &mut out[..len]);
    }

    /// `position` gives that of each index of `out`.
    #[inline]
    fn fill(&self, position: impl Fn(usize) -> u64, out: &mut [u64]) {
        match &self.kind {
            Kind::Sequential { rows } => {
                for (i, row) in out.iter_mut().enumerate() {
                    *row = position(i).checked_rem(*rows).unwrap_or(NO_ROW);
                }
            }
            Kind::Multinomial { key, table } => {
                let mut bits = [0_u128; BLOCK];
                for (block, start) in out.chunks_mut(BLOCK).zip((0..).step_by(BLOCK)) {
                    for (i, bits) in (start..start + block.len()).zip(bits.iter_mut()) {
                        *bits = key.bits(position(i));
                    }
                    table.draw_into(&bits, block);
                }
            }
            Kind::Network { keys, network } => {
                let mut cycles = [0; BLOCK];
                for (block, start) in out.chunks_mut(BLOCK).zip((0..).step_by(BLOCK)) {
                    let cycles = &mut cycles[..block.len()];
                    divide(|i| position(start + i), network.rows(), cycles, block);
                    for (cycle, offsets) in runs(cycles, block) {
                        network.permute(&keys.key(cycle), offsets);
                    }
                }
            }
            Kind::Tables(source) if source.rows() == 0 => out.fill(NO_ROW),
            Kind::Tables(source) => {
                let mut cycles = vec![0; out.len()];
                divide(position, source.rows(), &mut cycles, out);
                for (cycle, offsets) in runs(&cycles, out) {
                    let table = source.build(cycle, &mut || true);
                    for offset in offsets {
                        let row = table.as_ref().map(|table| table.rows()[*offset as usize]);
                        *offset = row.map_or(NO_ROW, u64::from);
                    }
                }
            }
        }
    }
}

/// Splits positions into cycles of `rows` positions and offsets in them.
fn divide(position: impl Fn(usize) -> u64, rows: u64, cycles: &mut [u64], offsets: &mut [u64]) {
    for (i, (cycle, offset)) in cycles.iter_mut().zip(offsets).enumerate() {
        (*cycle, *offset) = (position(i) / rows, position(i) % rows);
    }
}

/// Neighbouring offsets in the same cycle, with its number.
fn runs<'a>(
    cycles: &'a [u64],
    offsets: &'a mut [u64],
) -> impl Iterator<Item = (u64, &'a mut [u64])> {
    let mut rest = offsets;
    cycles.chunk_by(|a, b| a == b).map_while(move |run| {
        let (run_offsets, others) = std::mem::take(&mut rest).split_at_mut_checked(run.len())?;
        rest = others;
        Some((run[0], run_offsets))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cycle::CycleError;
    use crate::digest::TableDigest;
    use crate::key::Purpose;
    use crate::mode::Mode;

    fn key(seed: u64) -> StreamKey {
        StreamKey::derive(seed, Mode::Multinomial, &TableDigest([0; 32]), Purpose::Draw)
    }

    fn keys(seed: u64, mode: Mode) -> CycleKeys {
        CycleKeys::new(seed, mode, TableDigest([0; 32]))
    }

    fn orders(seed: u64, rows: u16) -> [Order; 6] {
        let weights = (0..rows).map(|row| 1.0 / (f64::from(row) + 0.01));
        let cycle_weights = CycleWeights::new(weights.clone().collect()).unwrap();
        let weighted = keys(seed, Mode::WeightedWithoutReplacement);
        [
            Order::sequential(u64::from(rows)),
            Order::uniform(key(seed), u64::from(rows), 0.7).unwrap(),
            Order::multinomial(key(seed), Arc::new(WeightTable::build(weights).unwrap())),
            Order::permutation(keys(seed, Mode::Permutation), u64::from(rows)),
            Order::permutation(keys(seed, Mode::Permutation), SHUFFLED_ROWS_MAX + u64::from(rows)),
            Order::weighted_without_replacement(weighted, cycle_weights),
        ]
    }

    #[test]
    fn sequential_repeats_the_table() {
        let order = Order::sequential(3);
        let rows: Vec<u64> = (0..7).map(|k| order.row_at(k)).collect();
        assert_eq!(rows, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn no_rows_give_no_row() {
        let order = Order::sequential(0);
        let mut out = [0; 2];
        order.rows_into(5, &mut out);
        assert_eq!((order.rows(), order.row_at(0), out), (0, NO_ROW, [NO_ROW; 2]));
        assert!(Order::uniform(key(0), 0, 1.0).is_err());
        let weights = CycleWeights::new(Vec::new()).unwrap();
        for order in [
            Order::permutation(keys(0, Mode::Permutation), 0),
            Order::weighted_without_replacement(keys(0, Mode::Permutation), weights),
        ] {
            let mut out = [0; 2];
            order.rows_into(5, &mut out);
            assert_eq!((order.rows(), order.row_at(0), out), (0, NO_ROW, [NO_ROW; 2]));
        }
    }

    #[test]
    fn what_has_no_answer_is_told_apart_from_rows() {
        let weights = CycleWeights::equal(1 << 32, 1.0).unwrap();
        let keys = keys(0, Mode::WeightedWithoutReplacement);
        let order = Order::weighted_without_replacement(keys, weights);
        assert_eq!(order.row_at(7), NO_ROW);
        let rows = 1 << 32;
        let failed = order.tables().unwrap().build(0, &mut || true).unwrap_err();
        assert_eq!(failed, CycleError::TooManyRows { rows });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn blocks_equal_single_positions_and_any_positions(
            seed: u64, rows in 1..400_u16, k0 in prop_oneof![0..1000_u64, any::<u64>()],
            others in prop::collection::vec(0..3000_u64, 0..100), len in 0..300_usize,
        ) {
            for order in orders(seed, rows) {
                let mut block = vec![0; len];
                order.rows_into(k0, &mut block);
                let positions: Vec<u64> = (0..len as u64).map(|i| k0.wrapping_add(i)).collect();
                let mut found = vec![0; len];
                order.rows_at(&positions, &mut found);
                prop_assert_eq!(&found, &block);
                // Every other position, then some anywhere, in no order.
                let sparse: Vec<u64> = positions.iter().step_by(2).copied().chain(others.clone()).collect();
                let mut found = vec![0; sparse.len()];
                order.rows_at(&sparse, &mut found);
                for (&k, row) in positions.iter().zip(block).step_by(7).chain(sparse.iter().zip(found)) {
                    prop_assert_eq!(row, order.row_at(k));
                    prop_assert!(row < order.rows());
                }
            }
        }
    }
}
