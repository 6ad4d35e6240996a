//! From a stream position to a row; knows nothing of epochs, ranks, workers or what a row holds.

use std::sync::Arc;

use crate::key::StreamKey;
use crate::weights::{WeightError, WeightTable};

/// The answer of an order over no rows: a row that no table has.
pub const NO_ROW: u64 = u64::MAX;

/// Positions whose random bits are made together.
const BLOCK: usize = 64;

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

    /// Number of rows of the table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        match &self.kind {
            Kind::Sequential { rows } => *rows,
            Kind::Multinomial { table, .. } => table.len(),
        }
    }

    /// The row at position `k`; [`NO_ROW`] only when there are no rows.
    #[must_use]
    pub fn row_at(&self, k: u64) -> u64 {
        match &self.kind {
            Kind::Sequential { rows } => k.checked_rem(*rows).unwrap_or(NO_ROW),
            Kind::Multinomial { key, table } => table.draw(key.bits(k)),
        }
    }

    /// The rows at any positions: the same as [`Order::row_at`], several times faster. Of two
    /// slices of different lengths, what is too long stays as it is.
    pub fn rows_at(&self, positions: &[u64], out: &mut [u64]) {
        match &self.kind {
            Kind::Sequential { .. } => {
                for (&k, row) in positions.iter().zip(out) {
                    *row = self.row_at(k);
                }
            }
            Kind::Multinomial { key, table } => {
                let mut bits = [0_u128; BLOCK];
                for (positions, block) in positions.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
                    let len = positions.len().min(block.len());
                    let bits = &mut bits[..len];
                    // One by one: on baseline x86-64 lanes side by side were not faster.
                    positions
                        .iter()
                        .zip(bits.iter_mut())
                        .for_each(|(&k, bits)| *bits = key.bits(k));
                    table.draw_into(bits, &mut block[..len]);
                }
            }
        }
    }

    /// The rows at positions `k0, k0 + 1, ..`: the same as [`Order::row_at`], several times faster.
    ///
    /// Best in blocks of 64 and more. Positions wrap around behind the last 64-bit one, far beyond
    /// [`crate::POSITION_LIMIT`].
    pub fn rows_into(&self, k0: u64, out: &mut [u64]) {
        match &self.kind {
            Kind::Sequential { .. } => {
                for (k, row) in positions(k0).zip(out) {
                    *row = self.row_at(k);
                }
            }
            Kind::Multinomial { key, table } => {
                let mut bits = [0_u128; BLOCK];
                let mut start = k0;
                for block in out.chunks_mut(BLOCK) {
                    let bits = &mut bits[..block.len()];
                    // One by one: on baseline x86-64 lanes side by side were not faster.
                    for (k, bits) in positions(start).zip(bits.iter_mut()) {
                        *bits = key.bits(k);
                    }
                    table.draw_into(bits, block);
                    start = start.wrapping_add(BLOCK as u64);
                }
            }
        }
    }
}

/// `k0, k0 + 1, ..` without an end.
fn positions(k0: u64) -> impl Iterator<Item = u64> {
    (0_u64..).map(move |offset| k0.wrapping_add(offset))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::digest::TableDigest;
    use crate::key::Purpose;
    use crate::mode::Mode;

    fn key(seed: u64) -> StreamKey {
        StreamKey::derive(seed, Mode::Multinomial, &TableDigest([0; 32]), Purpose::Draw)
    }

    fn orders(seed: u64, rows: u16) -> [Order; 3] {
        let weights = (0..rows).map(|row| 1.0 / (f64::from(row) + 0.01));
        [
            Order::sequential(u64::from(rows)),
            Order::uniform(key(seed), u64::from(rows), 0.7).unwrap(),
            Order::multinomial(key(seed), Arc::new(WeightTable::build(weights).unwrap())),
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
    }

    proptest! {
        #[test]
        fn blocks_equal_single_positions(
            seed: u64, rows in 1..2000_u16, k0 in prop_oneof![0..1000_u64, any::<u64>()],
            len in 0..300_usize,
        ) {
            for order in orders(seed, rows) {
                let mut block = vec![0; len];
                order.rows_into(k0, &mut block);
                let mut back = vec![0; len];
                let downwards: Vec<u64> = positions(k0).take(len).collect::<Vec<_>>()
                    .into_iter().rev().collect();
                order.rows_at(&downwards, &mut back);
                for (i, (k, row)) in positions(k0).zip(block).enumerate() {
                    prop_assert_eq!(row, order.row_at(k));
                    prop_assert_eq!(row, back[len - 1 - i]);
                    prop_assert!(row < order.rows());
                }
            }
        }
    }
}
