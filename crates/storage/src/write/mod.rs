//! door (draft)
mod column;
mod ingest;
pub use ingest::{Cell, GroupLimits, Ingest, RowGroup};
