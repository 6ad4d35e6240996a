//! Writes caches. Knows nothing of how they are read.
//!
//! ```text
//! source rows ─► Ingest ─► RowGroup ─► Encoder ─► EncodedGroup ─► CacheWriter ─► PublishedCache
//!                column                           shards, metadata_file, hashed_file   partial
//! ```
//! Each value can only be made by the stage before it: an unencoded group cannot be committed,
//! an uncommitted one not be published.

mod column;
mod commit;
mod encode;
mod group;
mod hashed_file;
mod ingest;
mod metadata_file;
mod partial;
mod shards;
#[cfg(test)]
mod tests;

pub use commit::{CacheWriter, Identity, PublishedCache, WriteOptions};
pub use encode::{EncodedGroup, Encoder};
pub use group::{GroupLimits, RowGroup};
pub use ingest::{Cell, Ingest};
pub use partial::{WriteMode, partial_path};
