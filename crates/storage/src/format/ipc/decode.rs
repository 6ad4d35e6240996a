//! Decodes footers and record batch headers of Arrow IPC files from bytes nobody vouches for.
//! Knows nothing of files or values; every number is checked before anything is sized by it.

use std::ops::Range;

use arrow_ipc as fb;
use arrow_schema::{DataType, Schema};
use flatbuffers::VerifierOptions;

use super::body::{BodyKind, PREFIX_BYTES};
use super::layout::{
    BatchPlace, CONTINUATION, END_OF_STREAM, HEAD_MAGIC, MESSAGE_PREFIX_BYTES, ROWS_MAX,
    TAIL_MAGIC, bitmap_bytes, buffer_count,
};
use super::schema::{decode_schema, is_file_type};
use crate::format::limits::COLUMNS_MAX;
use crate::{Error, Result};

/// How many bytes at the end of a file [`footer_range`] needs: footer length and mark.
pub const FOOTER_TAIL_BYTES: usize = 10;
/// Bytes at the start of a file that [`message_len`] needs: the mark and the prefix behind it.
pub const HEAD_BYTES_MIN: u64 = (HEAD_MAGIC.len() + MESSAGE_PREFIX_BYTES) as u64;
/// Every place in a file is a multiple of this; what mapped 8-byte values need.
const PLACE_ALIGNMENT: u64 = 8;

/// What the footer of a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct FileLayout {
    /// Columns and schema metadata.
    pub schema: Schema,
    /// The record batches in file order: inside the file, not overlapping.
    pub batches: Vec<BatchPlace>,
    /// Where the footer lies.
    pub footer: Range<u64>,
}

impl FileLayout {
    /// Bytes in front of the first batch: what [`decode_head`] takes.
    pub fn head_range(&self) -> Range<u64> {
        0..self.batches.first().map_or(self.end_mark_range().start, |batch| batch.offset)
    }

    /// The end-of-stream mark in front of the footer.
    pub fn end_mark_range(&self) -> Range<u64> {
        self.footer.start.saturating_sub(END_OF_STREAM.len() as u64)..self.footer.start
    }

    /// Whether head, batches, end mark and footer follow one another without a gap, so that no
    /// byte of the file is out of everyone's sight.
    pub fn is_contiguous(&self) -> bool {
        let ends = self.batches.iter().map(BatchPlace::end);
        let starts = self.batches.iter().skip(1).map(|batch| batch.offset);
        ends.eq(starts.chain((!self.batches.is_empty()).then(|| self.end_mark_range().start)))
    }
}

/// Where the footer of a file of `file_size` bytes lies, from the file's last 10 bytes.
///
/// # Errors
/// `Corrupt` if the file does not end like an Arrow IPC file.
pub fn footer_range(file_size: u64, tail10: &[u8]) -> Result<Range<u64>> {
    let Ok(&[a, b, c, d, ref magic @ ..]) = <&[u8; FOOTER_TAIL_BYTES]>::try_from(tail10) else {
        return Err(Error::corrupt(format!(
            "file of {file_size} bytes is too short for an Arrow file"
        )));
    };
    if *magic != TAIL_MAGIC {
        return Err(Error::corrupt("file does not end with the mark ARROW1"));
    }
    let footer_len = i32::from_le_bytes([a, b, c, d]);
    let end = file_size.checked_sub(FOOTER_TAIL_BYTES as u64);
    let range = u64::try_from(footer_len)
        .ok()
        .filter(|len| *len > 0)
        .zip(end)
        .and_then(|(len, end)| Some(end.checked_sub(len)?..end))
        .filter(|range| range.start >= HEAD_MAGIC.len() as u64);
    range.ok_or_else(|| {
        Error::corrupt(format!("footer of {footer_len} bytes does not fit a file of {file_size}"))
    })
}

