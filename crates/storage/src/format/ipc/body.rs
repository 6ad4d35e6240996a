//! Arrow IPC body compression of one buffer, as other Arrow tools read and write it.
//! Knows nothing of batches or types.
//!
//! A compressed buffer is an 8-byte little-endian raw length and one frame; length -1 says that
//! the raw bytes follow because compressing did not make them smaller. No bytes stay no bytes.

use arrow_buffer::Buffer;

use crate::format::codec::{Algo, frame};
use crate::format::limits::PAYLOAD_BYTES_MAX;
use crate::{Error, Result};

pub(super) const PREFIX_BYTES: usize = 8;
const STORED_RAW: i64 = -1;

/// How the buffers of a body are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCompression {
    /// Buffers as they are: the only form that can be used without copying.
    None,
    /// One LZ4 frame a buffer.
    Lz4Frame,
    /// One zstd frame a buffer.
    Zstd {
        /// Compression level of zstd.
        level: i32,
    },
}

/// What a reader has to know of [`BodyCompression`]: frames carry no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// Buffers as they are.
    None,
    /// One LZ4 frame a buffer.
    Lz4Frame,
    /// One zstd frame a buffer.
    Zstd,
}

impl BodyCompression {
    /// The form without its level.
    pub fn kind(self) -> BodyKind {
        match self {
            Self::None => BodyKind::None,
            Self::Lz4Frame => BodyKind::Lz4Frame,
            Self::Zstd { .. } => BodyKind::Zstd,
        }
    }
}

impl BodyKind {
    /// The algorithm that both scopes of compression share.
    pub fn algo(self) -> Algo {
        match self {
            Self::None => Algo::None,
            Self::Lz4Frame => Algo::Lz4,
            Self::Zstd => Algo::Zstd,
        }
    }
}

/// Compresses the buffers of one batch, reusing state between them.
pub(super) struct BodyCompressor {
    encoder: Option<frame::Encoder>,
}

impl BodyCompressor {
    pub(super) fn new(compression: BodyCompression) -> Result<Self> {
        let encoder = match compression {
            BodyCompression::None => None,
            BodyCompression::Lz4Frame => Some(frame::Encoder::lz4()),
            BodyCompression::Zstd { level } => Some(frame::Encoder::zstd(level, None)?),
        };
        Ok(Self { encoder })
    }

    /// The form of `buffer` that goes into the file.
    pub(super) fn compress(&mut self, buffer: Buffer) -> Result<Buffer> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(buffer);
        };
        if buffer.is_empty() {
            return Ok(buffer);
        }
        if buffer.len() as u64 > PAYLOAD_BYTES_MAX {
            return Err(Error::unsupported(format!(
                "one column of a batch has {} bytes; expected at most {PAYLOAD_BYTES_MAX} with \
                 compression scope \"buffer\"; use scope \"payload\"",
                buffer.len()
            )));
        }
        let mut out = (buffer.len() as i64).to_le_bytes().to_vec();
        encoder.encode(&buffer, &mut out)?;
        if out.len() - PREFIX_BYTES >= buffer.len() {
            out.clear();
            out.extend_from_slice(&STORED_RAW.to_le_bytes());
            out.extend_from_slice(&buffer);
        }
        Ok(Buffer::from_vec(out))
    }
}

/// The raw bytes of one buffer of a body.
///
/// At most `raw_len_max` bytes are ever allocated, and never more than `2^31 - 1` or than a frame
/// of this length can stand for.
///
/// # Errors
/// `Corrupt` if the buffer is damaged or claims more than `raw_len_max` bytes, `Exhausted` if
/// there is no memory for it.
pub fn decompress_buffer(bytes: &[u8], kind: BodyKind, raw_len_max: u64) -> Result<Vec<u8>> {
    let raw_len_max = raw_len_max.min(PAYLOAD_BYTES_MAX);
    if kind == BodyKind::None || bytes.is_empty() {
        return copy_raw(bytes, raw_len_max);
    }
    let Some((prefix, frame)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Error::corrupt(format!(
            "compressed buffer has {} bytes; expected at least {PREFIX_BYTES}",
            bytes.len()
        )));
    };
    let raw_len = i64::from_le_bytes(*prefix);
    if raw_len == STORED_RAW {
        return copy_raw(frame, raw_len_max);
    }
    let raw_len_max = raw_len_max.min(kind.algo().raw_bytes_max(frame.len() as u64));
    let raw_len = u64::try_from(raw_len)
        .ok()
        .filter(|len| *len <= raw_len_max)
        .and_then(|len| usize::try_from(len).ok())
        .ok_or_else(|| {
            Error::corrupt(format!(
                "compressed buffer claims {raw_len} raw bytes; expected at most {raw_len_max}"
            ))
        })?;
    let mut out = frame::reserve(raw_len)?;
    let mut decoder = match kind {
        BodyKind::Lz4Frame => frame::Decoder::lz4(),
        _ => frame::Decoder::zstd(None)?,
    };
    decoder.decode_to_vec(frame, raw_len, &mut out)?;
    Ok(out)
}

fn copy_raw(bytes: &[u8], raw_len_max: u64) -> Result<Vec<u8>> {
    if bytes.len() as u64 > raw_len_max {
        return Err(Error::corrupt(format!(
            "buffer has {} bytes; expected at most {raw_len_max}",
            bytes.len()
        )));
    }
    let mut out = frame::reserve(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(out)
}
