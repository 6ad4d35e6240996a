//! Row groups become Arrow record batches: compressed and laid out. Knows no file.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, LargeBinaryArray, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;

use super::group::{RowGroup, with_room};
use crate::format::codec::{Algo, Compression, Compressor, schema_marks};
use crate::format::digest::to_hex;
use crate::format::ipc::{BodyCompression, EncodedBatch, encode_batch};
use crate::format::schema::StoredSchema;
use crate::{Error, Result};

/// A record batch ready to be written, with the rows it came from. Made by [`Encoder`] only.
pub struct EncodedGroup {
    pub(super) group: RowGroup,
    pub(super) batch: EncodedBatch,
    /// Offsets of the stored payloads within the payload values of the batch, one more than rows.
    pub(super) stored_offsets: Vec<i64>,
}

impl EncodedGroup {
    /// Ends it, once it is written.
    pub(super) fn recycle(self) {
        // The batch may share the group's buffers.
        drop(self.batch);
        self.group.recycle();
    }
}

/// Encodes groups of one cache; one per thread. The bytes do not depend on the thread.
pub struct Encoder {
    schema: SchemaRef,
    body: BodyCompression,
    compressor: Option<Compressor>,
}

/// Schema of the shards of a cache.
pub(super) fn shard_schema(
    schema: &StoredSchema,
    compression: &Compression,
    dictionary: Option<&[u8]>,
) -> SchemaRef {
    let digest = dictionary.map(|bytes| to_hex(blake3::hash(bytes).as_bytes()));
    schema.shard_schema(&schema_marks(compression, digest.as_deref()))
}

impl Encoder {
    /// An encoder for rows of `schema`.
    ///
    /// # Errors
    /// `InvalidInput` when the compression choices do not fit together.
    pub fn new(
        schema: &StoredSchema,
        compression: &Compression,
        dictionary: Option<Arc<[u8]>>,
    ) -> Result<Self> {
        let body = match compression.algo {
            _ if !compression.is_per_buffer() => BodyCompression::None,
            Algo::None => BodyCompression::None,
            Algo::Lz4 => BodyCompression::Lz4Frame,
            Algo::Zstd => BodyCompression::Zstd { level: compression.zstd_level() },
        };
        let compressor = compression
            .is_per_payload()
            .then(|| Compressor::new(compression, dictionary.as_deref()))
            .transpose()?;
        let schema = shard_schema(schema, compression, dictionary.as_deref());
        Ok(Self { schema, body, compressor })
    }

    /// Encodes one group.
    ///
    /// # Errors
    /// `Unsupported` when a column is too large for the compression scope.
    pub fn encode(&mut self, group: RowGroup) -> Result<EncodedGroup> {
        let first = group.first_row();
        let ids = UInt64Array::from_iter_values(first..first + group.rows());
        let stored = match &mut self.compressor {
            None => group.payload().clone(),
            Some(compressor) => compress_each(group.payload(), compressor)?,
        };
        let base = stored.value_offsets()[0];
        let stored_offsets = stored.value_offsets().iter().map(|offset| offset - base).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(ids)];
        columns.extend(group.columns().iter().cloned());
        columns.push(Arc::new(stored));
        let batch = encode_batch(&self.schema, &columns, self.body)?;
        Ok(EncodedGroup { group, batch, stored_offsets })
    }
}

/// Each payload as its own frame; an empty payload stays empty.
fn compress_each(
    payload: &LargeBinaryArray,
    compressor: &mut Compressor,
) -> Result<LargeBinaryArray> {
    let mut bytes = with_room(payload.value_data().len() / 2);
    let mut offsets = with_room(payload.len() + 1);
    offsets.push(0_i64);
    for i in 0..payload.len() {
        let raw = payload.value(i);
        if !raw.is_empty() {
            compressor.compress(raw, &mut bytes)?;
        }
        offsets.push(bytes.len() as i64);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)
        .map_err(|e| Error::internal(format!("compressed payloads are not valid: {e}")))
}
