//! Compresses and decompresses one payload at a time, with state reused per thread.
//! Knows nothing of shards or samples.

use super::compression::{Algo, Compression};
use super::frame::{Decoder, Encoder, no_memory};
use crate::{Error, Result};

/// Turns payloads into the bytes stored in the payload column. One per thread; the bytes do not
/// depend on what was compressed before.
pub struct Compressor {
    encoder: Option<Encoder>,
}

impl Compressor {
    /// A compressor for scope `"payload"`; for other scopes payloads stay as they are.
    ///
    /// # Errors
    /// `InvalidInput` if the choices do not fit together.
    pub fn new(compression: &Compression, dictionary: Option<&[u8]>) -> Result<Self> {
        compression.validate()?;
        check_dictionary(compression, dictionary)?;
        let encoder = match compression.algo {
            _ if !compression.is_per_payload() => None,
            Algo::None => None,
            Algo::Lz4 => Some(Encoder::lz4()),
            Algo::Zstd => Some(Encoder::zstd(compression.zstd_level(), dictionary)?),
        };
        Ok(Self { encoder })
    }

    /// Appends the stored form of `raw` to `out`: one standard frame, or `raw` itself without
    /// compression.
    ///
    /// # Errors
    /// `Internal` if the compressor fails.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match &mut self.encoder {
            Some(encoder) => encoder.encode(raw, out),
            None => {
                out.extend_from_slice(raw);
                Ok(())
            }
        }
    }
}

/// Turns stored payloads back. One per thread.
pub struct Decompressor {
    decoder: Option<Decoder>,
}

impl Decompressor {
    /// The inverse of [`Compressor::new`].
    ///
    /// # Errors
    /// `InvalidInput` if the choices do not fit together, `Corrupt` if zstd refuses the
    /// dictionary.
    pub fn new(compression: &Compression, dictionary: Option<&[u8]>) -> Result<Self> {
        compression.validate()?;
        check_dictionary(compression, dictionary)?;
        let decoder = match compression.algo {
            _ if !compression.is_per_payload() => None,
            Algo::None => None,
            Algo::Lz4 => Some(Decoder::lz4()),
            Algo::Zstd => Some(Decoder::zstd(dictionary)?),
        };
        Ok(Self { decoder })
    }

    /// Fills `out`, whose length is the recorded raw length, with the payload stored as `frame`.
    /// Allocates nothing that depends on `frame`. What `out` holds after an error is undefined.
    ///
    /// # Errors
    /// `Corrupt` if `frame` is damaged or holds any other number of bytes.
    pub fn decompress(&mut self, frame: &[u8], out: &mut [u8]) -> Result<()> {
        match &mut self.decoder {
            Some(decoder) => decoder.decode(frame, out),
            None if frame.len() == out.len() => {
                out.copy_from_slice(frame);
                Ok(())
            }
            None => Err(Error::corrupt(format!(
                "payload has {} bytes; expected {}",
                frame.len(),
                out.len()
            ))),
        }
    }
}

impl Decompressor {
    /// Bytes that `frame` says it holds; its own length without compression.
    ///
    /// # Errors
    /// `Corrupt` if it is no frame, or says more than a payload may hold.
    pub fn raw_len(&self, frame: &[u8]) -> Result<usize> {
        match &self.decoder {
            Some(decoder) if !frame.is_empty() => decoder.raw_len(frame),
            _ => Ok(frame.len()),
        }
    }

    /// Appends the payload stored as `frame`, whose length nothing but the frame records, to
    /// `out`: for frames whose digest was checked.
    ///
    /// # Errors
    /// `Corrupt` if `frame` is damaged or holds more than a payload may, `Exhausted` without
    /// memory.
    pub fn append(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match &mut self.decoder {
            Some(decoder) => {
                let raw_len = decoder.raw_len(frame)?;
                let start = out.len();
                out.try_reserve(raw_len).map_err(|_| no_memory(raw_len))?;
                out.resize(start + raw_len, 0);
                decoder.decode(frame, out.get_mut(start..).unwrap_or_default())
            }
            None => {
                out.extend_from_slice(frame);
                Ok(())
            }
        }
    }
}

fn check_dictionary(compression: &Compression, dictionary: Option<&[u8]>) -> Result<()> {
    if dictionary.is_some() && !(compression.is_per_payload() && compression.algo == Algo::Zstd) {
        return Err(Error::invalid("a dictionary needs algo \"zstd\" and scope \"payload\""));
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
