//! Deterministic order of rows: keys, draws, streams, windows; no Arrow, file, clock or thread.
//!
//! ```text
//! cache_id, sample_id, weight ── TableDigester ──► TableDigest ┐
//!                                  seed, Mode, Purpose ────────┴► StreamKey ── Philox ──► bits(k)
//! weights ── WeightTable (integer inverse CDF) ─────────────────┐                           │
//!            CycleSource (an order of all rows a cycle) ────────┴───────► Order ◄───────────┘
//! Cursor ── claim ──► Window [start, start + len) ── Partition ──► Share of positions k ───► row_at(k)
//! ```
//!
//! An order is a pure function from a position `k` of one endless stream to a row of the active
//! table. Epochs, ranks, workers and resume are arithmetic on `k`. The rules, numbered S1 and up,
//! are in `docs/sampling.md`; comments here refer to them by number.

#![forbid(unsafe_code)]

mod cursor;
mod cycle;
mod digest;
mod key;
mod mode;
mod order;
mod philox;
mod share;
mod weights;

pub use cursor::{Cursor, CursorError, POSITION_LIMIT, Window};
pub use cycle::{CycleError, CycleSource, CycleTable, CycleWeights};
pub use digest::{RowKey, TableDigest, TableDigester};
pub use key::{CycleKeys, Purpose, StreamKey};
pub use mode::{Mode, SAMPLER_VERSION};
pub use order::{NO_ROW, Order};
pub use philox::philox4x32_10;
pub use share::{Batching, Partition, PartitionError, Share};
pub use weights::{
    SharedNumbers, WeightError, WeightParts, WeightProblem, WeightTable, WeightTableBuilder,
};