/// Decodes the bytes of [`footer_range`].
///
/// # Errors
/// `Corrupt` if they are damaged, name a batch outside the file or use what caches do not.
pub fn decode_footer(bytes: &[u8], file_size: u64) -> Result<FileLayout> {
    let footer_end = file_size.checked_sub(FOOTER_TAIL_BYTES as u64);
    let footer = footer_end
        .and_then(|end| Some(end.checked_sub(bytes.len() as u64)?..end))
        .ok_or_else(|| Error::corrupt("footer is longer than its file"))?;
    let table = fb::root_as_footer_with_opts(&verifier(bytes), bytes)
        .map_err(|error| damaged("footer", &error))?;
    check_version(table.version())?;
    if table.dictionaries().is_some_and(|list| !list.is_empty()) {
        return Err(Error::corrupt("file has dictionary batches; caches have none"));
    }
    let schema = table.schema().ok_or_else(|| Error::corrupt("footer has no schema"))?;
    let schema = decode_schema(schema)?;
    let mut batches = Vec::new();
    let mut free_from = HEAD_MAGIC.len() as u64;
    for (number, block) in table.recordBatches().iter().flatten().enumerate() {
        let place = decode_block(block, free_from, footer.start).ok_or_else(|| {
            Error::corrupt(format!(
                "record batch {number} at {} of {} + {} bytes does not lie between {free_from} \
                 and {}, or is not aligned",
                block.offset(),
                block.metaDataLength(),
                block.bodyLength(),
                footer.start
            ))
        })?;
        free_from = place.end();
        batches.push(place);
    }
    Ok(FileLayout { schema, batches, footer })
}

fn decode_block(block: &fb::Block, free_from: u64, footer_start: u64) -> Option<BatchPlace> {
    let offset = u64::try_from(block.offset()).ok()?;
    let message_len = u32::try_from(block.metaDataLength()).ok()?;
    let body_len = u64::try_from(block.bodyLength()).ok()?;
    let end = offset.checked_add(u64::from(message_len))?.checked_add(body_len)?;
    let is_aligned = [offset, u64::from(message_len), body_len]
        .iter()
        .all(|number| number % PLACE_ALIGNMENT == 0);
    let is_inside = offset >= free_from && end <= footer_start;
    let has_prefix = message_len as usize > MESSAGE_PREFIX_BYTES;
    (is_aligned && is_inside && has_prefix).then_some(BatchPlace { offset, message_len, body_len })
}

/// What the header of one record batch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// Rows of the batch.
    pub rows: u64,
    /// Nulls of each column.
    pub nulls: Vec<u64>,
    /// Where in the file each buffer lies: columns in schema order, their buffers in the order
    /// validity, offsets, values (Null has none, fixed width no offsets). Ascending.
    pub buffers: Vec<Range<u64>>,
    /// How the buffers are compressed.
    pub compression: BodyKind,
}

impl BatchLayout {
    /// Which of `buffers` belong to column `column` of `schema`.
    pub fn column_buffers(&self, schema: &Schema, column: usize) -> &[Range<u64>] {
        let mut counts = schema.fields().iter().map(|field| buffer_count(field.data_type()));
        let start = counts.by_ref().take(column).sum::<usize>();
        let count = counts.next().unwrap_or_default();
        self.buffers.get(start..start.saturating_add(count)).unwrap_or_default()
    }
}

/// Decodes the message of the batch at `place`, which [`decode_footer`] has checked.
///
/// # Errors
/// `Corrupt` if the message is damaged, points outside its body, or cannot belong to `schema`.
pub fn decode_batch_header(
    message: &[u8],
    place: &BatchPlace,
    schema: &Schema,
) -> Result<BatchLayout> {
    if message.len() as u64 != u64::from(place.message_len) {
        return Err(Error::corrupt(format!(
            "message has {} bytes; expected {}",
            message.len(),
            place.message_len
        )));
    }
    let table = open_message(message, fb::MessageHeader::RecordBatch)?;
    if u64::try_from(table.bodyLength()) != Ok(place.body_len) {
        return Err(Error::corrupt(format!(
            "message states a body of {} bytes; the footer states {}",
            table.bodyLength(),
            place.body_len
        )));
    }
    let batch = table
        .header_as_record_batch()
        .ok_or_else(|| Error::corrupt("message has no record batch"))?;
    let rows = u64::try_from(batch.length())
        .ok()
        .filter(|rows| *rows <= ROWS_MAX)
        .ok_or_else(|| Error::corrupt(format!("record batch has {} rows", batch.length())))?;
    if batch.variadicBufferCounts().is_some_and(|counts| !counts.is_empty()) {
        return Err(Error::corrupt("record batch has view columns; caches have none"));
    }
    let compression = decode_compression(batch.compression())?;
    let nulls = decode_nulls(&batch, rows, schema)?;
    let buffers = decode_buffers(&batch, place)?;
    let layout = BatchLayout { rows, nulls, buffers, compression };
    check_buffers(&layout, schema)?;
    Ok(layout)
}

/// Bytes of a whole message, its prefix included, that begins with `prefix`; `None` where none does.
pub fn message_len(prefix: &[u8]) -> Option<u64> {
    let (mark, len) = prefix.split_first_chunk::<4>()?;
    let len = i32::from_le_bytes(*len.first_chunk()?);
    let len = u64::try_from(len).ok().filter(|len| *mark == CONTINUATION && *len > 0)?;
    len.checked_add(MESSAGE_PREFIX_BYTES as u64)
}

