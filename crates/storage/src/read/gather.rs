//! Single metadata cells by row, in any order, as one Arrow array: only the blocks they lie in
//! are verified, and the offsets of each are checked. Knows nothing of payloads.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, NullArray};
use arrow_buffer::{Buffer, MutableBuffer, bit_util};

use super::cache::Cache;
use super::expansion::too_large;
use super::file::Window;
use super::metadata::MetadataTable;
use crate::format::ipc::{BatchLayout, Validation, build_array};
use crate::format::schema::{ColumnType, StoredColumn};
use crate::store::{Section, guarded};
use crate::{Error, Kind, Result};

impl Cache {
    /// The cells of stored column `column` at `rows`, in their order and with their repetitions,
    /// as an array of the stored type.
    ///
    /// # Errors
    /// `SampleNotFound` for a row the cache does not have, `InvalidInput` for such a column,
    /// `Corrupt` for damage, offsets out of range or text that is not UTF-8.
    pub fn gather(&self, column: usize, rows: &[u64]) -> Result<ArrayRef> {
        let stored = self.schema.columns().get(column).ok_or_else(|| {
            Error::invalid(format!(
                "column {column}; expected one below {}",
                self.schema.columns().len()
            ))
        })?;
        if let Some(&row) = rows.iter().find(|&&row| row >= self.rows()) {
            return Err(Error::new(
                Kind::SampleNotFound,
                format!("there is no sample {row}; expected one below {}", self.rows()),
            ));
        }
        if stored.column_type == ColumnType::Null {
            return Ok(Arc::new(NullArray::new(rows.len())));
        }
        guarded(|section| self.gather_inside(section, column, stored, rows))
    }

    fn gather_inside(
        &self,
        section: Section<'_>,
        column: usize,
        stored: &StoredColumn,
        rows: &[u64],
    ) -> Result<ArrayRef> {
        let mut cells = Cells::new(section, self, column)?;
        let validity = cells.read_validity(rows)?;
        let buffers = match &stored.column_type {
            ColumnType::Bool => vec![cells.read_bits(rows)?],
            ColumnType::Utf8 | ColumnType::Binary => cells.read_bytes(rows)?,
            fixed => vec![match fixed.width_bytes() {
                Some(1) => cells.read_fixed::<1>(rows)?,
                Some(2) => cells.read_fixed::<2>(rows)?,
                Some(4) => cells.read_fixed::<4>(rows)?,
                Some(8) => cells.read_fixed::<8>(rows)?,
                _ => return Err(Error::internal("a stored type without a known width")),
            }],
        };
        if !self.metadata.is_mapped()? {
            self.metadata.check_unchanged()?;
        }
        let buffers = std::iter::once(validity.bits).chain(buffers).collect();
        let data_type = stored.column_type.to_arrow();
        build_array(&data_type, rows.len() as u64, validity.nulls, buffers, Validation::Full)
            .map_err(|e| e.within(format!("{} column {:?}", self.metadata.name(), stored.name)))
    }
}

/// Validity bits, empty without nulls.
struct Validity {
    bits: Buffer,
    nulls: u64,
}

/// Reads the cells of one column.
struct Cells<'a> {
    table: &'a MetadataTable,
    column: usize,
    validity: Window<'a>,
    offsets: Window<'a>,
    values: Window<'a>,
    batch: Range<u64>,
    layout: Option<&'a BatchLayout>,
    name: &'a str,
}

impl<'a> Cells<'a> {
    fn new(section: Section<'a>, cache: &'a Cache, column: usize) -> Result<Self> {
        Ok(Self {
            table: cache.metadata_table(section)?,
            column,
            validity: Window::new(section, &cache.metadata)?,
            offsets: Window::new(section, &cache.metadata)?,
            values: Window::new(section, &cache.metadata)?,
            batch: 0..0,
            layout: None,
            name: cache.metadata.name(),
        })
    }

    /// Moves to the batch of `row`; gives its layout and the row within it.
    #[inline]
    fn seek(&mut self, row: u64) -> Result<(&'a BatchLayout, u64)> {
        if let (true, Some(layout)) = (self.batch.contains(&row), self.layout) {
            return Ok((layout, row - self.batch.start));
        }
        let starts = &self.table.starts;
        let after = starts.partition_point(|&start| start <= row);
        let found = after.checked_sub(1).and_then(|batch| {
            Some((self.table.batches.get(batch)?, *starts.get(batch)?..*starts.get(after)?))
        });
        let (layout, batch) =
            found.ok_or_else(|| Error::internal(format!("row {row} is in no batch")))?;
        (self.layout, self.batch) = (Some(layout), batch);
        Ok((layout, row - self.batch.start))
    }

