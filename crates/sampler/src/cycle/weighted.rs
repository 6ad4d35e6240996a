//! All rows, heavier ones earlier (rules S23 to S25); knows nothing of cycles or positions.

use super::error::{CycleError, with_room};
use super::exponential::{CHAINS, exponentials, sort_key};
use super::sort::{PIECE, look, sort};
use crate::key::StreamKey;
use crate::weights::WeightError;

/// Weights of the rows of a table, kept for the cycles to come.
#[derive(Clone, Debug)]
pub struct CycleWeights {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Equal { rows: u64, weight: f64 },
    Each(Vec<f64>),
}

impl CycleWeights {
    /// The weights of a table, row by row. No weight at all is a table without rows.
    ///
    /// # Errors
    /// The first weight that is not finite and positive.
    pub fn new(weights: Vec<f64>) -> Result<Self, WeightError> {
        for (row, &weight) in (0..).zip(&weights) {
            WeightError::check(row, weight)?;
        }
        Ok(Self { form: Form::Each(weights) })
    }

    /// `rows` rows of the same `weight`, in constant memory.
    ///
    /// # Errors
    /// A weight that is not finite and positive.
    pub fn equal(rows: u64, weight: f64) -> Result<Self, WeightError> {
        WeightError::check(0, weight)?;
        Ok(Self { form: Form::Equal { rows, weight } })
    }

    pub(super) const fn rows(&self) -> u64 {
        match &self.form {
            Form::Equal { rows, .. } => *rows,
            Form::Each(weights) => weights.len() as u64,
        }
    }

    fn weight(&self, row: usize) -> f64 {
        match &self.form {
            Form::Equal { weight, .. } => *weight,
            Form::Each(weights) => weights[row],
        }
    }

    /// All rows below `rows`, the number of weights, by ascending key and row: 16 bytes a row
    /// while it works, beside the 4 of the result.
    pub(super) fn ordered(
        &self,
        key: &StreamKey,
        rows: u32,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<u32>, CycleError> {
        let mut order = with_room(rows as usize)?;
        let mut entries: Vec<u128> = with_room(rows as usize)?;
        for first in (0..rows).step_by(CHAINS) {
            if (first as usize).is_multiple_of(PIECE) {
                look(go_on)?;
            }
            let mut bits = [0; CHAINS];
            for (i, bits) in (u64::from(first)..).zip(&mut bits) {
                *bits = key.bits(i);
            }
            for (row, exponential) in (first..rows).zip(exponentials(bits)) {
                // 76 bits of key above 32 bits of row: equal keys go by row.
                let key = sort_key(exponential, self.weight(row as usize));
                entries.push(key << u32::BITS | u128::from(row));
            }
        }
        sort(&mut entries, go_on)?;
        order.extend(entries.into_iter().map(|entry| entry as u32));
        Ok(order)
    }
}
