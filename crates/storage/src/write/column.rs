//! One growing column of a known or still unknown type, taken back row by row when a row fails.
//! Knows no name, source or file.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{Array, ArrayRef, GenericByteArray, NullArray, make_array};
use arrow_buffer::{
    BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, NullBufferBuilder, ToByteSlice,
};
use arrow_data::ArrayData;

use super::group::with_room;
use crate::format::schema::ColumnType;
use crate::{Error, Result};

/// Values of one column, in the layout of its Arrow array. Slots of null values hold zeros, so
/// that the same rows give the same file bytes whatever a foreign array had in those slots.
pub(crate) struct ColumnBuilder {
    column_type: Option<ColumnType>,
    len: usize,
    nulls: NullBufferBuilder,
    values: Values,
}

enum Values {
    /// No buffers: the type is `Null` or not known yet, and every value so far is null.
    Absent,
    Bits(BooleanBufferBuilder),
    Fixed {
        width: usize,
        bytes: MutableBuffer,
    },
    Variable {
        offsets: Vec<i64>,
        bytes: Vec<u8>,
    },
}

impl Values {
    fn new(column_type: Option<&ColumnType>) -> Self {
        match column_type {
            None | Some(ColumnType::Null) => Self::Absent,
            Some(ColumnType::Bool) => Self::Bits(BooleanBufferBuilder::new(0)),
            Some(variable) if variable.is_variable_width() => {
                Self::Variable { offsets: vec![0], bytes: Vec::new() }
            }
            Some(fixed) => {
                let width = fixed.width_bytes().unwrap_or(1);
                Self::Fixed { width, bytes: MutableBuffer::new(0) }
            }
        }
    }

    fn push_zeros(&mut self, count: usize) {
        match self {
            Self::Absent => {}
            Self::Bits(bits) => bits.append_n(count, false),
            Self::Fixed { width, bytes } => bytes.extend_zeros(count * *width),
            Self::Variable { offsets, .. } => {
                let end = offsets.last().copied().unwrap_or(0);
                offsets.resize(offsets.len() + count, end);
            }
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Self::Absent => {}
            Self::Bits(bits) => bits.truncate(len),
            Self::Fixed { width, bytes } => bytes.truncate(len * *width),
            Self::Variable { offsets, bytes } => {
                offsets.truncate(len + 1);
                bytes.truncate(offsets.last().map_or(0, |&end| end as usize));
            }
        }
    }
}

/// Bytes that batch limits count for a value besides its variable length: width, or the offset.
pub(super) fn fixed_cost_bytes(column_type: &ColumnType) -> u64 {
    match column_type {
        ColumnType::Null => 0,
        ColumnType::Bool => 1,
        ColumnType::Utf8 | ColumnType::Binary => 8,
        fixed => fixed.width_bytes().unwrap_or(0) as u64,
    }
}

/// Adds to `costs` the variable lengths of `array`, whose type is a stored one.
pub(super) fn add_variable_costs(array: &ArrayRef, column_type: &ColumnType, costs: &mut [u64]) {
    match column_type {
        ColumnType::Utf8 => add_lengths(array.as_string::<i64>(), costs),
        ColumnType::Binary => add_lengths(array.as_binary::<i64>(), costs),
        _ => {}
    }
}

fn add_lengths<T: ByteArrayType<Offset = i64>>(array: &GenericByteArray<T>, costs: &mut [u64]) {
    for (i, (cost, pair)) in costs.iter_mut().zip(array.value_offsets().windows(2)).enumerate() {
        if array.is_valid(i) {
            *cost += (pair[1] - pair[0]) as u64;
        }
    }
}

impl ColumnBuilder {
    /// An empty column; `None` while no value has shown the type.
    pub(crate) fn new(column_type: Option<ColumnType>) -> Self {
        let values = Values::new(column_type.as_ref());
        Self { column_type, len: 0, nulls: NullBufferBuilder::new(0), values }
    }

