//! The integer inverse CDF of a table's weights; knows nothing of positions, keys or epochs.

use super::equal::{EqualWeights, multiply_high, shift_of};
use super::error::WeightError;
use super::guide::{Guide, GuideBuilder};
use super::numbers::{Numbers, SharedNumbers};
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
    Thresholds { thresholds: Numbers<u64>, guide: Guide },
}

/// What a table is made of, to be made again elsewhere without work per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightParts<'a> {
    /// Rows of one weight, and its integer of rule S8.
    Equal {
        /// Number of rows.
        rows: u64,
        /// Between 2^61 and 2^62.
        quantum: u64,
    },
    /// Everything else.
    Thresholds {
        /// One per row (rule S9).
        thresholds: &'a [u64],
        /// Entries of the guide.
        entries: &'a [u32],
        /// Bits of a ticket that lie within one bucket of the guide.
        shift: u32,
        /// Bits of a row that entries leave out.
        coarse: u32,
    },
}

impl WeightTable {
    /// The table of `weights`, row by row; see [`WeightTableBuilder`] for one that can be stopped.
    ///
    /// # Errors
    /// The first weight that is not finite and positive, or no weight at all.
    pub fn build(weights: impl IntoIterator<Item = f64>) -> Result<Self, WeightError> {
        let weights = weights.into_iter();
        let mut builder = WeightTableBuilder::new(weights.size_hint().0);
        for weight in weights {
            builder.push(weight)?;
        }
        // Nobody stops it.
        builder.finish(&mut || true)?.ok_or(WeightError::NO_ROWS)
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

    /// The parts of this table.
    #[must_use]
    pub fn parts(&self) -> WeightParts<'_> {
        match &self.form {
            Form::Equal(equal) => {
                WeightParts::Equal { rows: equal.rows(), quantum: equal.quantum() }
            }
            Form::Thresholds { thresholds, guide } => {
                let (entries, shift, coarse) = guide.parts();
                let thresholds = thresholds.as_slice();
                WeightParts::Thresholds { thresholds, entries, shift, coarse }
            }
        }
    }

    /// The table with [`WeightParts::Equal`]; `None` when none has these parts.
    #[must_use]
    pub fn from_equal(rows: u64, quantum: u64) -> Option<Self> {
        let is_one = rows > 0 && (1 << 61..1 << 62).contains(&quantum);
        is_one.then(|| Self { form: Form::Equal(EqualWeights::of_quantum(rows, quantum)) })
    }

