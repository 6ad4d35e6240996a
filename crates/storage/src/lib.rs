//! Storage of immutable caches: the format, where bytes live, the writer and the reader.
//!
//! ```text
//! format   what bytes mean; no file, clock or thread
//!   ^
//! store    where bytes live; the only user of the file system
//!   ^ ^
//!   |  \
//! write  read      neither knows the other
//!   ^
//! repair           what is left of a damaged cache
//! ```
//! Nothing here knows epochs, ranks, seeds or Python: positions go in, rows come out.

pub mod absent;
mod error;
pub mod format;
pub mod read;
pub mod repair;
pub mod store;
pub mod write;

pub use error::{Error, Kind, Result};
