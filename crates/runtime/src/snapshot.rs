//! What an iterator keeps while tables come and go: one active table and its order.
//! Immutable; the order is worked out at first use.

use std::sync::{Arc, OnceLock};

use dataset_rt_sampler::Mode;
use dataset_rt_storage::Result;
use dataset_rt_storage::store::guarded;

use crate::active::ActiveTable;
use crate::block::FetcherShelf;
use crate::plan::Plan;

/// An active table together with its order.
pub struct Snapshot {
    table: ActiveTable,
    mode: Mode,
    seed: u64,
    plan: OnceLock<Result<Plan>>,
    fetchers: Arc<FetcherShelf>,
}

impl Snapshot {
    /// Keeps `table`; nothing O(rows) happens before the first position is asked for.
    pub fn new(table: ActiveTable, mode: Mode, seed: u64, fetchers: Arc<FetcherShelf>) -> Self {
        Self { table, mode, seed, plan: OnceLock::new(), fetchers }
    }

    /// The table.
    pub fn table(&self) -> &ActiveTable {
        &self.table
    }

    /// The order of the table.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self) -> Result<&Plan> {
        let make = || guarded(|_| Plan::new(&self.table, self.mode, self.seed));
        let plan = self.plan.get_or_init(make);
        plan.as_ref().map_err(Clone::clone)
    }

    /// Scratch shared by everybody who fetches for this dataset.
    pub fn fetchers(&self) -> &Arc<FetcherShelf> {
        &self.fetchers
    }
}
