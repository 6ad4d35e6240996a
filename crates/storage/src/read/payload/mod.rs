//! Payloads by place. Knows no rows and no metadata.
//!
//! ```text
//! fetch     places -> payloads: shared with the mapping, or in an arena
//! views     places -> the views of an Arrow column, and the buffers they look into
//! batches   compression scope "buffer"
//! fetcher   what a thread keeps between calls
//! ```

mod arena;
mod batches;
mod fetch;
mod fetcher;
mod views;

pub use fetch::Payload;
pub use fetcher::Fetcher;
pub use views::PayloadViews;
