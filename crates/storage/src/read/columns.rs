//! Arrow IPC files of a cache as verified, validated record batches.
//! Knows neither metadata from shards nor rows from samples.

use std::ops::Range;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, SchemaRef};

use super::file::VerifiedFile;
use crate::format::ipc::{
    BatchLayout, BatchPlace, BodyKind, FOOTER_TAIL_BYTES, FileLayout, Validation, build_array,
    decode_batch_header, decode_footer, decompress_buffer, footer_range,
};
use crate::store::Section;
use crate::{Error, Result};

/// Parses the footer of `file` and checks that it has `schema`.
pub(super) fn read_layout(
    section: Section<'_>,
    file: &VerifiedFile,
    schema: &SchemaRef,
) -> Result<FileLayout> {
    let size = file.size_bytes();
    let tail = file.read(section, size.saturating_sub(FOOTER_TAIL_BYTES as u64)..size)?;
    let footer = footer_range(size, &tail).map_err(|e| e.within(file.name()))?;
    let footer = file.read(section, footer)?;
    let layout = decode_footer(&footer, size).map_err(|e| e.within(file.name()))?;
    if layout.schema != **schema {
        return Err(Error::corrupt(format!(
            "its schema is not the one the manifest states; rebuild the cache; in {}",
            file.name()
        )));
    }
    Ok(layout)
}

/// Parses the header of the batch at `place`.
pub(super) fn read_header(
    section: Section<'_>,
    file: &VerifiedFile,
    place: &BatchPlace,
    schema: &SchemaRef,
) -> Result<BatchLayout> {
    let message = file.read(section, place.message_range())?;
    decode_batch_header(&message, place, schema)
        .map_err(|e| e.within(format!("{} batch at byte {}", file.name(), place.offset)))
}

/// The whole batch: shared with the mapping where it is not compressed, all offsets and all text
/// checked. A compressed buffer of variable-width values is refused above `values_left` raw bytes,
/// which counts down with each of them.
pub(super) fn read_batch(
    section: Section<'_>,
    file: &VerifiedFile,
    schema: &SchemaRef,
    layout: &BatchLayout,
    values_left: &mut u64,
) -> Result<RecordBatch> {
    let mut ranges = layout.buffers.iter();
    let mut arrays = Vec::with_capacity(schema.fields().len());
    for (field, &nulls) in schema.fields().iter().zip(&layout.nulls) {
        let roles = buffer_roles(field.data_type());
        let buffers = ranges
            .by_ref()
            .take(roles.len())
            .zip(roles)
            .map(|(range, role)| {
                let raw_max = role.raw_bytes_max(layout.rows, *values_left);
                let kind = layout.compression;
                let buffer = read_buffer(section, file, range.clone(), kind, raw_max)?;
                if *role == BufferRole::Values && kind != BodyKind::None {
                    *values_left = values_left.saturating_sub(buffer.len() as u64);
                }
                Ok(role.without_padding(buffer, layout.rows))
            })
            .collect::<Result<Vec<_>>>()?;
        let array = build_array(field.data_type(), layout.rows, nulls, buffers, Validation::Full)
            .map_err(|e| e.within(format!("{} column {:?}", file.name(), field.name())))?;
        arrays.push(array);
    }
    let rows = usize::try_from(layout.rows).map_err(|_| Error::corrupt("too many rows"))?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(SchemaRef::clone(schema), arrays, &options)
        .map_err(|e| Error::corrupt(format!("{}: {e}; rebuild the cache", file.name())))
}

/// One buffer of a batch: shared with the mapping, read or decompressed to at most `raw_max`
/// bytes.
pub(super) fn read_buffer(
    section: Section<'_>,
    file: &VerifiedFile,
    range: Range<u64>,
    kind: BodyKind,
    raw_max: u64,
) -> Result<Buffer> {
    if !file.is_verified(&range) {
        file.advise_willneed(&range);
    }
    if kind == BodyKind::None {
        return file.buffer(section, range);
    }
    let start = range.start;
    let raw_max = raw_max.min(kind.algo().raw_bytes_max(range.end.saturating_sub(start)));
    let stored = file.read(section, range)?;
    decompress_buffer(&stored, kind, raw_max)
        .map(Buffer::from_vec)
        .map_err(|e| e.within(format!("{} buffer at byte {start}", file.name())))
}

/// What a buffer of a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferRole {
    Validity,
    Offsets,
    /// One value of at most 8 bytes a row.
    Fixed,
    Values,
}

impl BufferRole {
    fn raw_bytes_max(self, rows: u64, values_left: u64) -> u64 {
        // Other writers pad buffers to 64 bytes before they compress them.
        let padded = |bytes: u64| bytes.saturating_add(64);
        match self {
            Self::Validity => padded(rows.div_ceil(8)),
            Self::Offsets => padded(rows.saturating_add(1).saturating_mul(8)),
            Self::Fixed => padded(rows.saturating_mul(8)),
            Self::Values => padded(values_left),
        }
    }

    /// Arrow panics on an offsets buffer that is no multiple of its width.
    fn without_padding(self, buffer: Buffer, rows: u64) -> Buffer {
        let needed = rows.saturating_add(1).saturating_mul(8);
        match usize::try_from(needed) {
            Ok(needed) if self == Self::Offsets && buffer.len() > needed => {
                buffer.slice_with_length(0, needed)
            }
            _ => buffer,
        }
    }
}

/// The buffers of a column of this type, in file order.
pub(super) fn buffer_roles(data_type: &DataType) -> &'static [BufferRole] {
    match data_type {
        DataType::Null => &[],
        DataType::LargeUtf8 | DataType::LargeBinary => {
            &[BufferRole::Validity, BufferRole::Offsets, BufferRole::Values]
        }
        _ => &[BufferRole::Validity, BufferRole::Fixed],
    }
}
