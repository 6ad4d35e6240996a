//! Passes over all rows without replacement; knows nothing of epochs, windows or who keeps tables.
//!
//! ```text
//! position k ── k div n ──► cycle ── CycleKeys ──► StreamKey ─┬─ feistel.rs: no table
//!               k mod n ──► offset ───────────────────────────┼─ shuffle.rs: a table of n rows
//! weights ── exponential.rs ──► sort keys ── sort.rs ─────────┴─ weighted.rs: a table of n rows
//! ```

mod error;
mod exponential;
mod feistel;
mod shuffle;
mod sort;
mod table;
mod weighted;

pub use error::CycleError;
pub(crate) use feistel::Feistel;
pub(crate) use shuffle::SHUFFLED_ROWS_MAX;
pub use table::{CycleSource, CycleTable};
pub use weighted::CycleWeights;

/// Rows whose random bits are made together.
pub(crate) const LANES: usize = 64;
