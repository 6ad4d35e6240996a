//! From a dataset in one process to an equal one in another: everything a pickle carries, and the
//! table in memory that both share.
//!
//! ```text
//! Dataset ─► Handover: contents, cursor, number of the table ──── pickle ───► Dataset
//!      └──► memory: sections and their names, sealed ──── descriptor ────┘
//!             table   record batches as an Arrow IPC stream
//!             order   row map, thresholds and guide as plain numbers
//! ```
//! An untouched table needs no memory: it is in the caches.

mod dataset;
mod memory;
mod order;
mod table;

pub use dataset::{Handover, Received};
pub use table::write_table;

pub(crate) use dataset::HandedTable;
