//! A closed group of consecutive rows: what one record batch of a shard is made of.
//! Knows no file and no encoding.

use arrow_array::{Array, ArrayRef, LargeBinaryArray, new_null_array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::format::schema::StoredSchema;
use crate::{Error, Result};

/// Consecutive rows of one source: stored columns in schema order and one payload buffer.
/// Only ingest makes one.
#[derive(Clone, Debug)]
pub struct RowGroup {
    first_row: u64,
    columns: Vec<ArrayRef>,
    payload: LargeBinaryArray,
    raw_bytes: u64,
}

impl RowGroup {
    /// Position of the first row in the source.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Rows in the group, at least one.
    pub fn rows(&self) -> usize {
        self.payload.len()
    }

    /// Payload and column bytes, for memory budgets.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// The stored columns in schema order.
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// The payloads as the source gave them.
    pub fn payload(&self) -> &LargeBinaryArray {
        &self.payload
    }

    pub(in crate::write) fn into_parts(self) -> (u64, Vec<ArrayRef>, LargeBinaryArray) {
        (self.first_row, self.columns, self.payload)
    }
}

/// A closed group that waits until every column has a type.
pub(super) struct HeldGroup {
    pub(super) group: RowGroup,
}

impl HeldGroup {
    pub(super) fn new(
        first_row: u64,
        columns: Vec<ArrayRef>,
        payload: Vec<u8>,
        ends: Vec<i64>,
        raw_bytes: u64,
    ) -> Result<Self> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let payload = LargeBinaryArray::try_new(offsets, Buffer::from_vec(payload), None)
            .map_err(|e| Error::internal(format!("a payload column of our own: {e}")))?;
        Ok(Self { group: RowGroup { first_row, columns, payload, raw_bytes } })
    }

    /// Gives the columns that were all null the types they have got since.
    pub(super) fn into_typed(self, schema: &StoredSchema) -> RowGroup {
        let mut group = self.group;
        for (array, column) in group.columns.iter_mut().zip(schema.columns()) {
            let arrow_type = column.column_type.to_arrow();
            if *array.data_type() == DataType::Null && arrow_type != DataType::Null {
                *array = new_null_array(&arrow_type, array.len());
            }
        }
        group
    }
}