    pub(super) fn column_type(&self) -> Option<&ColumnType> {
        self.column_type.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Fixes the type; the nulls taken so far become nulls of it.
    pub(super) fn set_type(&mut self, column_type: ColumnType) {
        self.values = Values::new(Some(&column_type));
        self.values.push_zeros(self.len);
        self.column_type = Some(column_type);
    }

    /// Forgets the type again; every value still here is null.
    pub(super) fn forget_type(&mut self) {
        self.column_type = None;
        self.values = Values::Absent;
    }

    pub(crate) fn push_nulls(&mut self, count: usize) {
        self.values.push_zeros(count);
        self.nulls.append_n_nulls(count);
        self.len += count;
    }

    pub(crate) fn push_bool(&mut self, value: bool) {
        if let Values::Bits(bits) = &mut self.values {
            bits.append(value);
            self.pushed();
        }
    }

    /// Takes a value whose width is that of the column's type.
    pub(super) fn push_fixed<T: ToByteSlice>(&mut self, value: T) {
        if let Values::Fixed { bytes, .. } = &mut self.values {
            bytes.push(value);
            self.pushed();
        }
    }

    pub(super) fn push_bytes(&mut self, value: &[u8]) {
        if let Values::Variable { offsets, bytes } = &mut self.values {
            bytes.extend_from_slice(value);
            offsets.push(bytes.len() as i64);
            self.pushed();
        }
    }

    /// Takes a value as it stands in a file: as many bytes as the type is wide, or text, or bytes.
    pub(crate) fn push_stored(&mut self, value: &[u8]) {
        match &mut self.values {
            Values::Fixed { bytes, .. } => bytes.extend_from_slice(value),
            _ => return self.push_bytes(value),
        }
        self.pushed();
    }

    fn pushed(&mut self) {
        self.nulls.append_non_null();
        self.len += 1;
    }

    /// Takes rows `start..start + len` of `array`, which has this column's stored type or `Null`.
    pub(super) fn append(&mut self, array: &ArrayRef, start: usize, len: usize) -> Result<()> {
        let wrong = || Error::internal("a column does not have the type it was announced with");
        let piece = array.slice(start, len);
        if piece.logical_null_count() == len {
            self.push_nulls(len);
            return Ok(());
        }
        let column_type = self.column_type.as_ref().ok_or_else(wrong)?;
        if *piece.data_type() != column_type.to_arrow() {
            return Err(wrong());
        }
        let nulls = piece.nulls().filter(|nulls| nulls.null_count() > 0);
        match (&mut self.values, column_type) {
            (Values::Absent, _) => return Err(wrong()),
            (Values::Bits(bits), _) => {
                let values = piece.as_boolean().values();
                match nulls {
                    None => bits.append_buffer(values),
                    Some(nulls) => bits.append_buffer(&(values & nulls.inner())),
                }
            }
            (Values::Fixed { width, bytes }, _) => {
                append_fixed(&piece.to_data(), *width, nulls, bytes).ok_or_else(wrong)?;
            }
            (Values::Variable { offsets, bytes }, ColumnType::Utf8) => {
                append_variable(piece.as_string::<i64>(), nulls, offsets, bytes);
            }
            (Values::Variable { offsets, bytes }, _) => {
                append_variable(piece.as_binary::<i64>(), nulls, offsets, bytes);
            }
        }
        match nulls {
            None => self.nulls.append_n_non_nulls(len),
            Some(nulls) => self.nulls.append_buffer(nulls),
        }
        self.len += len;
        Ok(())
    }

    /// Drops everything from row `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.values.truncate(len);
            self.nulls.truncate(len);
            self.len = len;
        }
    }

    /// The column as an Arrow array (of type `Null` while untyped); the builder is empty again
    /// and expects as much once more.
    pub(crate) fn take(&mut self) -> Result<ArrayRef> {
        let len = std::mem::take(&mut self.len);
        let nulls = self.nulls.finish().filter(|nulls| nulls.null_count() > 0);
        let Some(column_type) = self.column_type.as_ref().filter(|t| **t != ColumnType::Null)
        else {
            return Ok(Arc::new(NullArray::new(len)));
        };
        let builder = ArrayData::builder(column_type.to_arrow()).len(len).nulls(nulls);
        let builder = match &mut self.values {
            Values::Absent => builder,
            Values::Bits(bits) => builder.add_buffer(bits.finish().into_inner()),
            Values::Fixed { bytes, .. } => {
                let next = MutableBuffer::new(bytes.len());
                builder.add_buffer(std::mem::replace(bytes, next).into())
            }
            Values::Variable { offsets, bytes } => {
                let mut next_offsets = with_room(offsets.len());
                next_offsets.push(0);
                let next_bytes = with_room(bytes.len());
                builder
                    .add_buffer(Buffer::from_vec(std::mem::replace(offsets, next_offsets)))
                    .add_buffer(Buffer::from_vec(std::mem::replace(bytes, next_bytes)))
            }
        };
        let data = builder
            .build()
            .map_err(|e| Error::internal(format!("a column of our own is not valid: {e}")))?;
        Ok(make_array(data))
    }
}

