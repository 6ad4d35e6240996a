//! A finished shard of an interrupted write, read back: its digest first, then its rows.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;

use super::group::with_room;
use crate::format::codec::Decompressor;
use crate::format::digest::{FileDigest, FileHasher, to_hex};
use crate::format::ipc::{
    BatchPlace, BodyKind, FOOTER_TAIL_BYTES, FileLayout, Validation, build_array,
    decode_batch_header, decode_footer, decompress_buffer, footer_range,
};
use crate::format::limits::PAYLOAD_BYTES_MAX;
use crate::format::manifest::ShardEntry;
use crate::store::{IoMode, ReadFile};
use crate::{Error, Result};

/// Bytes hashed at a time.
const PIECE_BYTES: u64 = 1024 * 1024;

/// A shard whose bytes are those that were journalled.
pub(super) struct StoredShard {
    file: ReadFile,
    schema: SchemaRef,
    layout: FileLayout,
    pub(super) digest: FileDigest,
}

/// The rows of one record batch.
pub(super) struct StoredBatch {
    /// Stored columns in schema order.
    pub(super) columns: Vec<ArrayRef>,
    /// Payloads before compression.
    pub(super) payload: LargeBinaryArray,
    /// Offsets of the stored payloads within the payload values of the batch, from 0.
    pub(super) stored_offsets: Vec<i64>,
    /// Where in the file the payload values begin.
    pub(super) values_start: u64,
}

impl StoredShard {
    /// Hashes the whole file at `path` and parses its footer. `attend` is called for each MiB.
    ///
    /// # Errors
    /// `Corrupt` when it is not what `entry` says, and what `attend` returns.
    pub(super) fn open(
        path: &Path,
        entry: &ShardEntry,
        schema: &SchemaRef,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        let file = ReadFile::open(path, IoMode::Pread)?;
        let mut hasher = FileHasher::default();
        let size = file.size_bytes();
        let mut piece = Vec::new();
        while hasher.size_bytes() < size {
            attend()?;
            let offset = hasher.size_bytes();
            piece.resize((size - offset).min(PIECE_BYTES) as usize, 0);
            file.read_at(offset, &mut piece)?;
            hasher.update(&piece);
        }
        let digest = hasher.finish();
        if size != entry.size_bytes || to_hex(&digest.root) != entry.blake3 {
            return Err(Error::corrupt(format!(
                "{} has {size} bytes with digest {}; expected {} bytes with digest {}",
                path.display(),
                to_hex(&digest.root),
                entry.size_bytes,
                entry.blake3
            )));
        }
        let tail = read(&file, size.saturating_sub(FOOTER_TAIL_BYTES as u64)..size)?;
        let layout = decode_footer(&read(&file, footer_range(size, &tail)?)?, size)?;
        if layout.schema != **schema {
            return Err(Error::corrupt(format!("{} has another schema", path.display())));
        }
        Ok(Self { file, schema: Arc::clone(schema), layout, digest })
    }

    /// Record batches in the shard.
    pub(super) fn places(&self) -> &[BatchPlace] {
        &self.layout.batches
    }

    /// The rows of the batch at `place`.
    pub(super) fn batch(
        &self,
        place: &BatchPlace,
        decompressor: &mut Decompressor,
    ) -> Result<StoredBatch> {
        let message = read(&self.file, place.message_range())?;
        let batch = decode_batch_header(&message, place, &self.schema)?;
        let mut arrays = Vec::with_capacity(self.schema.fields().len());
        for (column, field) in self.schema.fields().iter().enumerate() {
            let ranges = batch.column_buffers(&self.schema, column);
            let buffers = ranges
                .iter()
                .map(|range| {
                    let bytes = read(&self.file, range.clone())?;
                    Ok(Buffer::from_vec(match batch.compression {
                        BodyKind::None => bytes,
                        kind => decompress_buffer(&bytes, kind, PAYLOAD_BYTES_MAX)?,
                    }))
                })
                .collect::<Result<Vec<_>>>()?;
            let nulls = batch.nulls.get(column).copied().unwrap_or(0);
            let built =
                build_array(field.data_type(), batch.rows, nulls, buffers, Validation::Full);
            arrays.push(built?);
        }
        let values_start = batch.buffers.last().map_or(0, |range| range.start);
        let stored = arrays.pop().ok_or_else(|| Error::internal("a shard without columns"))?;
        let stored = stored.as_binary::<i64>();
        let columns = arrays.split_off(1);
        let payload = unpack(stored, decompressor)?;
        let stored_offsets = stored.value_offsets().to_vec();
        Ok(StoredBatch { columns, payload, stored_offsets, values_start })
    }
}

fn unpack(stored: &LargeBinaryArray, decompressor: &mut Decompressor) -> Result<LargeBinaryArray> {
    let mut bytes = with_room(stored.value_data().len());
    let mut offsets = with_room(stored.len() + 1);
    offsets.push(0_i64);
    for frame in stored.iter().flatten() {
        // An empty payload is stored as no bytes, not as a frame.
        if !frame.is_empty() {
            decompressor.append(frame, &mut bytes)?;
        }
        offsets.push(bytes.len() as i64);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)
        .map_err(|e| Error::corrupt(format!("payloads are not valid: {e}")))
}

/// Bytes of a range that lies inside the file.
fn read(file: &ReadFile, range: Range<u64>) -> Result<Vec<u8>> {
    let len = range
        .end
        .checked_sub(range.start)
        .filter(|_| range.end <= file.size_bytes())
        .ok_or_else(|| Error::corrupt(format!("bytes {range:?} lie outside the file")))?;
    let mut bytes = vec![0; len as usize];
    file.read_at(range.start, &mut bytes)?;
    Ok(bytes)
}
