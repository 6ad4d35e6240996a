//! Reading caches. Knows the format and the store, nothing of writing, order or tables.
//!
//! ```text
//! open              path -> Cache: the manifest, one stat a file
//! locate            row -> PayloadPlace, by the index
//! payload           places -> payloads, with a Fetcher per thread
//! gather            rows of one metadata column -> Arrow array
//! at_hand           one row of verified, mapped files, or nothing
//! metadata, shard   whole files -> record batches (columns)
//!    ^
//! file              opened on first use, verified block by block
//! ```

mod at_hand;
mod cache;
mod columns;
mod expansion;
mod file;
mod gather;
mod locate;
mod metadata;
mod open;
mod payload;
mod shard;
#[cfg(test)]
pub(crate) mod tests;

pub use at_hand::{Cell, PayloadAtHand, RowAtHand};
pub use cache::Cache;
pub use locate::PayloadPlace;
pub use open::OpenOptions;
pub use payload::{Fetcher, Payload, PayloadViews};