    /// The table with [`WeightParts::Thresholds`], which stay where they are; `None` when their
    /// numbers do not belong together. What each of them is, is believed.
    #[must_use]
    pub fn from_thresholds(
        thresholds: SharedNumbers<u64>,
        entries: SharedNumbers<u32>,
        shift: u32,
        coarse: u32,
    ) -> Option<Self> {
        let thresholds = Numbers::Shared(thresholds);
        let total = *thresholds.as_slice().last()?;
        let (rows, entries) = (thresholds.len() as u64, Numbers::Shared(entries));
        let guide = Guide::with_entries(entries, shift, coarse, rows, total)?;
        Some(Self { form: Form::Thresholds { thresholds, guide } })
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
            Form::Thresholds { thresholds, guide } => thresholds.size_bytes() + guide.size_bytes(),
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
                let (thresholds, guide) = (thresholds.as_slice(), guide.view());
                let Some(&total) = thresholds.last() else { return };
                for (rows, bits) in rows.chunks_mut(LANES).zip(bits.chunks(LANES)) {
                    search(thresholds, &guide, total, bits, rows);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn build_general(weights: &[f64]) -> Result<Self, WeightError> {
        let mut builder = WeightTableBuilder::new(0);
        weights.iter().try_for_each(|&weight| builder.push(weight))?;
        builder.rows = weights.iter().map(|weight| weight.to_bits()).collect();
        builder.finish_general(&mut || true).ok_or(WeightError::NO_ROWS)
    }

    #[cfg(test)]
    pub(super) fn thresholds(&self) -> Option<&[u64]> {
        match &self.form {
            Form::Equal(_) => None,
            Form::Thresholds { thresholds, .. } => Some(thresholds.as_slice()),
        }
    }
}

/// Rows between two looks whether to go on: about a millisecond of work.
const PIECE_ROWS: usize = 262_144;

/// Takes the weights of a table row by row and becomes the table in the same memory: 9 to 10 bytes
/// a row. Equal weights are only counted.
#[derive(Debug)]
pub struct WeightTableBuilder {
    /// Bits of the weights, from the first one that differs on, those before it included; later
    /// their quanta, then their thresholds.
    rows: Vec<u64>,
    rows_expected: usize,
    /// Rows of the first weight, while there is no other.
    equal: usize,
    weight_max: f64,
}

impl WeightTableBuilder {
    /// A builder for `rows` weights; for more it takes more memory.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { rows: Vec::new(), rows_expected: rows, equal: 0, weight_max: 0.0 }
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A weight that is not finite and positive.
    #[inline]
    pub fn push(&mut self, weight: f64) -> Result<(), WeightError> {
        let row = self.equal.max(self.rows.len());
        let weight = WeightError::check(row as u64, weight)?;
        if self.rows.is_empty() {
            if row == 0 || weight == self.weight_max {
                self.weight_max = weight;
                self.equal += 1;
                return Ok(());
            }
            self.rows.reserve_exact(self.rows_expected.max(row + 1));
            self.rows.resize(row, self.weight_max.to_bits());
        }
        self.weight_max = self.weight_max.max(weight);
        self.rows.push(weight.to_bits());
        Ok(())
    }

    /// The table, in two passes over the rows. `go_on` is asked many times a second.
    ///
    /// Returns `None` when it said no.
    ///
    /// # Errors
    /// No row at all.
    pub fn finish(
        self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<WeightTable>, WeightError> {
        match self.equal {
            0 => Err(WeightError::NO_ROWS),
            rows if self.rows.is_empty() => {
                WeightTable::equal(rows as u64, self.weight_max).map(Some)
            }
            _ => Ok(self.finish_general(go_on)),
        }
    }

    /// The general form, also right for equal weights.
    fn finish_general(self, go_on: &mut dyn FnMut() -> bool) -> Option<WeightTable> {
        let Self { rows: mut thresholds, weight_max, .. } = self;
        let scale = Scale::for_largest(weight_max);
        // Integers of at most 62 bits: 2^64 of them cannot overflow, and any grouping of the sum
        // gives the same bits, which no sum of floats does.
        let mut sum = 0_u128;
        for_each_row(&mut thresholds, go_on, |row| {
            *row = scale.quantise(f64::from_bits(*row));
            sum += u128::from(*row);
        })?;
        let shift = shift_of(sum);
        let mut guide = GuideBuilder::new(thresholds.len() as u64, (sum >> shift) as u64);
        let mut sum = 0_u128;
        for_each_row(&mut thresholds, go_on, |row| {
            sum += u128::from(*row);
            *row = (sum >> shift) as u64;
            guide.push(*row);
        })?;
        let (thresholds, guide) = (Numbers::Own(thresholds), guide.finish());
        Some(WeightTable { form: Form::Thresholds { thresholds, guide } })
    }
}

/// Calls `work` for every row, and `go_on` before each piece of them; `None` when that said no.
fn for_each_row(
    rows: &mut [u64],
    go_on: &mut dyn FnMut() -> bool,
    mut work: impl FnMut(&mut u64),
) -> Option<()> {
    for piece in rows.chunks_mut(PIECE_ROWS) {
        if !go_on() {
            return None;
        }
        piece.iter_mut().for_each(&mut work);
    }
    Some(())
}

/// `min { i : thresholds[i] > ticket }` for up to [`LANES`] draws.
///
/// Each stage issues independent loads only, so that a miss of one draw overlaps with those of all
/// others; draw by draw, the two misses of a look-up would add up. No branch but a rare one
/// depends on what is loaded: a wrong guess would be noticed when the miss is over.
fn search(thresholds: &[u64], guide: &Guide<&[u32]>, total: u64, bits: &[u128], rows: &mut [u64]) {
    let mut tickets = [0_u64; LANES];
    for (ticket, &bits) in tickets.iter_mut().zip(bits) {
        *ticket = multiply_high(bits, total);
    }
    for (&ticket, row) in tickets.iter().zip(rows.iter_mut()) {
        *row = guide.first(ticket);
    }
    // Both lines that a window may lie in, before anything waits for one of them.
    let touch = |row: u64| thresholds.get(row as usize).copied().unwrap_or(0);
    let touched = rows.iter().fold(0, |all, &row| all | touch(row) | touch(row + WINDOW - 1));
    std::hint::black_box(touched);
    for (&ticket, row) in tickets.iter().zip(rows.iter_mut()) {
        *row = scan(thresholds, guide, ticket, *row);
    }
}

/// Rows compared at once: most buckets of the guide hold fewer, and more lie in two lines of the
/// cache.
const WINDOW: u64 = 4;

/// The answer from `first` on, in two windows; few draws go on behind these.
#[inline]
fn scan(thresholds: &[u64], guide: &Guide<&[u32]>, ticket: u64, first: u64) -> u64 {
    let (windows, _) = thresholds[first as usize..].as_chunks::<{ WINDOW as usize }>();
    let mut row = first;
    for window in windows.iter().take(2) {
        let passed = window.iter().map(|&threshold| u64::from(threshold <= ticket)).sum::<u64>();
        row += passed;
        if passed < WINDOW {
            return row;
        }
    }
    halve(thresholds, guide, ticket, row)
}

#[inline(never)]
fn halve(thresholds: &[u64], guide: &Guide<&[u32]>, ticket: u64, first: u64) -> u64 {
    let candidates = &thresholds[first as usize..=guide.last(ticket) as usize];
    first + candidates.partition_point(|&threshold| threshold <= ticket) as u64
}
