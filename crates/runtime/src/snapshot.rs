//! What an iterator keeps while tables come and go: one active table and its order.
//! Immutable; the order is worked out at first use.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use dataset_rt_sampler::Mode;
use dataset_rt_storage::store::guarded;
use dataset_rt_storage::{Error, Result};

use crate::active::ActiveTable;
use crate::block::FetcherShelf;
use crate::cycles::HeldCycles;
use crate::handover::HandedTable;
use crate::plan::Plan;
use crate::turn::Turn;

/// An active table together with its order.
pub struct Snapshot {
    table: Arc<ActiveTable>,
    mode: Mode,
    seed: u64,
    plan: OnceLock<Plan>,
    turn: Turn,
    fetchers: Arc<FetcherShelf>,
    /// A user's table and its order in memory that other processes map.
    handed: OnceLock<HandedTable>,
}

impl Snapshot {
    /// Keeps `table`; nothing O(rows) happens before the first position is asked for.
    pub fn new(
        table: impl Into<Arc<ActiveTable>>,
        mode: Mode,
        seed: u64,
        fetchers: Arc<FetcherShelf>,
    ) -> Self {
        Self {
            table: table.into(),
            mode,
            seed,
            plan: OnceLock::new(),
            turn: Turn::default(),
            fetchers,
            handed: OnceLock::new(),
        }
    }

    /// The same table in another order.
    #[must_use]
    pub fn reordered(&self, mode: Mode, seed: u64) -> Self {
        Self::new(Arc::clone(&self.table), mode, seed, Arc::clone(&self.fetchers))
    }

    /// The same, for a table that lies in `handed`, with its order if that is there, too.
    pub fn with_handed(self, plan: Option<Plan>, handed: HandedTable) -> Self {
        let plan = plan.map_or_else(OnceLock::new, OnceLock::from);
        Self { plan, handed: OnceLock::from(handed), ..self }
    }

    /// The table and its order in memory that other processes map, written there at the first
    /// call; `None` for a table that no user replaced.
    ///
    /// # Errors
    /// As [`Snapshot::prepare`] and [`HandedTable::write`].
    pub fn handed(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Option<&HandedTable>> {
        let Some(table) = self.table.as_checked() else { return Ok(None) };
        if self.handed.get().is_none() {
            let plan = self.prepare(attend)?;
            let written = HandedTable::write(table, plan.parts(self.mode), attend)?;
            // Somebody else may be faster; never `get_or_init`, as in `keep`.
            let _ = self.handed.set(written);
        }
        Ok(self.handed.get())
    }

    /// The table.
    pub fn table(&self) -> &ActiveTable {
        &self.table
    }

    /// Whether both keep the very same table.
    #[must_use]
    pub fn has_table_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// The order of the table, worked out here if [`Snapshot::prepare`] did not do so before.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self) -> Result<&Plan> {
        match self.plan.get() {
            Some(plan) => Ok(plan),
            None => self.keep(self.make(&mut || Ok(()))?),
        }
    }

    /// The order of the table, if it is known already.
    pub fn plan_if_made(&self) -> Option<&Plan> {
        self.plan.get()
    }

    /// The order of the table, worked out by one thread while others wait for it. `attend` is
    /// called many times a second; its error ends the work or the wait.
    ///
    /// # Errors
    /// As [`Plan::new`], or what `attend` returned.
    pub fn prepare(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<&Plan> {
        let make = |attend: &mut dyn FnMut() -> Result<()>| self.keep(self.make(attend)?);
        self.turn.done_once(|| self.plan.get(), make, attend)
    }

    /// [`Snapshot::prepare`], and what the order needs for some stream positions: it stays in
    /// memory as long as what comes back is kept.
    ///
    /// # Errors
    /// As [`Plan::new`], `Exhausted`, or what `attend` returned.
    pub fn prepare_positions(
        &self,
        positions: Range<u64>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<HeldCycles> {
        self.prepare(attend)?.prepare(positions, attend)
    }

    /// The table may lie in mapped files.
    fn make(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Plan> {
        guarded(|_| Plan::new(&self.table, self.mode, self.seed, attend))
    }

    fn keep(&self, plan: Plan) -> Result<&Plan> {
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        let _ = self.plan.set(plan);
        self.plan.get().ok_or_else(|| Error::internal("a plan just set is not there"))
    }

    /// Whether the order is another one than that of the table.
    pub fn is_shuffled(&self) -> bool {
        self.mode != Mode::Sequential
    }

    /// Scratch shared by everybody who fetches for this dataset.
    pub fn fetchers(&self) -> &Arc<FetcherShelf> {
        &self.fetchers
    }
}
