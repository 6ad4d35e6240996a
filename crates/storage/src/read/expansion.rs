//! What is refused before memory is taken for it. Knows nothing of files.

use crate::{Error, Kind};

/// The error for memory that the system does not give.
#[cold]
pub(super) fn too_large(bytes: u64) -> Error {
    Error::new(
        Kind::Exhausted,
        format!("no memory for {bytes} bytes; ask for fewer samples at once or free some"),
    )
}
