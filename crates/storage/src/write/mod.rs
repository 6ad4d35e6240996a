//! Writes caches. Knows nothing of how they are read.
//!
//! ```text
//! source rows ─► Ingest ─► RowGroup ─► Encoder ─► EncodedGroup ─► CacheWriter ─► PublishedCache
//!                column                           files: shards, metadata_file         partial
//!                                                  journal: replay, stored_shard
//! ```
//! Each value can only be made by the stage before it: an unencoded group cannot be committed,
//! an uncommitted one not be published.

mod beside;
mod column;
mod commit;
mod encode;
mod files;
mod group;
mod hashed_file;
mod ingest;
mod journal;
mod leftovers;
mod metadata_file;
mod partial;
mod replay;
mod shards;
mod stored_shard;
#[cfg(test)]
mod tests;

pub(crate) use column::ColumnBuilder;
pub use commit::{
    CacheWriter, Continued, Dropped, Identity, PublishedCache, Unfinished, WriteOptions,
};
pub use encode::{EncodedGroup, Encoder};
pub use group::{GroupLimits, RowGroup};
pub(crate) use hashed_file::HashedFile;
pub use ingest::{Cell, Ingest};
pub use leftovers::{UnfinishedWrite, remove_unfinished_write, unfinished_writes};
pub(crate) use metadata_file::MetadataFile;
pub use partial::{WriteMode, begun_before_fork};
