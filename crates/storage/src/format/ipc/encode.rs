//! Encodes Arrow IPC files piece by piece: head, record batches, tail.
//! Knows nothing of where the pieces go, and copies no column that can be written as it is.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use arrow_ipc as fb;
use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_schema::{DataType, Schema};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use super::body::{BodyCompression, BodyCompressor, BodyKind};
use super::layout::{
    BatchPlace, CONTINUATION, END_OF_STREAM, HEAD_MAGIC, MESSAGE_PREFIX_BYTES, ROWS_MAX,
    TAIL_MAGIC, ZEROS, padding,
};
use super::normal::column_buffers;
use super::schema::check_schema;
use crate::{Error, Result};

/// One record batch, ready to be written at a file offset that is a multiple of 64.
#[derive(Clone, Debug)]
pub struct EncodedBatch {
    /// Rows of the batch.
    pub rows: u64,
    /// The message: prefix, flatbuffer, padding.
    pub message: Vec<u8>,
    /// The buffers of the body in order, some of them empty; each is followed by zeros up to a
    /// multiple of 64 bytes.
    pub body: Vec<Buffer>,
    /// Bytes of the body with all padding.
    pub body_len: u64,
    /// Where in the body each of the buffers lies, without padding; columns in schema order.
    pub buffer_ranges: Vec<Range<u64>>,
}

impl EncodedBatch {
    /// Everything to write, in order: the message, then buffers and their padding. None is empty.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let body = self.body.iter().flat_map(|buffer| {
            let zeros = ZEROS.get(..padding(buffer.len())).unwrap_or_default();
            [buffer.as_slice(), zeros]
        });
        std::iter::once(self.message.as_slice()).chain(body).filter(|piece| !piece.is_empty())
    }

    /// Bytes of message and body.
    pub fn size_bytes(&self) -> u64 {
        self.message.len() as u64 + self.body_len
    }

    /// The batch's place if it is written at `offset`.
    pub fn place_at(&self, offset: u64) -> BatchPlace {
        // `frame_message` has refused messages beyond `i32`.
        BatchPlace { offset, message_len: self.message.len() as u32, body_len: self.body_len }
    }
}

/// The first bytes of a file: its mark and the schema message. Their number is a multiple of 64.
///
/// # Errors
/// `Unsupported` for types that caches do not store.
pub fn file_head(schema: &Schema) -> Result<Vec<u8>> {
    check_schema(schema)?;
    let mut builder = FlatBufferBuilder::new();
    let header = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let header = header.as_union_value();
    let message = frame_message(&mut builder, fb::MessageHeader::Schema, header, 0, HEAD_MAGIC)?;
    Ok(message)
}

/// One record batch of `columns`, whose types are those of `schema`.
///
/// Slices are written as if they were whole arrays, values under nulls as zeros, so that equal
/// rows give equal bytes. Uncompressed columns are not copied unless that requires it.
///
/// # Errors
/// `InvalidInput` if columns and schema disagree, `Unsupported` for types that caches do not
/// store, more than 2^31 - 1 rows, or a buffer too large to compress.
pub fn encode_batch(
    schema: &Schema,
    columns: &[ArrayRef],
    compression: BodyCompression,
) -> Result<EncodedBatch> {
    check_schema(schema)?;
    let rows = check_columns(schema, columns)?;
    let mut compressor = BodyCompressor::new(compression)?;
    let mut nodes = Vec::with_capacity(columns.len());
    let mut buffers = Vec::with_capacity(3 * columns.len());
    let mut body = Vec::with_capacity(3 * columns.len());
    let mut buffer_ranges = Vec::with_capacity(3 * columns.len());
    let mut body_len = 0_u64;
    for (field, column) in schema.fields().iter().zip(columns) {
        let nulls = match column.data_type() {
            DataType::Null => column.len(),
            _ => column.null_count(),
        };
        nodes.push(fb::FieldNode::new(column.len() as i64, nulls as i64));
        for raw in column_buffers(column.as_ref()).map_err(|e| e.within(field.name()))? {
            let buffer = compressor.compress(raw).map_err(|e| e.within(field.name()))?;
            let len = buffer.len() as u64;
            buffers.push(fb::Buffer::new(body_len as i64, buffer.len() as i64));
            buffer_ranges.push(body_len..body_len + len);
            body_len += len + padding(buffer.len()) as u64;
            body.push(buffer);
        }
    }
    let message = batch_message(rows, &nodes, &buffers, compression.kind(), body_len)?;
    Ok(EncodedBatch { rows: rows as u64, message, body, body_len, buffer_ranges })
}

