//! Payloads by place. Knows no rows and no metadata.
//!
//! ```text
//! fetch     places -> payloads: shared with the mapping, or in an arena
//! batches   the same for compression scope "buffer"
//! fetcher   what a thread keeps between calls
//! ```

mod arena;
mod batches;
mod fetch;
mod fetcher;

pub use fetch::Payload;
pub use fetcher::Fetcher;
