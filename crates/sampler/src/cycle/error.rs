//! Why the table of a cycle is not there; knows nothing of how it is made.

use std::error::Error;
use std::fmt;

/// Why a table of rows was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CycleError {
    /// The caller's check said not to go on.
    Stopped,
    /// Memory for the table, or for what it is made from, is missing.
    Memory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A table names rows by 32 bits.
    TooManyRows {
        /// Rows of the active table.
        rows: u64,
    },
}

impl fmt::Display for CycleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("working out an order of rows was stopped"),
            Self::Memory { bytes } => write!(
                f,
                "an order without replacement needs {bytes} bytes that this process cannot have; \
                 free memory or use sampling=\"permutation\" or \"multinomial\""
            ),
            Self::TooManyRows { rows } => write!(
                f,
                "sampling without replacement by weight: expected fewer than 2^32 rows, found \
                 {rows}; use sampling=\"permutation\" or \"multinomial\""
            ),
        }
    }
}

impl Error for CycleError {}

/// An empty vector with room for `len` values.
///
/// # Errors
/// [`CycleError::Memory`] when there is no such room.
pub(super) fn with_room<T>(len: usize) -> Result<Vec<T>, CycleError> {
    let mut values = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    values.try_reserve_exact(len).map_err(|_| CycleError::Memory { bytes })?;
    Ok(values)
}
