//! A row group: the rows that become one record batch, and where groups end. Knows no file.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, LargeBinaryArray, new_null_array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::format::codec::Compression;
use crate::format::limits::{BATCH_BYTES, BATCH_ROWS, BUFFER_SCOPE_BATCH_BYTES};
use crate::format::schema::StoredSchema;
use crate::{Error, Kind, Result};

/// Most bytes of row groups that wait for a column's type.
const HOLD_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Where groups end. Depends on the configuration alone, never on threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// A group closes before it holds more payload and column bytes; one larger row stands alone.
    pub batch_bytes: u64,
    /// A group closes at this many rows.
    pub batch_rows: usize,
    /// Bytes of groups that may wait for a column's type.
    pub hold_bytes: u64,
}

impl GroupLimits {
    /// The limits for shards of `max_shard_bytes` with this compression.
    pub fn new(max_shard_bytes: u64, compression: &Compression) -> Self {
        let batch_bytes =
            if compression.is_per_buffer() { BUFFER_SCOPE_BATCH_BYTES } else { BATCH_BYTES };
        Self {
            batch_bytes: batch_bytes.min(max_shard_bytes).max(1),
            batch_rows: BATCH_ROWS,
            hold_bytes: HOLD_BYTES_MAX.min(max_shard_bytes),
        }
    }
}

/// Consecutive rows: stored columns and raw payloads. Made by [`super::Ingest`] only.
#[derive(Clone, Debug)]
pub struct RowGroup {
    first_row: u64,
    columns: Vec<ArrayRef>,
    payload: LargeBinaryArray,
    raw_bytes: u64,
    spares: Arc<SpareBuffers>,
}

impl RowGroup {
    pub(super) fn new(
        first_row: u64,
        columns: Vec<ArrayRef>,
        payload: LargeBinaryArray,
        raw_bytes: u64,
        spares: Arc<SpareBuffers>,
    ) -> Self {
        Self { first_row, columns, payload, raw_bytes, spares }
    }

    /// Ends it: the buffer of its payloads, unless somebody else has it too, takes those of a
    /// later group.
    pub(super) fn recycle(self) {
        let (_, bytes, _) = self.payload.into_parts();
        if let Ok(bytes) = bytes.into_vec() {
            self.spares.keep(bytes);
        }
    }

    /// Row of the first sample in the cache.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.payload.len() as u64
    }

    /// Payload and column bytes, as the limits count them.
    pub fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// Stored columns in schema order.
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// Payloads before compression.
    pub fn payload(&self) -> &LargeBinaryArray {
        &self.payload
    }

    /// Columns that had no type yet when the group closed hold nulls of their type now.
    pub(super) fn typed(mut self, schema: &StoredSchema) -> Self {
        for (column, stored) in self.columns.iter_mut().zip(schema.columns()) {
            let data_type = stored.column_type.to_arrow();
            if *column.data_type() == DataType::Null && data_type != DataType::Null {
                *column = new_null_array(&data_type, column.len());
            }
        }
        self
    }
}

/// Buffers of groups that are written, for groups to come: the page faults of a fresh buffer cost
/// several times what copying into it does.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers(Mutex<Vec<Vec<u8>>>);

/// Spare buffers kept: one is written while the next is filled, and one more is on its way.
const SPARES_MAX: usize = 3;
/// Largest spare buffer kept, so that one large payload is not held for ever.
const SPARE_BYTES_MAX: usize = 2 * BATCH_BYTES as usize;

impl SpareBuffers {
    fn keep(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            spares.push(buffer);
        }
    }

    fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// An empty vector with room for `len` values, where there is memory for them.
pub(super) fn with_room<T>(len: usize) -> Vec<T> {
    let mut values = Vec::new();
    let _ = values.try_reserve_exact(len);
    values
}

/// Payload bytes as they grow: one contiguous buffer and the offsets of an Arrow array.
pub(super) struct PayloadBuilder {
    bytes: Vec<u8>,
    offsets: Vec<i64>,
    spares: Arc<SpareBuffers>,
}

impl PayloadBuilder {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), offsets: vec![0], spares: Arc::default() }
    }

    /// Where the buffers of its groups go when they are written.
    pub(super) fn spares(&self) -> Arc<SpareBuffers> {
        Arc::clone(&self.spares)
    }

    pub(super) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Takes a copy of a payload.
    ///
    /// # Errors
    /// `Exhausted` without memory for it; nothing was taken then.
    pub(super) fn push(&mut self, payload: &[u8]) -> Result<()> {
        self.reserve(payload.len(), 1)?;
        self.bytes.extend_from_slice(payload);
        self.offsets.push(self.bytes.len() as i64);
        Ok(())
    }

    fn reserve(&mut self, bytes: usize, rows: usize) -> Result<()> {
        let reserved = self.bytes.try_reserve(bytes).and_then(|()| self.offsets.try_reserve(rows));
        reserved.map_err(|_| {
            let held = self.bytes.len();
            Error::new(
                Kind::Exhausted,
                format!(
                    "no memory for {bytes} bytes of payload beside the {held} bytes of their \
                     record batch; free some, or lower prefetch_bytes"
                ),
            )
        })
    }

    /// Bytes of the newest payload.
    pub(super) fn last_len(&self) -> u64 {
        match self.offsets.as_slice() {
            [.., start, end] => (end - start) as u64,
            _ => 0,
        }
    }

    /// Drops everything from row `rows` on.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.bytes.truncate(self.offsets.last().map_or(0, |&end| end as usize));
    }

    /// Takes a copy of payloads `start..start + len`.
    ///
    /// # Errors
    /// As [`PayloadBuilder::push`].
    pub(super) fn append(
        &mut self,
        payloads: &LargeBinaryArray,
        start: usize,
        len: usize,
    ) -> Result<()> {
        let offsets = &payloads.value_offsets()[start..=start + len];
        let (first, last) = (offsets[0], offsets[len]);
        self.reserve((last - first) as usize, len)?;
        let shift = self.bytes.len() as i64 - first;
        self.bytes.extend_from_slice(&payloads.value_data()[first as usize..last as usize]);
        self.offsets.extend(offsets[1..].iter().map(|end| end + shift));
        Ok(())
    }

    /// The payloads as an array without copying them; the builder expects as much once more.
    pub(super) fn take(&mut self) -> Result<LargeBinaryArray> {
        let (bytes_len, offsets_len) = (self.bytes.len(), self.offsets.len());
        let next = self.spares.take().unwrap_or_else(|| with_room(bytes_len));
        let bytes = std::mem::replace(&mut self.bytes, next);
        let offsets = std::mem::replace(&mut self.offsets, with_room(offsets_len));
        self.offsets.push(0);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)
            .map_err(|e| Error::internal(format!("payloads of our own are not valid: {e}")))
    }
}
