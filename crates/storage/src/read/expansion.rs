//! How many bytes a compressed piece can stand for at most: a recorded length beyond that is a
//! lie, and refused before memory is taken for it. Knows nothing of files.

use crate::Error;
use crate::Kind;
use crate::format::codec::Algo;
use crate::format::ipc::BodyKind;

/// Most raw bytes of a payload frame of `stored_len` bytes.
pub(super) fn payload_bytes_max(algo: Algo, stored_len: u64) -> u64 {
    algo.raw_bytes_max(stored_len)
}

/// Most raw bytes of a compressed Arrow buffer of `stored_len` bytes.
pub(super) fn buffer_bytes_max(kind: BodyKind, stored_len: u64) -> u64 {
    kind.algo().raw_bytes_max(stored_len)
}

/// The error for memory that the system does not give.
#[cold]
pub(super) fn too_large(bytes: u64) -> Error {
    Error::new(
        Kind::Exhausted,
        format!("no memory for {bytes} bytes; ask for fewer samples at once or free some"),
    )
}
