//! The integer inverse CDF of a table's weights; knows nothing of positions, keys or epochs.

use super::equal::{EqualWeights, multiply_high, shift_of};
use super::error::WeightError;
use super::guide::Guide;
use super::quantise::Scale;

/// Draws that walk through the look-up side by side. Enough to keep the memory system busy while
/// all intermediate values stay in the first-level cache.
pub(crate) const LANES: usize = 64;

/// Weighted rows from which random bits pick one (rules S8 to S11).
///
/// Rows are numbered in the order in which weights were given. A row whose exact chance is below
/// about 2^-63 per draw may be unreachable.
#[derive(Clone, Debug)]
pub struct WeightTable {
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Equal(EqualWeights),
    Thresholds { thresholds: Vec<u64>, guide: Guide },
}

/// What one pass over the weights finds out.
struct Survey {
    rows: u64,
    weight_max: f64,
    all_equal: bool,
}

impl WeightTable {
    /// The table of `weights`, row by row. Reads the weights three times; `O(rows)` time, and 9
    /// to 10 bytes a row of memory. Equal weights need one pass and no memory.
    ///
    /// # Errors
    /// The first weight that is not finite and positive, or no weight at all.
    pub fn build<I>(weights: I) -> Result<Self, WeightError>
    where
        I: IntoIterator<Item = f64>,
        I::IntoIter: Clone,
    {
        Self::build_into(Vec::new(), Vec::new(), weights.into_iter())
    }

    /// [`WeightTable::build`] in the memory of a table no longer needed.
    ///
    /// Worth it for tables replaced every epoch: first touches of fresh pages cost more than all
    /// the arithmetic.
    ///
    /// # Errors
    /// As [`WeightTable::build`]; the old table is gone either way.
    pub fn build_reusing<I>(previous: Self, weights: I) -> Result<Self, WeightError>
    where
        I: IntoIterator<Item = f64>,
        I::IntoIter: Clone,
    {
        match previous.form {
            Form::Equal(_) => Self::build(weights),
            Form::Thresholds { thresholds, guide } => {
                Self::build_into(thresholds, guide.into_buffer(), weights.into_iter())
            }
        }
    }

    /// `rows` rows of the same `weight`, in constant time and memory.
    ///
    /// # Errors
    /// A weight that is not finite and positive, or no rows.
    pub fn equal(rows: u64, weight: f64) -> Result<Self, WeightError> {
        WeightError::check(0, weight)?;
        if rows == 0 {
            return Err(WeightError::NO_ROWS);
        }
        Ok(Self { form: Form::Equal(EqualWeights::new(rows, weight)) })
    }

