//! Standard zstd frames that state their content size. Knows nothing of payloads.

use zstd::bulk;
use zstd::zstd_safe::{compress_bound, find_frame_compressed_size, get_frame_content_size};

use super::frame::no_memory;
use crate::{Error, Result};

/// First bytes of a current zstd frame. Checked by us, so that decoders of formats from before
/// version 0.8, which the library may contain, are never reached by bytes from disk.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Encoder with reusable state.
pub struct ZstdEncoder {
    context: bulk::Compressor<'static>,
    scratch: Vec<u8>,
}

impl ZstdEncoder {
    /// An encoder at `level`, with the dictionary if there is one.
    pub fn new(level: i32, dictionary: Option<&[u8]>) -> Result<Self> {
        let context = bulk::Compressor::with_dictionary(level, dictionary.unwrap_or_default())
            .map_err(|error| Error::internal(format!("zstd cannot start: {error}")))?;
        Ok(Self { context, scratch: Vec::new() })
    }

    /// Appends the frame of `raw` to `out`.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.scratch.clear();
        let room = compress_bound(raw.len());
        self.scratch.try_reserve(room).map_err(|_| no_memory(room))?;
        self.context
            .compress_to_buffer(raw, &mut self.scratch)
            .map_err(|error| Error::internal(format!("zstd cannot compress: {error}")))?;
        out.try_reserve(self.scratch.len()).map_err(|_| no_memory(self.scratch.len()))?;
        out.extend_from_slice(&self.scratch);
        Ok(())
    }
}

/// Decoder with reusable state.
pub struct ZstdDecoder {
    context: bulk::Decompressor<'static>,
}

impl ZstdDecoder {
    /// A decoder, with the dictionary if there is one.
    pub fn new(dictionary: Option<&[u8]>) -> Result<Self> {
        let context = bulk::Decompressor::with_dictionary(dictionary.unwrap_or_default())
            .map_err(|error| Error::corrupt(format!("zstd refuses the dictionary: {error}")))?;
        Ok(Self { context })
    }

    /// Fills `out` exactly with the contents of `frame`.
    pub fn decode(&mut self, frame: &[u8], out: &mut [u8]) -> Result<()> {
        check_frame(frame, out.len())?;
        let written = self.context.decompress_to_buffer(frame, out).map_err(damaged)?;
        check_written(written, out.len())
    }

    /// The same into an empty vector, whose capacity is `raw_len` or more: nothing is written
    /// or touched before zstd does it.
    pub fn decode_to_vec(&mut self, frame: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<()> {
        check_frame(frame, raw_len)?;
        out.clear();
        let written = self.context.decompress_to_buffer(frame, out).map_err(damaged)?;
        check_written(written, raw_len)
    }
}

/// Bytes that `frame` states it holds.
pub fn raw_len(frame: &[u8]) -> Result<u64> {
    match get_frame_content_size(frame) {
        Ok(Some(stated)) if frame.starts_with(&MAGIC) => Ok(stated),
        _ => Err(Error::corrupt("payload is not a zstd frame that states its size")),
    }
}

/// One whole frame and nothing behind it, whose stated size is the expected one.
fn check_frame(frame: &[u8], raw_len: usize) -> Result<()> {
    if !frame.starts_with(&MAGIC) {
        return Err(Error::corrupt("payload does not begin with a zstd frame"));
    }
    if find_frame_compressed_size(frame) != Ok(frame.len()) {
        return Err(Error::corrupt("zstd frame is truncated or does not end with the payload"));
    }
    match get_frame_content_size(frame) {
        Ok(Some(stated)) if stated == raw_len as u64 => Ok(()),
        Ok(stated) => Err(Error::corrupt(format!(
            "zstd frame states {} bytes; expected {raw_len}",
            stated.map_or_else(|| "no".to_owned(), |bytes| bytes.to_string())
        ))),
        Err(_) => Err(Error::corrupt("zstd frame has a damaged header")),
    }
}

fn check_written(written: usize, raw_len: usize) -> Result<()> {
    if written != raw_len {
        return Err(Error::corrupt(format!(
            "zstd frame holds {written} bytes; expected {raw_len}"
        )));
    }
    Ok(())
}

fn damaged(error: std::io::Error) -> Error {
    Error::corrupt(format!("zstd frame is damaged: {error}"))
}
