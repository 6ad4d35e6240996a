//! When a group of rows closes: decided by the rows alone, so that the same rows give the same
//! files. Knows no value or column.

use crate::format::codec::{Algo, Compression, Scope};
use crate::format::limits::{BATCH_BYTES, BATCH_ROWS, BUFFER_SCOPE_BATCH_BYTES};

/// Most payload and column bytes that wait while a column has no type: this much, or one shard.
const HOLD_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Bytes counted for each row besides payload and columns: `sample_id` and the payload's offset.
pub(super) const ROW_COST_BYTES: u64 = 16;

/// Limits of row groups; each group becomes one record batch of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// A group holds at most this many payload and column bytes, or a single row.
    pub batch_bytes: u64,
    /// A group holds at most this many rows.
    pub batch_rows: usize,
    /// At most this many bytes wait for the type of a column in which every value was null.
    pub hold_bytes: u64,
}

impl GroupLimits {
    /// The limits for shards of at most `max_shard_bytes` bytes written with `compression`.
    pub fn new(max_shard_bytes: u64, compression: &Compression) -> Self {
        let batch_bytes = match (compression.algo, compression.scope) {
            (Algo::Lz4 | Algo::Zstd, Scope::Buffer) => BUFFER_SCOPE_BATCH_BYTES,
            _ => BATCH_BYTES,
        };
        Self {
            batch_bytes: batch_bytes.min(max_shard_bytes).max(1),
            batch_rows: BATCH_ROWS,
            hold_bytes: max_shard_bytes.min(HOLD_BYTES_MAX),
        }
    }

    /// Whether a group filled so far must close before a row with a payload of `payload_bytes`.
    pub(super) fn closes_before(&self, fill: GroupFill, payload_bytes: u64) -> bool {
        fill.rows > 0 && fill.bytes.saturating_add(payload_bytes) > self.batch_bytes
    }

    /// Whether a group filled so far takes no further row.
    pub(super) fn is_full(&self, fill: GroupFill) -> bool {
        fill.rows >= self.batch_rows || fill.bytes >= self.batch_bytes
    }
}

/// What is in the open group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupFill {
    pub(super) rows: usize,
    pub(super) bytes: u64,
}

impl GroupFill {
    pub(super) fn add(&mut self, row_bytes: u64) {
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(row_bytes);
    }
}
