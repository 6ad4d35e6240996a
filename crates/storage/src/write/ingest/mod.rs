//! Source rows become row groups. Knows no file and no compression.
//!
//! `cell` says what a value is and which column takes it, `rows` takes samples one by one,
//! `batches` takes Arrow record batches, in pieces whose size `lengths` tells; both end groups by
//! the same rule.

mod batches;
mod cell;
mod lengths;
mod rows;
#[cfg(test)]
mod tests;

pub use cell::Cell;
pub use rows::Ingest;
