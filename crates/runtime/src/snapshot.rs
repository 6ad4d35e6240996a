//! What an iterator keeps while tables come and go: one active table and its order.
//! Immutable; the order is worked out at first use.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dataset_rt_sampler::Mode;
use dataset_rt_storage::store::guarded;
use dataset_rt_storage::{Error, Result};

use crate::active::ActiveTable;
use crate::block::FetcherShelf;
use crate::fork_gate;
use crate::plan::Plan;

/// An active table together with its order.
pub struct Snapshot {
    table: ActiveTable,
    mode: Mode,
    seed: u64,
    plan: OnceLock<Plan>,
    /// Process of the thread that works the order out, if one does.
    builder: Mutex<Option<u32>>,
    built: Condvar,
    fetchers: Arc<FetcherShelf>,
}

impl Snapshot {
    /// Keeps `table`; nothing O(rows) happens before the first position is asked for.
    pub fn new(table: ActiveTable, mode: Mode, seed: u64, fetchers: Arc<FetcherShelf>) -> Self {
        Self {
            table,
            mode,
            seed,
            plan: OnceLock::new(),
            builder: Mutex::new(None),
            built: Condvar::new(),
            fetchers,
        }
    }

    /// The table.
    pub fn table(&self) -> &ActiveTable {
        &self.table
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
        loop {
            if let Some(plan) = self.plan.get() {
                return Ok(plan);
            }
            if fork_gate::is_forking() {
                // Whoever works it out may wait for the end of this thread's fork.
                return self.keep(self.make(attend)?);
            }
            if let Some(_building) = Building::begin(self) {
                if let Some(plan) = self.plan.get() {
                    return Ok(plan);
                }
                return self.keep(self.make(attend)?);
            }
            attend()?;
        }
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

/// How long to wait for another thread's plan between two looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(20);

/// The right to work out the order, held by one thread.
struct Building<'a> {
    snapshot: &'a Snapshot,
}

impl<'a> Building<'a> {
    /// Takes the right, or waits a moment for the thread that has it.
    fn begin(snapshot: &'a Snapshot) -> Option<Self> {
        let process = fork_gate::process();
        let mut builder = snapshot.builder.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread of the process that forked this one will never finish here.
        if *builder != Some(process) {
            *builder = Some(process);
            return Some(Self { snapshot });
        }
        drop(snapshot.built.wait_timeout(builder, WAIT_SLICE));
        None
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        *self.snapshot.builder.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.snapshot.built.notify_all();
    }
}