/// The last bytes of a file, from the end of the last batch (or of the head) on.
///
/// # Errors
/// `Unsupported` for types that caches do not store or a schema too large for a footer.
pub fn file_tail(schema: &Schema, batches: &[BatchPlace]) -> Result<Vec<u8>> {
    check_schema(schema)?;
    let mut builder = FlatBufferBuilder::new();
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let blocks = batches
        .iter()
        .map(|place| {
            let offset = i64::try_from(place.offset).ok()?;
            let message_len = i32::try_from(place.message_len).ok()?;
            Some(fb::Block::new(offset, message_len, i64::try_from(place.body_len).ok()?))
        })
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Error::internal("place of a batch exceeds what a footer can state"))?;
    let dictionaries = builder.create_vector::<fb::Block>(&[]);
    let blocks = builder.create_vector(&blocks);
    let mut footer = fb::FooterBuilder::new(&mut builder);
    footer.add_version(fb::MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(blocks);
    let footer = footer.finish();
    builder.finish(footer, None);
    let footer = builder.finished_data();
    let footer_len = i32::try_from(footer.len())
        .map_err(|_| Error::unsupported("footer of a file exceeds 2 GiB; use fewer columns"))?;
    let mut tail = END_OF_STREAM.to_vec();
    tail.extend_from_slice(footer);
    tail.extend_from_slice(&footer_len.to_le_bytes());
    tail.extend_from_slice(&TAIL_MAGIC);
    Ok(tail)
}

fn check_columns(schema: &Schema, columns: &[ArrayRef]) -> Result<usize> {
    if columns.len() != schema.fields().len() {
        return Err(Error::invalid(format!(
            "batch has {} columns; expected {}",
            columns.len(),
            schema.fields().len()
        )));
    }
    let rows = columns.first().map_or(0, |column| column.len());
    if rows as u64 > ROWS_MAX {
        return Err(Error::unsupported(format!(
            "batch has {rows} rows; expected at most {ROWS_MAX}"
        )));
    }
    for (field, column) in schema.fields().iter().zip(columns) {
        if column.len() != rows || column.data_type() != field.data_type() {
            return Err(Error::invalid(format!(
                "column {:?} has {} rows of type {}; expected {rows} of type {}",
                field.name(),
                column.len(),
                column.data_type(),
                field.data_type()
            )));
        }
        if !field.is_nullable() && column.null_count() > 0 {
            return Err(Error::invalid(format!(
                "column {:?} has {} nulls; its field allows none",
                field.name(),
                column.null_count()
            )));
        }
    }
    Ok(rows)
}

fn batch_message(
    rows: usize,
    nodes: &[fb::FieldNode],
    buffers: &[fb::Buffer],
    compression: BodyKind,
    body_len: u64,
) -> Result<Vec<u8>> {
    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(nodes);
    let buffers = builder.create_vector(buffers);
    let codec = match compression {
        BodyKind::None => None,
        BodyKind::Lz4Frame => Some(fb::CompressionType::LZ4_FRAME),
        BodyKind::Zstd => Some(fb::CompressionType::ZSTD),
    };
    let codec = codec.map(|codec| {
        let mut body = fb::BodyCompressionBuilder::new(&mut builder);
        body.add_method(fb::BodyCompressionMethod::BUFFER);
        body.add_codec(codec);
        body.finish()
    });
    let mut batch = fb::RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    if let Some(codec) = codec {
        batch.add_compression(codec);
    }
    let header = batch.finish().as_union_value();
    let body_len = i64::try_from(body_len)
        .map_err(|_| Error::unsupported("body of a batch exceeds what a message can state"))?;
    frame_message(&mut builder, fb::MessageHeader::RecordBatch, header, body_len, [])
}

/// The finished message behind `before`, padded so that the whole is a multiple of 64 bytes.
fn frame_message<const N: usize>(
    builder: &mut FlatBufferBuilder<'_>,
    header_type: fb::MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    body_len: i64,
    before: [u8; N],
) -> Result<Vec<u8>> {
    let mut message = fb::MessageBuilder::new(builder);
    message.add_version(fb::MetadataVersion::V5);
    message.add_header_type(header_type);
    message.add_bodyLength(body_len);
    message.add_header(header);
    let message = message.finish();
    builder.finish(message, None);
    let message = builder.finished_data();
    let padding = padding(N + MESSAGE_PREFIX_BYTES + message.len());
    let len = i32::try_from(message.len() + padding + MESSAGE_PREFIX_BYTES)
        .map_err(|_| Error::unsupported("message of a batch exceeds 2 GiB; use fewer columns"))?;
    let mut out = before.to_vec();
    out.extend_from_slice(&CONTINUATION);
    out.extend_from_slice(&(len - MESSAGE_PREFIX_BYTES as i32).to_le_bytes());
    out.extend_from_slice(message);
    out.resize(out.len() + padding, 0);
    Ok(out)
}
