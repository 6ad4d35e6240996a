//! Where things lie in an Arrow IPC file: fixed marks, padding and the place of a record batch.
//! Knows nothing of flatbuffers or values.

use std::ops::Range;

use arrow_schema::DataType;

use crate::format::limits::ALIGNMENT;

/// First bytes of a file: the mark and two bytes of padding.
pub(super) const HEAD_MAGIC: [u8; 8] = *b"ARROW1\0\0";
/// Last bytes of a file.
pub(super) const TAIL_MAGIC: [u8; 6] = *b"ARROW1";
/// Starts every message since version 0.15 of the format.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Continuation mark and length in front of every message.
pub(super) const MESSAGE_PREFIX_BYTES: usize = 8;
/// Marks the end of the stream of messages: a message of length zero.
pub(super) const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Most rows of one record batch: other readers count rows of a batch in `i32`.
pub(super) const ROWS_MAX: u64 = i32::MAX as u64;

/// Zeros to take padding from.
pub(super) static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// Bytes of padding after `bytes` bytes.
pub(super) fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % ALIGNMENT
}

/// Bytes of a bitmap of `rows` bits.
pub(super) fn bitmap_bytes(rows: usize) -> usize {
    rows.div_ceil(8)
}

/// How many buffers a column of this type has in a file.
pub(super) fn buffer_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Null => 0,
        DataType::LargeUtf8 | DataType::LargeBinary => 3,
        _ => 2,
    }
}

/// Place of one record batch in a file, as its footer states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// Where the message begins, in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the message with its prefix and padding (`metaDataLength`).
    pub message_len: u32,
    /// Bytes of the body behind the message.
    pub body_len: u64,
}

impl BatchPlace {
    /// The message's bytes in the file. Only for places from [`super::decode_footer`] or of a
    /// file being written: their ends are known not to overflow.
    pub fn message_range(&self) -> Range<u64> {
        self.offset..self.body_start()
    }

    /// The body's bytes in the file.
    pub fn body_range(&self) -> Range<u64> {
        self.body_start()..self.end()
    }

    /// Where the body begins.
    pub fn body_start(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.message_len))
    }

    /// Where the batch ends.
    pub fn end(&self) -> u64 {
        self.body_start().saturating_add(self.body_len)
    }
}
