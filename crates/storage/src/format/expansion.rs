//! How many bytes a compressed piece can stand for at most: a recorded length beyond that is a
//! lie, and refused before memory is taken for it. Knows nothing of files.

use super::codec::Algo;
use super::ipc::BodyKind;

/// zstd: a block of four bytes (three of header, one repeated) can stand for 128 KiB.
const ZSTD_BYTES_PER_BYTE: u64 = 128 * 1024 / 4;
/// LZ4: each further byte of a match length adds 255.
const LZ4_BYTES_PER_BYTE: u64 = 255;

/// Most raw bytes of a payload frame of `stored_len` bytes.
pub fn payload_bytes_max(algo: Algo, stored_len: u64) -> u64 {
    match algo {
        Algo::None => stored_len,
        Algo::Lz4 => stored_len.saturating_mul(LZ4_BYTES_PER_BYTE),
        Algo::Zstd => stored_len.saturating_mul(ZSTD_BYTES_PER_BYTE),
    }
}

/// Most raw bytes of a compressed Arrow buffer of `stored_len` bytes.
pub fn buffer_bytes_max(kind: BodyKind, stored_len: u64) -> u64 {
    match kind {
        BodyKind::None => stored_len,
        BodyKind::Lz4Frame => stored_len.saturating_mul(LZ4_BYTES_PER_BYTE),
        BodyKind::Zstd => stored_len.saturating_mul(ZSTD_BYTES_PER_BYTE),
    }
}
