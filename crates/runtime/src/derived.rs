//! A dataset made of another: the same open caches and table, other threads, order or share.

use std::sync::Arc;

use dataset_rt_sampler::{Mode, Partition};
use dataset_rt_storage::Result;

use crate::dataset::Dataset;
use crate::orders_before_fork;
use crate::pool::WorkerPool;

impl Dataset {
    /// A dataset of its own: table, position and epoch are those of now, threads, order and share
    /// those given.
    ///
    /// # Errors
    /// As [`Dataset::copied`].
    pub fn derived(
        &self,
        pool: Arc<WorkerPool>,
        mode: Mode,
        seed: u64,
        partition: Partition,
    ) -> Result<Self> {
        let mut copy = self.copied()?.of_rank(partition);
        if (mode, seed) != (copy.options.mode, copy.options.seed) {
            let mut state = copy.state();
            state.snapshot = Arc::new(state.snapshot.reordered(mode, seed));
            orders_before_fork::remember(&state.snapshot);
        }
        (copy.options.mode, copy.options.seed) = (mode, seed);
        copy.pool = pool;
        Ok(copy)
    }

    /// Whether no table was replaced since one of the two was copied from the other.
    ///
    /// # Errors
    /// As [`Dataset::copied`].
    pub fn has_table_of(&self, other: &Self) -> Result<bool> {
        Ok(self.snapshot()?.has_table_of(&*other.snapshot()?))
    }
}
