//! The buffers of a column in the one form files hold: offsets from 0, bitmaps from bit 0,
//! zeros under nulls and behind the last bit. Knows nothing of messages.
//!
//! Equal rows thus give equal bytes, whatever slices, padding or leftovers they came with.

use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, LargeBinaryType, LargeUtf8Type};
use arrow_array::{Array, GenericByteArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::layout::bitmap_bytes;
use crate::{Error, Result};

/// The buffers of `column` in the order of the format: validity, then offsets, then values.
pub(super) fn column_buffers(column: &dyn Array) -> Result<Vec<Buffer>> {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    let validity = match nulls {
        None => Buffer::default(),
        Some(nulls) => bitmap(nulls.inner()),
    };
    Ok(match column.data_type() {
        DataType::Null => Vec::new(),
        DataType::Boolean => {
            let values = column.as_boolean().values();
            let values = match nulls {
                None => bitmap(values),
                Some(nulls) => bitmap(&(values & nulls.inner())),
            };
            vec![validity, values]
        }
        DataType::LargeUtf8 => {
            let [offsets, values] = bytes_buffers(column.as_bytes::<LargeUtf8Type>(), nulls)?;
            vec![validity, offsets, values]
        }
        DataType::LargeBinary => {
            let [offsets, values] = bytes_buffers(column.as_bytes::<LargeBinaryType>(), nulls)?;
            vec![validity, offsets, values]
        }
        _ => vec![validity, fixed_values(column, nulls)?],
    })
}

/// The bits from bit 0 on, with zeros behind the last.
fn bitmap(bits: &BooleanBuffer) -> Buffer {
    let bytes = bitmap_bytes(bits.len());
    let mut out = bits.sliced().as_slice().to_vec();
    out.resize(bytes, 0);
    if let (Some(last), used @ 1..) = (out.last_mut(), bits.len() % 8) {
        *last &= (1_u8 << used) - 1;
    }
    Buffer::from_vec(out)
}

fn null_rows(nulls: &NullBuffer) -> impl Iterator<Item = usize> + '_ {
    (0..nulls.len()).filter(|row| nulls.is_null(*row))
}

fn fixed_values(column: &dyn Array, nulls: Option<&NullBuffer>) -> Result<Buffer> {
    let type_error = || Error::internal(format!("{} is not fixed-width", column.data_type()));
    let width = column.data_type().primitive_width().ok_or_else(type_error)?;
    let data = column.to_data();
    let values = data.buffers().first().ok_or_else(type_error)?;
    let (start, len) = (data.offset() * width, column.len() * width);
    let bytes = values.as_slice().get(start..start + len).ok_or_else(out_of_range)?;
    let has_leftovers = nulls.is_some_and(|nulls| {
        null_rows(nulls).any(|row| bytes[row * width..(row + 1) * width].iter().any(|b| *b != 0))
    });
    let (Some(nulls), true) = (nulls, has_leftovers) else {
        return Ok(values.slice_with_length(start, len));
    };
    let mut out = bytes.to_vec();
    for row in null_rows(nulls) {
        out[row * width..(row + 1) * width].fill(0);
    }
    Ok(Buffer::from_vec(out))
}

/// Offsets and values of a variable-width column; bytes that only a null or no row holds are
/// left out.
fn bytes_buffers<T: ByteArrayType<Offset = i64>>(
    column: &GenericByteArray<T>,
    nulls: Option<&NullBuffer>,
) -> Result<[Buffer; 2]> {
    let offsets: &ScalarBuffer<i64> = column.offsets().inner();
    let values = column.values();
    let (Some(first), Some(last)) = (offsets.first().copied(), offsets.last().copied()) else {
        return Err(out_of_range());
    };
    let (Ok(start), Ok(end)) = (usize::try_from(first), usize::try_from(last)) else {
        return Err(out_of_range());
    };
    if start > end || end > values.len() {
        return Err(out_of_range());
    }
    let has_leftovers =
        nulls.is_some_and(|nulls| null_rows(nulls).any(|row| column.value_length(row) != 0));
    if let (Some(nulls), true) = (nulls, has_leftovers) {
        return without_null_bytes(column, nulls);
    }
    let values = values.slice_with_length(start, end - start);
    let offsets = match first {
        0 => offsets.inner().clone(),
        _ => Buffer::from_vec(offsets.iter().map(|offset| offset - first).collect::<Vec<_>>()),
    };
    Ok([offsets, values])
}

fn without_null_bytes<T: ByteArrayType<Offset = i64>>(
    column: &GenericByteArray<T>,
    nulls: &NullBuffer,
) -> Result<[Buffer; 2]> {
    let mut offsets = Vec::with_capacity(column.len() + 1);
    let mut values: Vec<u8> = Vec::new();
    offsets.push(0_i64);
    for row in 0..column.len() {
        if nulls.is_valid(row) {
            let value: &[u8] = column.value(row).as_ref();
            values.extend_from_slice(value);
        }
        offsets.push(i64::try_from(values.len()).map_err(|_| out_of_range())?);
    }
    Ok([Buffer::from_vec(offsets), Buffer::from_vec(values)])
}

fn out_of_range() -> Error {
    Error::internal("offsets of a column point outside its buffers")
}
