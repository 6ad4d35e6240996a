//! Arrow arrays over the buffers of a batch, without copying them.
//! Knows nothing of messages; trusts no buffer, through safe interfaces only.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, NullArray, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::decode::buffer_bytes_min;
use super::layout::{ROWS_MAX, buffer_count};
use crate::{Error, Result};

/// How much of a variable-width column is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// Offsets ascend and lie inside the values; text is UTF-8. Costs a pass over the values of
    /// text columns.
    Full,
    /// Offsets ascend and lie inside the values. Text columns come back as `LargeBinary`, since
    /// nobody has checked that they are text.
    Offsets,
}

/// The array of one column from its buffers: validity, then offsets, then values.
///
/// Nothing is copied unless a buffer is not aligned to its values. Costs a pass over the
/// validity bits and, for variable width, the offsets.
///
/// # Errors
/// `Corrupt` if the buffers cannot hold the rows, nulls are miscounted, or `validation` fails.
pub fn build_array(
    data_type: &DataType,
    rows: u64,
    null_count: u64,
    buffers: Vec<Buffer>,
    validation: Validation,
) -> Result<ArrayRef> {
    if rows > ROWS_MAX || buffers.len() != buffer_count(data_type) {
        return Err(Error::corrupt(format!(
            "column of type {data_type} has {rows} rows in {} buffers",
            buffers.len()
        )));
    }
    // At most `ROWS_MAX`, which is below `usize::MAX`.
    let row_count = rows as usize;
    let mut buffers = exact_buffers(data_type, row_count, null_count, buffers)?.into_iter();
    let Some(validity) = buffers.next() else {
        return Ok(Arc::new(NullArray::new(row_count)));
    };
    let nulls = read_validity(validity, row_count, null_count)?;
    let built_type = match (data_type, validation) {
        (DataType::LargeUtf8, Validation::Offsets) => DataType::LargeBinary,
        _ => data_type.clone(),
    };
    let mut buffers: Vec<Buffer> = buffers.collect();
    if let (DataType::LargeUtf8 | DataType::LargeBinary, Some(offsets)) =
        (data_type, buffers.first_mut().filter(|offsets| offsets.is_empty()))
    {
        // Legal for no rows; our own interfaces want the one offset.
        *offsets = Buffer::from_vec(vec![0_i64]);
    }
    // `build` validates everything that it is not told to trust, and it is told to trust nothing.
    let data = ArrayData::builder(built_type)
        .len(row_count)
        .nulls(nulls)
        .buffers(buffers)
        .align_buffers(true)
        .build()
        .map_err(|error| Error::corrupt(format!("column of type {data_type}: {error}")))?;
    Ok(make_array(data))
}

/// Where in the values the cell of `row` lies, from the bytes of the offsets buffer; the check
/// for reading one cell of a column that was not validated.
///
/// # Errors
/// `Corrupt` if there are no offsets for `row` or they point outside of `values_len` bytes.
pub fn cell_range(offsets: &[u8], row: usize, values_len: usize) -> Result<Range<usize>> {
    let offset = |index: usize| {
        let start = index.checked_mul(8)?;
        let bytes = offsets.get(start..start.checked_add(8)?)?;
        usize::try_from(i64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    row.checked_add(1)
        .and_then(|next| Some(offset(row)?..offset(next)?))
        .filter(|range| range.start <= range.end && range.end <= values_len)
        .ok_or_else(|| Error::corrupt(format!("offsets of row {row} point outside its column")))
}

/// The buffers cut to what the rows need. Arrow panics on offsets whose bytes are no multiple of
/// 8, and looks at bytes behind the last row that no row vouches for.
fn exact_buffers(
    data_type: &DataType,
    rows: usize,
    null_count: u64,
    buffers: Vec<Buffer>,
) -> Result<Vec<Buffer>> {
    let is_variable = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary);
    let cut = |(role, buffer): (usize, Buffer)| {
        let needed = buffer_bytes_min(data_type, role, rows, null_count);
        match needed.filter(|needed| *needed <= buffer.len()) {
            // How many values there are is up to the offsets; validity is read on its own.
            Some(_) if role == 0 || (is_variable && role == 2) => Ok(buffer),
            Some(needed) => Ok(buffer.slice_with_length(0, needed)),
            None => Err(Error::corrupt(format!(
                "buffer {role} of a column of type {data_type} has {} bytes; too few for {rows} \
                 rows",
                buffer.len()
            ))),
        }
    };
    buffers.into_iter().enumerate().map(cut).collect()
}

fn read_validity(validity: Buffer, rows: usize, null_count: u64) -> Result<Option<NullBuffer>> {
    if null_count == 0 && validity.is_empty() {
        return Ok(None);
    }
    if validity.len() < rows.div_ceil(8) {
        return Err(Error::corrupt("validity bits are fewer than the rows"));
    }
    let nulls = NullBuffer::new(BooleanBuffer::new(validity, 0, rows));
    if nulls.null_count() as u64 != null_count {
        return Err(Error::corrupt(format!(
            "column has {} nulls; its header states {null_count}",
            nulls.null_count()
        )));
    }
    Ok((null_count > 0).then_some(nulls))
}