    /// Number of rows, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a table without rows cannot be built")]
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Equal(equal) => equal.rows(),
            Form::Thresholds { thresholds, .. } => thresholds.len() as u64,
        }
    }

    /// Memory held beyond the value itself, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.form {
            Form::Equal(_) => 0,
            Form::Thresholds { thresholds, guide } => {
                (thresholds.capacity() * size_of::<u64>()) as u64 + guide.size_bytes()
            }
        }
    }

    /// The row picked by 128 random bits: monotone in `bits`, always below [`WeightTable::len`].
    #[must_use]
    pub fn draw(&self, bits: u128) -> u64 {
        let mut row = [0];
        self.draw_into(&[bits], &mut row);
        row[0]
    }

    /// [`WeightTable::draw`] for each of `bits`, with the waits for memory overlapped.
    ///
    /// The shorter slice decides how many rows are written.
    pub fn draw_into(&self, bits: &[u128], rows: &mut [u64]) {
        match &self.form {
            Form::Equal(equal) => {
                for (row, &bits) in rows.iter_mut().zip(bits) {
                    *row = equal.row(bits);
                }
            }
            Form::Thresholds { thresholds, guide } => {
                let Some(&total) = thresholds.last() else { return };
                for (rows, bits) in rows.chunks_mut(LANES).zip(bits.chunks(LANES)) {
                    search(thresholds, guide, total, bits, rows);
                }
            }
        }
    }

    fn build_into<I>(thresholds: Vec<u64>, guide: Vec<u32>, weights: I) -> Result<Self, WeightError>
    where
        I: Iterator<Item = f64> + Clone,
    {
        let survey = survey(weights.clone())?;
        if survey.all_equal {
            return Self::equal(survey.rows, survey.weight_max);
        }
        Ok(Self::thresholds_of(thresholds, guide, weights, &survey))
    }

    /// The general form, also right for equal weights.
    fn thresholds_of<I>(
        mut thresholds: Vec<u64>,
        guide: Vec<u32>,
        weights: I,
        survey: &Survey,
    ) -> Self
    where
        I: Iterator<Item = f64> + Clone,
    {
        let scale = Scale::for_largest(survey.weight_max);
        let quanta = weights.map(|weight| scale.quantise(weight));
        // Integers of at most 62 bits: 2^64 of them cannot overflow, and any grouping of the sum
        // gives the same bits, which no sum of floats does.
        let shift = shift_of(quanta.clone().map(u128::from).sum());
        thresholds.clear();
        thresholds.reserve(survey.rows as usize);
        let mut sum = 0_u128;
        thresholds.extend(quanta.map(|quantum| {
            sum += u128::from(quantum);
            (sum >> shift) as u64
        }));
        let guide = Guide::build(&thresholds, guide);
        Self { form: Form::Thresholds { thresholds, guide } }
    }

    #[cfg(test)]
    pub(super) fn build_general(weights: &[f64]) -> Result<Self, WeightError> {
        let survey = survey(weights.iter().copied())?;
        Ok(Self::thresholds_of(Vec::new(), Vec::new(), weights.iter().copied(), &survey))
    }

    #[cfg(test)]
    pub(super) fn thresholds(&self) -> Option<&[u64]> {
        match &self.form {
            Form::Equal(_) => None,
            Form::Thresholds { thresholds, .. } => Some(thresholds),
        }
    }
}

fn survey(weights: impl Iterator<Item = f64>) -> Result<Survey, WeightError> {
    let mut survey = Survey { rows: 0, weight_max: 0.0, all_equal: true };
    for weight in weights {
        let weight = WeightError::check(survey.rows, weight)?;
        survey.all_equal &= survey.rows == 0 || weight == survey.weight_max;
        survey.weight_max = survey.weight_max.max(weight);
        survey.rows += 1;
    }
    if survey.rows == 0 { Err(WeightError::NO_ROWS) } else { Ok(survey) }
}

/// `min { i : thresholds[i] > ticket }` for up to [`LANES`] draws.
///
/// Each stage issues one independent load per lane, so that a miss of one draw overlaps with those
/// of all others; draw by draw, the two misses of a look-up would add up.
fn search(thresholds: &[u64], guide: &Guide, total: u64, bits: &[u128], rows: &mut [u64]) {
    let mut tickets = [0_u64; LANES];
    for (ticket, &bits) in tickets.iter_mut().zip(bits) {
        *ticket = multiply_high(bits, total);
    }
    let mut lasts = [0_u64; LANES];
    for ((&ticket, last), row) in tickets.iter().zip(&mut lasts).zip(rows.iter_mut()) {
        (*row, *last) = guide.candidates(ticket);
    }
    for ((&ticket, last), row) in tickets.iter().zip(&mut lasts).zip(rows.iter_mut()) {
        halve(thresholds, ticket, row, last);
    }
    for ((&ticket, last), row) in tickets.iter().zip(&mut lasts).zip(rows.iter_mut()) {
        while *row < *last {
            halve(thresholds, ticket, row, last);
        }
    }
}

/// One step of a binary search: the answer stays within `row..=last`.
#[inline]
fn halve(thresholds: &[u64], ticket: u64, row: &mut u64, last: &mut u64) {
    let middle = *row + (*last - *row) / 2;
    if thresholds[middle as usize] > ticket {
        *last = middle;
    } else {
        *row = (middle + 1).min(*last);
    }
}
