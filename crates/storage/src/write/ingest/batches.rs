//! Takes Arrow record batches: stored columns and a `payload` column, columnar to the end.
//! The caller has validated the arrays in full.

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampSecondType;
use arrow_array::{Array, ArrayRef, LargeBinaryArray, RecordBatch};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType};

use super::super::column::add_variable_costs;
use super::lengths::add_lengths;
use super::rows::Ingest;
use crate::format::schema::{ColumnType, check_column_name};
use crate::{Error, Result};

/// Name of the payload column of a batch.
const PAYLOAD: &str = "payload";
/// Rows converted at a time at most, however small they are.
const PIECE_ROWS: usize = 65_536;

impl Ingest {
    /// Takes the rows of `batch`; any chunking gives the same groups. The pieces before a refused
    /// one stay.
    ///
    /// # Errors
    /// As [`Ingest::push_piece`].
    pub fn push_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut taken = self.push_piece(batch, 0)?;
        while taken < batch.num_rows() {
            taken += self.push_piece(batch, taken)?;
        }
        Ok(())
    }

    /// Takes rows of `batch` from row `start` on and gives how many: those of about one group, so
    /// that closed groups can leave before the next piece comes.
    ///
    /// # Errors
    /// `InvalidInput` naming source, sample, column, expected and found: nothing of the piece is
    /// taken then. `Internal` within a row.
    pub fn push_piece(&mut self, batch: &RecordBatch, start: usize) -> Result<usize> {
        if self.has_open_row() || start > batch.num_rows() {
            return Err(Error::internal("a batch comes within a row, or ends before its piece"));
        }
        let outcome = self.take_piece(batch, start);
        if outcome.is_err() {
            self.discard();
        }
        outcome
    }

    fn take_piece(&mut self, batch: &RecordBatch, start: usize) -> Result<usize> {
        self.check_names(batch)?;
        let rows = self.piece_rows(batch, start);
        let piece = batch.slice(start, rows);
        let payload = self.payload_column(&piece)?;
        let arrays = (0..self.columns.len())
            .map(|position| self.stored_array(&piece, position))
            .collect::<Result<Vec<_>>>()?;
        self.append_rows(&arrays, &payload)?;
        Ok(rows)
    }

    fn check_names(&mut self, batch: &RecordBatch) -> Result<()> {
        let row = self.rows_total;
        let is_payload = |name: &&str| *name == PAYLOAD;
        let mut names: Vec<&str> =
            batch.schema_ref().fields().iter().map(|f| f.name().as_str()).collect();
        if names.iter().filter(|name| is_payload(name)).count() > 1 {
            return Err(self.refuse(row, "column \"payload\" appears twice; rename one"));
        }
        names.retain(|name| !is_payload(name));
        self.shape_by(batch)?;
        if let Some(name) = names.iter().find(|name| !self.positions.contains_key(**name)) {
            return Err(self.refuse(row, format!("unknown column {name:?}; drop it")));
        }
        if names.len() > self.columns.len() {
            return Err(self.refuse(row, "a column name appears twice; rename one"));
        }
        Ok(())
    }

    /// Rows from `start` on that cost about one group of memory once they are converted.
    fn piece_rows(&self, batch: &RecordBatch, start: usize) -> usize {
        let rows = PIECE_ROWS.min(batch.num_rows() - start);
        let mut costs = vec![0_u64; rows];
        for column in batch.columns() {
            add_lengths(&column.slice(start, rows), &mut costs);
        }
        let mut bytes = 0_u64;
        let within = costs.iter().take_while(|&&cost| {
            bytes = bytes.saturating_add(cost);
            bytes <= self.limits.batch_bytes
        });
        within.count().max(1).min(rows)
    }

    fn payload_column(&self, batch: &RecordBatch) -> Result<LargeBinaryArray> {
        let row = self.rows_total;
        let column = batch.column_by_name(PAYLOAD).ok_or_else(|| {
            self.refuse(row, "the batch has no column \"payload\"; expected a binary one")
        })?;
        let is_binary = |t: &DataType| {
            matches!(
                t,
                DataType::Binary
                    | DataType::LargeBinary
                    | DataType::BinaryView
                    | DataType::FixedSizeBinary(_)
            )
        };
        let fits = match column.data_type() {
            DataType::Dictionary(_, values) => is_binary(values),
            other => is_binary(other),
        };
        if !fits {
            let found = column.data_type();
            let text = format!("column \"payload\" is {found}; expected binary; cast it first");
            return Err(self.refuse(row, text));
        }
        let column = cast_strict(column, &DataType::LargeBinary)
            .map_err(|e| self.refuse(row, format!("column \"payload\": {e}")))?;
        if let Some(at) = first_null(&column) {
            let text = "payload is null; expected bytes (empty ones are fine)";
            return Err(self.refuse(row + at as u64, text));
        }
        let payload = column.as_binary::<i64>().clone();
        for (i, pair) in payload.value_offsets().windows(2).enumerate() {
            self.check_payload_len(row + i as u64, (pair[1] - pair[0]) as u64)?;
        }
        Ok(payload)
    }

    /// Names, order and types come from the first batch unless they are known.
    fn shape_by(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.is_shaped {
            return Ok(());
        }
        for field in batch.schema_ref().fields() {
            let name = field.name().as_str();
            if name == PAYLOAD {
                continue;
            }
            check_column_name(name)
                .and_then(|()| ColumnType::from_arrow(field.data_type()))
                .map_err(|e| e.within(format!("source {:?}, column {name:?}", self.source)))
                .and_then(|column_type| {
                    if self.columns.iter().any(|c| c.name == name) {
                        let text = format!("column {name:?} appears twice; rename one");
                        return Err(self.refuse(self.rows_total, text));
                    }
                    let known = (column_type != ColumnType::Null).then_some(column_type);
                    self.add_column(name, true, known)
                })?;
        }
        self.is_shaped = true;
        Ok(())
    }

    /// The batch's column for stored column `position`, in its stored type.
    fn stored_array(&mut self, batch: &RecordBatch, position: usize) -> Result<ArrayRef> {
        let row = self.rows_total;
        let name = self.columns[position].name.clone();
        let array = batch.column_by_name(&name).ok_or_else(|| {
            self.refuse(row, format!("column {name:?} is missing; give every batch the same"))
        })?;
        let found = ColumnType::from_arrow(array.data_type())
            .map_err(|e| e.within(format!("source {:?}, column {name:?}", self.source)))?;
        let column = &mut self.columns[position];
        if column.builder.column_type().is_none() && found != ColumnType::Null {
            column.builder.set_type(found.clone());
            column.typed_by_row = Some(row);
        }
        if !column.nullable
            && let Some(at) = first_null(array)
        {
            let text = format!("column {name:?} is null, which the declared schema forbids");
            return Err(self.refuse(row + at as u64, text));
        }
        let Some(expected) = column.builder.column_type().cloned() else {
            return Ok(array.clone());
        };
        if found == ColumnType::Null {
            return Ok(array.clone());
        }
        if found != expected && !is_lossless(&found, &expected) {
            let text = format!(
                "column {name:?}: expected {}, found {}; cast it, or declare a schema that fits",
                expected.to_text(),
                found.to_text()
            );
            return Err(self.refuse(row, text));
        }
        let array = cast_strict(array, &expected.to_arrow()).map_err(|e| {
            let text = format!("column {name:?} does not fit {}: {e}", expected.to_text());
            self.refuse(row, text)
        })?;
        if let Some(at) = first_beyond_milliseconds(&array) {
            let text = format!(
                "column {name:?} holds a time in seconds that milliseconds cannot; Polars would \
                 show another one; correct the value"
            );
            return Err(self.refuse(row + at as u64, text));
        }
        Ok(array)
    }

    /// Ends groups where single rows would have ended them.
    fn append_rows(&mut self, arrays: &[ArrayRef], payload: &LargeBinaryArray) -> Result<()> {
        let fixed = self.fixed_row_bytes();
        let payload_len =
            |i: usize| (payload.value_offsets()[i + 1] - payload.value_offsets()[i]) as u64;
        let mut costs: Vec<u64> = (0..payload.len()).map(|i| fixed + payload_len(i)).collect();
        for (array, column) in arrays.iter().zip(&self.columns) {
            let Some(column_type) = column.builder.column_type() else { continue };
            if *array.data_type() == column_type.to_arrow() {
                add_variable_costs(array, column_type, &mut costs);
            }
        }
        let mut start = 0;
        while start < payload.len() {
            let mut end = start;
            let (mut rows, mut bytes) = (self.payload.rows(), self.group_bytes);
            let mut is_full = false;
            while end < payload.len() && !is_full {
                if rows > 0 && bytes + payload_len(end) > self.limits.batch_bytes {
                    is_full = true;
                    break;
                }
                rows += 1;
                bytes += costs[end];
                end += 1;
                is_full = rows >= self.limits.batch_rows || bytes >= self.limits.batch_bytes;
            }
            let len = end - start;
            self.payload.append(payload, start, len)?;
            for (array, column) in arrays.iter().zip(&mut self.columns) {
                column.builder.append(array, start, len)?;
            }
            self.group_bytes = bytes;
            self.rows_total += len as u64;
            self.payload_bytes += (start..end).map(payload_len).sum::<u64>();
            start = end;
            if is_full {
                self.close_group()?;
            }
        }
        Ok(())
    }
}

