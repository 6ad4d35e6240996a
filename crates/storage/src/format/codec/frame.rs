//! One frame in, one frame out, for either algorithm. Knows nothing of payloads or buffers.

use super::lz4::{self, Lz4Encoder};
use super::zstandard::{self, ZstdDecoder, ZstdEncoder};
use crate::format::limits::PAYLOAD_BYTES_MAX;
use crate::{Error, Kind, Result};

/// Makes standard frames; one per thread, its tables are reused. The frame of given bytes never
/// depends on what was encoded before.
pub enum Encoder {
    /// LZ4 frames.
    Lz4(Lz4Encoder),
    /// zstd frames.
    Zstd(ZstdEncoder),
}

impl Encoder {
    /// An encoder of LZ4 frames.
    pub fn lz4() -> Self {
        Self::Lz4(Lz4Encoder::new())
    }

    /// An encoder of zstd frames.
    pub fn zstd(level: i32, dictionary: Option<&[u8]>) -> Result<Self> {
        ZstdEncoder::new(level, dictionary).map(Self::Zstd)
    }

    /// Appends the frame of `raw` to `out`.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Lz4(encoder) => encoder.encode(raw, out),
            Self::Zstd(encoder) => encoder.encode(raw, out),
        }
    }
}

/// Reads standard frames; one per thread.
pub enum Decoder {
    /// LZ4 frames; needs no state.
    Lz4,
    /// zstd frames.
    Zstd(ZstdDecoder),
}

impl Decoder {
    /// A decoder of LZ4 frames.
    pub fn lz4() -> Self {
        Self::Lz4
    }

    /// A decoder of zstd frames.
    pub fn zstd(dictionary: Option<&[u8]>) -> Result<Self> {
        ZstdDecoder::new(dictionary).map(Self::Zstd)
    }

    /// Bytes that `frame` says it holds, at most those of a payload.
    pub fn raw_len(&self, frame: &[u8]) -> Result<usize> {
        let raw_len = match self {
            Self::Lz4 => lz4::raw_len(frame)?,
            Self::Zstd(_) => zstandard::raw_len(frame)?,
        };
        match usize::try_from(raw_len) {
            Ok(len) if raw_len <= PAYLOAD_BYTES_MAX => Ok(len),
            _ => Err(Error::corrupt(format!(
                "frame states {raw_len} bytes; expected at most {PAYLOAD_BYTES_MAX}"
            ))),
        }
    }

    /// Fills `out` exactly with the contents of `frame`.
    pub fn decode(&mut self, frame: &[u8], out: &mut [u8]) -> Result<()> {
        match self {
            Self::Lz4 => lz4::decode(frame, out),
            Self::Zstd(decoder) => decoder.decode(frame, out),
        }
    }

    /// Puts exactly `raw_len` bytes into the empty `out`, whose capacity holds them.
    pub fn decode_to_vec(&mut self, frame: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Lz4 => lz4::decode_to_vec(frame, raw_len, out),
            Self::Zstd(decoder) => decoder.decode_to_vec(frame, raw_len, out),
        }
    }
}

/// An empty vector with room for `bytes` bytes; a refusal instead of an abort if there is none.
pub fn reserve(bytes: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(bytes).map_err(|_| no_memory(bytes))?;
    Ok(out)
}

/// There is no room for `bytes` bytes.
pub fn no_memory(bytes: usize) -> Error {
    Error::new(Kind::Exhausted, format!("no memory for {bytes} bytes; free some and retry"))
}