/// Bytes of the body behind the message of a record batch.
///
/// # Errors
/// `Corrupt` if it is no such message.
pub fn decode_body_len(message: &[u8]) -> Result<u64> {
    let len = open_message(message, fb::MessageHeader::RecordBatch)?.bodyLength();
    u64::try_from(len)
        .ok()
        .filter(|len| len % PLACE_ALIGNMENT == 0)
        .ok_or_else(|| Error::corrupt(format!("message states a body of {len} bytes")))
}

/// Checks the bytes of [`FileLayout::head_range`]: the mark and a message with this schema.
///
/// # Errors
/// `Corrupt` if they are damaged or the two schemas of the file differ.
pub fn decode_head(bytes: &[u8], schema: &Schema) -> Result<()> {
    let message = bytes
        .strip_prefix(&HEAD_MAGIC)
        .ok_or_else(|| Error::corrupt("file does not begin with the mark ARROW1"))?;
    let table = open_message(message, fb::MessageHeader::Schema)?;
    let head = table
        .header_as_schema()
        .ok_or_else(|| Error::corrupt("first message of the file has no schema"))?;
    if table.bodyLength() != 0 || decode_schema(head)? != *schema {
        return Err(Error::corrupt("schemas at the start and in the footer of the file differ"));
    }
    Ok(())
}

/// The verified flatbuffer of a whole message.
fn open_message(message: &[u8], expected: fb::MessageHeader) -> Result<fb::Message<'_>> {
    let prefix = message.split_first_chunk::<MESSAGE_PREFIX_BYTES>();
    let Some((&[m0, m1, m2, m3, l0, l1, l2, l3], bytes)) = prefix else {
        return Err(Error::corrupt("message is shorter than its prefix"));
    };
    let len = i32::from_le_bytes([l0, l1, l2, l3]);
    if [m0, m1, m2, m3] != CONTINUATION || usize::try_from(len) != Ok(bytes.len()) {
        return Err(Error::corrupt(format!(
            "message of {} bytes has no continuation mark or states {len} bytes",
            bytes.len()
        )));
    }
    let table = fb::root_as_message_with_opts(&verifier(bytes), bytes)
        .map_err(|error| damaged("message", &error))?;
    check_version(table.version())?;
    if table.header_type() != expected {
        return Err(Error::corrupt(format!(
            "message is {:?}; expected {expected:?}",
            table.header_type()
        )));
    }
    Ok(table)
}

fn decode_compression(compression: Option<fb::BodyCompression<'_>>) -> Result<BodyKind> {
    let Some(compression) = compression else {
        return Ok(BodyKind::None);
    };
    match (compression.method(), compression.codec()) {
        (fb::BodyCompressionMethod::BUFFER, fb::CompressionType::LZ4_FRAME) => {
            Ok(BodyKind::Lz4Frame)
        }
        (fb::BodyCompressionMethod::BUFFER, fb::CompressionType::ZSTD) => Ok(BodyKind::Zstd),
        (method, codec) => Err(Error::corrupt(format!(
            "record batch is compressed by {codec:?} with {method:?}; neither is known"
        ))),
    }
}

fn decode_nulls(batch: &fb::RecordBatch<'_>, rows: u64, schema: &Schema) -> Result<Vec<u64>> {
    let fields = schema.fields();
    let count = batch.nodes().map_or(0, |nodes| nodes.len());
    if count != fields.len() {
        return Err(Error::corrupt(format!(
            "record batch has {count} columns; the schema has {}",
            fields.len()
        )));
    }
    let nodes = batch.nodes().into_iter().flatten();
    let decode = |(node, field): (&fb::FieldNode, &arrow_schema::FieldRef)| {
        let nulls = u64::try_from(node.null_count()).ok().filter(|nulls| *nulls <= rows);
        let nulls = nulls.filter(|_| u64::try_from(node.length()) == Ok(rows));
        let nulls = nulls.filter(|nulls| match field.data_type() {
            DataType::Null => *nulls == rows,
            _ => *nulls == 0 || field.is_nullable(),
        });
        nulls.ok_or_else(|| {
            Error::corrupt(format!(
                "column {:?} states {} rows with {} nulls in a batch of {rows} rows{}",
                field.name(),
                node.length(),
                node.null_count(),
                if field.is_nullable() { "" } else { "; it allows no nulls" }
            ))
        })
    };
    nodes.zip(fields).map(decode).collect()
}