/// The first null row; dictionaries may hide nulls among their values.
fn first_null(array: &ArrayRef) -> Option<usize> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0)?;
    nulls.iter().position(|is_valid| !is_valid)
}

/// Widening that keeps every value; narrowing is tried and refused by value.
fn is_lossless(found: &ColumnType, expected: &ColumnType) -> bool {
    let is_integer = |t: &ColumnType| t.to_arrow().is_integer();
    (is_integer(found) && is_integer(expected))
        || (*found == ColumnType::Float32 && *expected == ColumnType::Float64)
}

/// Polars has no seconds and multiplies without looking.
fn first_beyond_milliseconds(array: &ArrayRef) -> Option<usize> {
    let seconds = array.as_primitive_opt::<TimestampSecondType>()?;
    (0..seconds.len())
        .find(|&i| seconds.is_valid(i) && seconds.value(i).checked_mul(1000).is_none())
}

/// Converts all of `array`, or none of it.
fn cast_strict(array: &ArrayRef, to: &DataType) -> std::result::Result<ArrayRef, ArrowError> {
    let made =
        cast_with_options(array, to, &CastOptions { safe: false, ..CastOptions::default() })?;
    // Kernels count rows by bytes, and find none where run-ends stand for values of no width.
    if made.len() != array.len() {
        return Err(ArrowError::CastError(format!(
            "Arrow makes {} rows of {} from {}; cast it first",
            made.len(),
            array.len(),
            array.data_type()
        )));
    }
    Ok(made)
}
