//! Standard LZ4 frames with independent blocks and without checksums (digests cover the bytes).
//! Knows nothing of payloads. Reads only frames of this form, straight into the final buffer:
//! the general decoder of `lz4_flex` allocates its own buffers for every frame.
//!
//! Source: LZ4 Frame Format Description 1.6.x.

use lz4_flex::block::{
    CompressTable, DecompressError, compress_into_with_table, decompress_into,
    get_maximum_output_size,
};

use super::frame;
use crate::{Error, Result};

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
/// Version 1, independent blocks, nothing optional.
const FLAGS: u8 = 0x60;
const HEADER_BYTES: usize = 7;
const END_MARK: [u8; 4] = [0; 4];
/// Set in a block's length when its bytes are stored raw.
const STORED_RAW: u32 = 1 << 31;
/// Block descriptor byte, its header checksum, and the largest block it allows. The checksum is
/// the second byte of XXH32 over flags and descriptor, a constant for each of the four.
const CLASSES: [(u8, u8, usize); 4] =
    [(0x40, 0x82, 1 << 16), (0x50, 0xfb, 1 << 18), (0x60, 0x51, 1 << 20), (0x70, 0x73, 1 << 22)];
/// From this length on `lz4_flex` needs its table of 32-bit positions.
const SMALL_TABLE_BYTES: usize = u16::MAX as usize;

/// Encoder with reusable tables.
pub struct Lz4Encoder {
    // Two tables: with one, `lz4_flex` widens it at the first long block and keeps it wide, and
    // the bytes of later short blocks would depend on what this thread compressed before.
    small: CompressTable,
    large: CompressTable,
    scratch: Vec<u8>,
}

impl Lz4Encoder {
    /// A fresh encoder.
    pub fn new() -> Self {
        Self { small: CompressTable::small(), large: CompressTable::large(), scratch: Vec::new() }
    }

    /// Appends the frame of `raw` to `out`.
    pub fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let fitting = CLASSES.iter().find(|class| raw.len() <= class.2);
        let (descriptor, checksum, block_max) = *fitting.unwrap_or(&CLASSES[3]);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[FLAGS, descriptor, checksum]);
        for block in raw.chunks(block_max) {
            self.encode_block(block, out)?;
        }
        out.extend_from_slice(&END_MARK);
        Ok(())
    }

    fn encode_block(&mut self, block: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let room = get_maximum_output_size(block.len());
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let is_small = block.len() < SMALL_TABLE_BYTES;
        let table = if is_small { &mut self.small } else { &mut self.large };
        let written = compress_into_with_table(block, &mut self.scratch, table)
            .map_err(|error| Error::internal(format!("lz4 refused a block: {error}")))?;
        match self.scratch.get(..written) {
            Some(compressed) if written < block.len() => {
                out.extend_from_slice(&(written as u32).to_le_bytes());
                out.extend_from_slice(compressed);
            }
            _ => {
                out.extend_from_slice(&(block.len() as u32 | STORED_RAW).to_le_bytes());
                out.extend_from_slice(block);
            }
        }
        Ok(())
    }
}

/// Fills `out` exactly with the contents of `frame`.
pub fn decode(frame: &[u8], out: &mut [u8]) -> Result<()> {
    let mut blocks = Blocks::new(frame)?;
    let mut rest = out;
    while !rest.is_empty() {
        let block_len = rest.len().min(blocks.block_max);
        let (target, behind) = rest.split_at_mut(block_len);
        blocks.decode_next(target)?;
        rest = behind;
    }
    blocks.finish()
}

/// The same into an empty vector that grows with the blocks found, so that a short frame cannot
/// make us touch more memory than it fills.
pub fn decode_to_vec(frame: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<()> {
    let mut blocks = Blocks::new(frame)?;
    out.clear();
    while out.len() < raw_len {
        let start = out.len();
        out.resize(start + (raw_len - start).min(blocks.block_max), 0);
        blocks.decode_next(out.get_mut(start..).unwrap_or_default())?;
    }
    blocks.finish()
}

/// Bytes that `frame` holds. Every block but the last is full; that one is decoded to learn it.
pub fn raw_len(frame: &[u8]) -> Result<u64> {
    let mut blocks = Blocks::new(frame)?;
    let mut full = 0_u64;
    while let Some((word, block)) = blocks.take_next()? {
        if blocks.rest.len() > END_MARK.len() {
            full += blocks.block_max as u64;
        } else if word & STORED_RAW != 0 {
            full += block.len() as u64;
        } else {
            let mut last = frame::reserve(blocks.block_max)?;
            last.resize(blocks.block_max, 0);
            full += decompress_into(block, &mut last).map_err(damaged)? as u64;
        }
    }
    Ok(full)
}

/// Walks the blocks of one frame.
struct Blocks<'a> {
    rest: &'a [u8],
    block_max: usize,
}

impl<'a> Blocks<'a> {
    fn new(frame: &'a [u8]) -> Result<Self> {
        let header = frame.split_first_chunk::<HEADER_BYTES>();
        let block_max = header.and_then(|(header, _)| {
            CLASSES.iter().find_map(|(descriptor, checksum, block_max)| {
                let [a, b, c, d] = MAGIC;
                (*header == [a, b, c, d, FLAGS, *descriptor, *checksum]).then_some(*block_max)
            })
        });
        match (header, block_max) {
            (Some((_, rest)), Some(block_max)) => Ok(Self { rest, block_max }),
            _ => Err(Error::corrupt("lz4 frame does not begin with a header of this format")),
        }
    }

    /// Length word and bytes of the next block; `None` at the end mark.
    fn take_next(&mut self) -> Result<Option<(u32, &'a [u8])>> {
        let short = || Error::corrupt("lz4 frame ends within a block");
        let (word, rest) = self.rest.split_first_chunk::<4>().ok_or_else(short)?;
        if *word == END_MARK {
            return Ok(None);
        }
        let word = u32::from_le_bytes(*word);
        let len = (word & !STORED_RAW) as usize;
        let (block, rest) = rest.split_at_checked(len).ok_or_else(short)?;
        self.rest = rest;
        Ok(Some((word, block)))
    }

    /// Fills `target` exactly from the next block.
    fn decode_next(&mut self, target: &mut [u8]) -> Result<()> {
        let (word, block) = self
            .take_next()?
            .ok_or_else(|| Error::corrupt("lz4 frame ends before its contents do"))?;
        let filled = if word & STORED_RAW != 0 {
            if block.len() == target.len() {
                target.copy_from_slice(block);
            }
            block.len()
        } else {
            decompress_into(block, target).map_err(damaged)?
        };
        if filled != target.len() {
            return Err(Error::corrupt(format!(
                "lz4 block holds {filled} bytes; expected {}",
                target.len()
            )));
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        if self.rest != END_MARK {
            return Err(Error::corrupt("lz4 frame does not end where its contents do"));
        }
        Ok(())
    }
}

fn damaged(error: DecompressError) -> Error {
    Error::corrupt(format!("lz4 block is damaged: {error}"))
}