    /// Consecutive rows of one batch at the beginning of `rows`, and what comes after them.
    #[inline]
    fn next_run<'r>(&mut self, rows: &'r [u64]) -> Result<Option<(Range<u64>, &'r [u64])>> {
        let Some(&first) = rows.first() else { return Ok(None) };
        self.seek(first)?;
        let in_batch = rows.iter().zip(first..self.batch.end);
        let len = in_batch.take_while(|(row, expected)| *row == expected).count();
        Ok(Some((first..first + len as u64, rows.get(len..).unwrap_or_default())))
    }

    /// The file range of buffer `role` of this column.
    #[inline]
    fn buffer(&self, layout: &BatchLayout, role: usize) -> Result<Range<u64>> {
        let first = self.table.first_buffers.get(self.column).copied();
        let range = first.and_then(|first| layout.buffers.get(first + role)).cloned();
        range.ok_or_else(|| Error::internal("a checked batch lacks a buffer"))
    }

    fn read_validity(&mut self, rows: &[u64]) -> Result<Validity> {
        let column = self.column;
        let may_be_null =
            |layout: &BatchLayout| layout.nulls.get(column).is_none_or(|&nulls| nulls > 0);
        if !self.table.batches.iter().any(may_be_null) {
            return Ok(Validity { bits: Buffer::default(), nulls: 0 });
        }
        let mut bits = MutableBuffer::from_len_zeroed(rows.len().div_ceil(8));
        let mut nulls = 0;
        for (target, &row) in rows.iter().enumerate() {
            let (layout, row) = self.seek(row)?;
            let buffer = self.buffer(layout, 0)?;
            if !may_be_null(layout) || read_bit(&mut self.validity, &buffer, row)? {
                bit_util::set_bit(&mut bits, target);
            } else {
                nulls += 1;
            }
        }
        Ok(Validity { bits: bits.into(), nulls })
    }

    fn read_bits(&mut self, rows: &[u64]) -> Result<Buffer> {
        let mut bits = MutableBuffer::from_len_zeroed(rows.len().div_ceil(8));
        for (target, &row) in rows.iter().enumerate() {
            let (layout, row) = self.seek(row)?;
            let buffer = self.buffer(layout, 1)?;
            if read_bit(&mut self.values, &buffer, row)? {
                bit_util::set_bit(&mut bits, target);
            }
        }
        Ok(bits.into())
    }

    fn read_fixed<const WIDTH: usize>(&mut self, rows: &[u64]) -> Result<Buffer> {
        let mut values = MutableBuffer::with_capacity(rows.len().saturating_mul(WIDTH));
        let mut rest = rows;
        while let Some((run, later)) = self.next_run(rest)? {
            let (layout, row) = self.seek(run.start)?;
            let buffer = self.buffer(layout, 1)?;
            let offset = row.saturating_mul(WIDTH as u64);
            if later.len() + 1 == rest.len() {
                let value = self.values.get(part(&buffer, offset, WIDTH as u64)?)?;
                values.extend_from_slice(value.first_chunk::<WIDTH>().map_or(value, |v| &v[..]));
            } else {
                let len = (run.end - run.start).saturating_mul(WIDTH as u64);
                values.extend_from_slice(self.values.get(part(&buffer, offset, len)?)?);
            }
            rest = later;
        }
        Ok(values.into())
    }

    /// Offsets and values of a variable-width column.
    fn read_bytes(&mut self, rows: &[u64]) -> Result<Vec<Buffer>> {
        let mut offsets = Vec::with_capacity(rows.len().saturating_add(1));
        let mut values: Vec<u8> = Vec::new();
        offsets.push(0_i64);
        let mut rest = rows;
        while let Some((run, later)) = self.next_run(rest)? {
            let (layout, local) = self.seek(run.start)?;
            let len = (run.end - run.start).saturating_add(1).saturating_mul(8);
            let pairs = part(&self.buffer(layout, 1)?, local.saturating_mul(8), len)?;
            let all = self.buffer(layout, 2)?;
            // Neighbours lie side by side, and are copied together.
            let mut together: Option<Range<u64>> = None;
            let kept = values.len() as u64;
            for (row, pair) in run.zip(self.offsets.get(pairs)?.windows(16).step_by(8)) {
                let cell = cell_range(pair, &all).ok_or_else(|| {
                    Error::corrupt(format!(
                        "offsets of row {row} point outside its column; rebuild the cache; in {}",
                        self.name
                    ))
                })?;
                let start = together.map_or(cell.start, |cells| cells.start);
                // A vector holds less than 2^63 bytes.
                offsets.push((kept + (cell.end - start)) as i64);
                together = Some(start..cell.end);
            }
            let cells = self.values.get(together.unwrap_or_default())?;
            values.try_reserve(cells.len()).map_err(|_| too_large(cells.len() as u64))?;
            values.extend_from_slice(cells);
            rest = later;
        }
        Ok(vec![Buffer::from_vec(offsets), Buffer::from_vec(values)])
    }
}

/// `len` bytes at `offset` of a buffer.
#[inline]
pub(super) fn part(buffer: &Range<u64>, offset: u64, len: u64) -> Result<Range<u64>> {
    let start = buffer.start.saturating_add(offset);
    let end = start.saturating_add(len);
    if end > buffer.end {
        return Err(Error::corrupt("a column is shorter than its rows; rebuild the cache"));
    }
    Ok(start..end)
}

fn read_bit(window: &mut Window<'_>, buffer: &Range<u64>, row: u64) -> Result<bool> {
    let byte = window.get(part(buffer, row / 8, 1)?)?;
    Ok(byte.first().is_some_and(|byte| byte >> (row % 8) & 1 == 1))
}

/// The file range of a cell within `values`, from the 16 bytes of its two offsets.
pub(super) fn cell_range(pair: &[u8], values: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = pair.split_first_chunk::<8>()?;
    let start = u64::try_from(i64::from_le_bytes(*start)).ok()?;
    let end = u64::try_from(i64::from_le_bytes(end.try_into().ok()?)).ok()?;
    let range = values.start.checked_add(start)?..values.start.checked_add(end)?;
    (range.start <= range.end && range.end <= values.end).then_some(range)
}