fn decode_buffers(batch: &fb::RecordBatch<'_>, place: &BatchPlace) -> Result<Vec<Range<u64>>> {
    let mut buffers = Vec::with_capacity(batch.buffers().map_or(0, |buffers| buffers.len()));
    let mut free_from = 0_u64;
    for (number, buffer) in batch.buffers().iter().flatten().enumerate() {
        let range = u64::try_from(buffer.offset())
            .ok()
            .zip(u64::try_from(buffer.length()).ok())
            .and_then(|(start, len)| Some(start..start.checked_add(len)?))
            .filter(|range| range.start >= free_from && range.end <= place.body_len)
            .filter(|range| range.start % PLACE_ALIGNMENT == 0);
        let range = range.ok_or_else(|| {
            Error::corrupt(format!(
                "buffer {number} at {} of {} bytes does not lie between {free_from} and {} of its \
                 body, or is not aligned",
                buffer.offset(),
                buffer.length(),
                place.body_len
            ))
        })?;
        free_from = range.end;
        // Both ends are within the body, whose end `decode_footer` found inside the file.
        let start = place.body_start();
        buffers.push(start.saturating_add(range.start)..start.saturating_add(range.end));
    }
    Ok(buffers)
}

/// Number and, where they are not compressed, sizes of all buffers.
fn check_buffers(layout: &BatchLayout, schema: &Schema) -> Result<()> {
    let expected: usize = schema.fields().iter().map(|field| buffer_count(field.data_type())).sum();
    if layout.buffers.len() != expected {
        return Err(Error::corrupt(format!(
            "record batch has {} buffers; its schema needs {expected}",
            layout.buffers.len()
        )));
    }
    let rows = usize::try_from(layout.rows).map_err(|_| Error::corrupt("too many rows"))?;
    let mut buffers = layout.buffers.iter();
    for (field, nulls) in schema.fields().iter().zip(&layout.nulls) {
        let data_type = field.data_type();
        for (role, buffer) in buffers.by_ref().take(buffer_count(data_type)).enumerate() {
            let len = buffer.end - buffer.start;
            let needed = buffer_bytes_min(data_type, role, rows, *nulls)
                .ok_or_else(|| Error::corrupt(format!("type {data_type} is not stored")))?;
            let frame = len.saturating_sub(PREFIX_BYTES as u64);
            let is_sufficient = match layout.compression {
                BodyKind::None => len >= needed as u64,
                _ if len == 0 => needed == 0,
                kind => frame > 0 && kind.algo().raw_bytes_max(frame) >= needed as u64,
            };
            if !is_sufficient {
                return Err(Error::corrupt(format!(
                    "buffer {role} of column {:?} has {len} bytes; {rows} rows need {needed}",
                    field.name()
                )));
            }
        }
    }
    Ok(())
}

/// The fewest raw bytes of buffer `role` of a column: what the rows need to be read.
pub(super) fn buffer_bytes_min(
    data_type: &DataType,
    role: usize,
    rows: usize,
    nulls: u64,
) -> Option<usize> {
    match (data_type, role) {
        (data_type, _) if !is_file_type(data_type) => None,
        (_, 0) if nulls == 0 => Some(0),
        (_, 0) | (DataType::Boolean, 1) => Some(bitmap_bytes(rows)),
        (DataType::LargeUtf8 | DataType::LargeBinary, 1) if rows == 0 => Some(0),
        (DataType::LargeUtf8 | DataType::LargeBinary, 1) => rows.checked_add(1)?.checked_mul(8),
        (DataType::LargeUtf8 | DataType::LargeBinary, _) => Some(0),
        (data_type, _) => data_type.primitive_width()?.checked_mul(rows),
    }
}

fn check_version(version: fb::MetadataVersion) -> Result<()> {
    if version != fb::MetadataVersion::V5 {
        return Err(Error::corrupt(format!("Arrow metadata is {version:?}; caches have V5")));
    }
    Ok(())
}

/// Limits of the flatbuffer verifier. Depth: footer, schema, list, field, type. Tables: field,
/// type and metadata pair each need more than 8 bytes. Apparent size: what shared parts of a
/// crafted buffer may unfold to.
fn verifier(bytes: &[u8]) -> VerifierOptions {
    VerifierOptions {
        max_depth: 8,
        max_tables: (4 * COLUMNS_MAX).min(bytes.len() / 8 + 1),
        max_apparent_size: bytes.len().saturating_mul(8).saturating_add(1024),
        ignore_missing_null_terminator: false,
    }
}

fn damaged(what: &str, error: &flatbuffers::InvalidFlatbuffer) -> Error {
    Error::corrupt(format!("{what} is damaged: {error}").lines().collect::<Vec<_>>().join(" "))
}
