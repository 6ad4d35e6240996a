//! `index.bin`: fixed-width records from sample to payload bytes. Derived data: rebuildable bit
//! for bit from the shards. Knows no file.

use super::limits::{FORMAT_VERSION, PAYLOAD_BYTES_MAX};
use crate::{Error, Result};

/// First bytes of `index.bin`.
pub const INDEX_MAGIC: [u8; 8] = *b"DRTINDEX";
/// Bytes before the first record.
pub const INDEX_HEADER_BYTES: u64 = 64;
/// Bytes of one record.
pub const INDEX_RECORD_BYTES: u64 = 16;

/// What the records point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// A byte range of the shard file.
    FileRange,
    /// A byte range of a batch's payload buffer after decompression (`scope = "buffer"`).
    BatchRange,
}

impl IndexKind {
    fn code(self) -> u64 {
        match self {
            Self::FileRange => 0,
            Self::BatchRange => 1,
        }
    }
}

/// Where one payload lies. The shard is known from the sample's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexRecord {
    /// `stored_len` bytes at `offset` of the shard file, `raw_len` bytes once decompressed.
    FileRange {
        /// Absolute byte offset in the shard file.
        offset: u64,
        /// Bytes in the file.
        stored_len: u32,
        /// Bytes of the payload.
        raw_len: u32,
    },
    /// `raw_len` bytes at `offset` of the decompressed payload buffer of record batch `batch`.
    BatchRange {
        /// Byte offset in the decompressed buffer.
        offset: u64,
        /// Record batch within the shard.
        batch: u32,
        /// Bytes of the payload.
        raw_len: u32,
    },
}

impl IndexRecord {
    /// The 16 bytes of the record.
    pub fn encode(self) -> [u8; INDEX_RECORD_BYTES as usize] {
        let (offset, second, raw_len) = match self {
            Self::FileRange { offset, stored_len, raw_len } => (offset, stored_len, raw_len),
            Self::BatchRange { offset, batch, raw_len } => (offset, batch, raw_len),
        };
        let mut bytes = [0; INDEX_RECORD_BYTES as usize];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&second.to_le_bytes());
        bytes[12..].copy_from_slice(&raw_len.to_le_bytes());
        bytes
    }

    /// Reads a record of `kind`.
    ///
    /// # Errors
    /// `Corrupt` when the payload would be larger than any payload may be.
    pub fn decode(kind: IndexKind, bytes: [u8; INDEX_RECORD_BYTES as usize]) -> Result<Self> {
        let word = u128::from_le_bytes(bytes);
        let (offset, second, raw_len) = (word as u64, (word >> 64) as u32, (word >> 96) as u32);
        if u64::from(raw_len) > PAYLOAD_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "index record names a payload of {raw_len} bytes; expected at most \
                 {PAYLOAD_BYTES_MAX}; rebuild the index"
            )));
        }
        Ok(match kind {
            IndexKind::FileRange => Self::FileRange { offset, stored_len: second, raw_len },
            IndexKind::BatchRange => Self::BatchRange { offset, batch: second, raw_len },
        })
    }

    /// Bytes of the payload once decompressed.
    pub fn raw_len(&self) -> u32 {
        match *self {
            Self::FileRange { raw_len, .. } | Self::BatchRange { raw_len, .. } => raw_len,
        }
    }
}

/// The header of an index. The row count is not in it, so that records are written as they come.
pub fn encode_header(kind: IndexKind) -> [u8; INDEX_HEADER_BYTES as usize] {
    let mut header = [0; INDEX_HEADER_BYTES as usize];
    header[..8].copy_from_slice(&INDEX_MAGIC);
    header[8..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&INDEX_RECORD_BYTES.to_le_bytes());
    header[24..32].copy_from_slice(&kind.code().to_le_bytes());
    header
}

/// Size of an index of `rows` records; `None` when it overflows.
pub fn index_size_bytes(rows: u64) -> Option<u64> {
    rows.checked_mul(INDEX_RECORD_BYTES)?.checked_add(INDEX_HEADER_BYTES)
}

/// Byte offset of the record of `row`; the caller has checked `row` against the row count.
pub fn record_offset(row: u64) -> u64 {
    INDEX_HEADER_BYTES + row * INDEX_RECORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_their_bytes_are_fixed() {
        let direct = IndexRecord::FileRange { offset: 0x0102, stored_len: 7, raw_len: 9 };
        assert_eq!(direct.encode(), [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(IndexRecord::decode(IndexKind::FileRange, direct.encode()), Ok(direct));
        let batch = IndexRecord::BatchRange { offset: u64::MAX, batch: 3, raw_len: 0 };
        assert_eq!(IndexRecord::decode(IndexKind::BatchRange, batch.encode()), Ok(batch));
    }

    #[test]
    fn a_payload_past_the_limit_is_corrupt() {
        let record = IndexRecord::FileRange { offset: 0, stored_len: 0, raw_len: 1 << 31 };
        assert!(IndexRecord::decode(IndexKind::FileRange, record.encode()).is_err());
    }
}