fn append_fixed(
    data: &ArrayData,
    width: usize,
    nulls: Option<&NullBuffer>,
    bytes: &mut MutableBuffer,
) -> Option<()> {
    let start = data.offset() * width;
    let from = data.buffers().first()?.as_slice().get(start..start + data.len() * width)?;
    let first = bytes.len();
    bytes.extend_from_slice(from);
    if let Some(nulls) = nulls {
        let cells = bytes.as_slice_mut().get_mut(first..)?.chunks_exact_mut(width);
        cells.zip(nulls).filter(|(_, is_valid)| !is_valid).for_each(|(cell, _)| cell.fill(0));
    }
    Some(())
}

fn append_variable<T: ByteArrayType<Offset = i64>>(
    array: &GenericByteArray<T>,
    nulls: Option<&NullBuffer>,
    offsets: &mut Vec<i64>,
    bytes: &mut Vec<u8>,
) {
    let from = array.value_offsets();
    if nulls.is_none() {
        let (first, last) = (from[0], from[array.len()]);
        let shift = bytes.len() as i64 - first;
        bytes.extend_from_slice(&array.value_data()[first as usize..last as usize]);
        offsets.extend(from[1..].iter().map(|end| end + shift));
        return;
    }
    for i in 0..array.len() {
        if array.is_valid(i) {
            bytes.extend_from_slice(array.value(i).as_ref());
        }
        offsets.push(bytes.len() as i64);
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{BooleanArray, Int32Array, LargeStringArray};

    use super::*;

    fn rebuilt(array: ArrayRef, column_type: ColumnType, piece: usize) -> ArrayRef {
        let mut builder = ColumnBuilder::new(Some(column_type));
        let mut start = 0;
        while start < array.len() {
            let len = piece.min(array.len() - start);
            builder.append(&array, start, len).unwrap();
            start += len;
        }
        builder.take().unwrap()
    }

    #[test]
    fn appended_pieces_are_the_array_again() {
        let texts =
            LargeStringArray::from_iter((0..50).map(|i| (i % 4 != 0).then(|| "é".repeat(i))));
        let arrays: [(ArrayRef, ColumnType); 3] = [
            (
                Arc::new((0..50).map(|i| (i % 3 != 0).then_some(i)).collect::<Int32Array>()),
                ColumnType::Int32,
            ),
            (
                Arc::new(
                    (0..50).map(|i| (i % 5 != 0).then_some(i % 2 == 0)).collect::<BooleanArray>(),
                ),
                ColumnType::Bool,
            ),
            (Arc::new(texts), ColumnType::Utf8),
        ];
        for (array, column_type) in arrays {
            for piece in [1, 7, 50] {
                assert_eq!(&rebuilt(array.clone(), column_type.clone(), piece), &array);
            }
        }
    }

    #[test]
    fn bytes_below_a_null_never_reach_the_buffers() {
        let dirty = Int32Array::new(vec![7, 8, 9].into(), Some(vec![true, false, true].into()));
        let clean = rebuilt(Arc::new(dirty), ColumnType::Int32, 3);
        assert_eq!(clean.to_data().buffers()[0].typed_data::<i32>(), [7, 0, 9]);
        let dirty = LargeStringArray::new(
            arrow_buffer::OffsetBuffer::new(vec![0, 2, 4].into()),
            Buffer::from(b"abcd".as_slice()),
            Some(vec![false, true].into()),
        );
        let clean = rebuilt(Arc::new(dirty), ColumnType::Utf8, 2);
        assert_eq!(clean.as_string::<i64>().value_data(), b"cd");
    }

    #[test]
    fn truncating_takes_a_row_and_its_type_back() {
        let mut column = ColumnBuilder::new(None);
        column.push_nulls(2);
        column.set_type(ColumnType::Utf8);
        column.push_bytes(b"x");
        column.truncate(2);
        column.forget_type();
        column.set_type(ColumnType::Int64);
        column.push_fixed(5_i64);
        let array = column.take().unwrap();
        assert_eq!(array.as_primitive::<arrow_array::types::Int64Type>().value(2), 5);
        assert_eq!(array.null_count(), 2);
        assert_eq!(column.len(), 0);
    }

    #[test]
    fn no_null_leaves_no_validity_buffer() {
        let mut column = ColumnBuilder::new(Some(ColumnType::Bool));
        column.push_bool(true);
        column.push_nulls(1);
        column.truncate(1);
        assert!(column.take().unwrap().nulls().is_none());
    }
}
