//! Ranges of a sequence, loaded by the workers ahead of their consumer and handed out in order.
//! Knows neither what is loaded nor how far ahead to go.
//!
//! A slot is one range on its way. Whoever needs a slot that no worker has begun loads it, so
//! a busy, small or missing pool costs overlap, never progress.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dataset_rt_storage::{Error, Result};

use crate::apart::{Check, run_apart};
use crate::fork_gate;
use crate::pool::WorkerPool;

/// How long a waiting consumer sleeps before it looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// Loads ranges, on any thread.
pub trait Load: Send + Sync + 'static {
    /// What a range becomes.
    type Item: Send + 'static;

    /// Loads `range`. Where the consumer does so itself it has to be `attended`: called many
    /// times a second, and its error ends the work.
    ///
    /// # Errors
    /// Whatever keeps the range from being loaded, or what `attended` returned.
    fn load(&self, range: Range<u64>, attended: Option<Check<'_>>) -> Result<Self::Item>;

    /// Whether loading `range` has long steps that cannot be attended.
    fn is_long(&self, _range: &Range<u64>) -> bool {
        false
    }
}

enum Progress<T> {
    Waiting,
    Running,
    Done(Result<T>),
    Taken,
}

struct Slot<T> {
    range: Range<u64>,
    progress: Mutex<Progress<T>>,
    done: Condvar,
    is_abandoned: Arc<AtomicBool>,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        // Only whole values are stored, so a poisoned lock still holds one.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the slot if nobody has.
    fn claim(&self) -> bool {
        let mut progress = self.lock();
        let is_free = matches!(*progress, Progress::Waiting);
        if is_free {
            *progress = Progress::Running;
        }
        is_free
    }

    /// Ends what [`Slot::claim`] began.
    fn settle(&self, progress: Progress<T>) {
        *self.lock() = progress;
        self.done.notify_all();
    }

    fn run(&self, loader: &impl Load<Item = T>) {
        if !self.is_abandoned.load(Ordering::Relaxed) && self.claim() {
            let loaded = caught(|| loader.load(self.range.clone(), None));
            self.settle(Progress::Done(loaded));
        }
    }
}

/// Runs `work`; a panic becomes an `Internal` error.
///
/// # Errors
/// Those of `work`.
fn caught<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
}

/// The error a panic becomes; it never reaches a user as a panic.
pub fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Error::internal(format!("a bug in dataset_rt: {text}; please report it"))
}

/// What became of a range.
pub type Loaded<T> = (Range<u64>, Result<T>);

/// Ranges under way, in the order they were asked for.
pub struct Lookahead<L: Load> {
    loader: Arc<L>,
    pool: Arc<WorkerPool>,
    pending: VecDeque<Arc<Slot<L::Item>>>,
    is_abandoned: Arc<AtomicBool>,
    pid: u32,
}

impl<L: Load> Lookahead<L> {
    /// Nothing is under way yet.
    pub fn new(loader: L, pool: Arc<WorkerPool>) -> Self {
        Self {
            loader: Arc::new(loader),
            pool,
            pending: VecDeque::new(),
            is_abandoned: Arc::new(AtomicBool::new(false)),
            pid: fork_gate::process(),
        }
    }

    /// What loads the ranges.
    pub fn loader(&self) -> &L {
        &self.loader
    }

    /// The workers that load them.
    pub fn pool(&self) -> &Arc<WorkerPool> {
        &self.pool
    }

    /// Ranges under way.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Fails in another process than that of [`Lookahead::new`].
    ///
    /// # Errors
    /// As [`check_process`].
    pub fn check_process(&self) -> Result<()> {
        check_process(self.pid)
    }

    /// Lets a worker load `range`, to be taken out after all others.
    pub fn ask(&mut self, range: Range<u64>) {
        let slot = self.submit(range);
        self.pending.push_back(slot);
    }

    /// Lets a worker load `range`, to be taken out next.
    pub fn ask_first(&mut self, range: Range<u64>) {
        let slot = self.submit(range);
        self.pending.push_front(slot);
    }

    fn submit(&self, range: Range<u64>) -> Arc<Slot<L::Item>> {
        let slot = Arc::new(Slot {
            range,
            progress: Mutex::new(Progress::Waiting),
            done: Condvar::new(),
            is_abandoned: Arc::clone(&self.is_abandoned),
        });
        let (job, loader) = (Arc::clone(&slot), Arc::clone(&self.loader));
        self.pool.submit(move || job.run(&*loader));
        slot
    }

    /// Takes the first range out, waiting for it or loading it here; `None` when nothing is under
    /// way. `attend` is called several times a second; its error ends the wait and loses nothing.
    ///
    /// # Errors
    /// What `attend` returned, or `Conflict` in a forked child.
    pub fn take(
        &mut self,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Loaded<L::Item>>> {
        self.check_process()?;
        let Some(slot) = self.pending.front().map(Arc::clone) else { return Ok(None) };
        let loaded = if slot.claim() {
            match self.load(slot.range.clone(), attend) {
                Ok(loaded) => loaded,
                Err(interrupted) => {
                    slot.settle(Progress::Waiting);
                    return Err(interrupted);
                }
            }
        } else {
            wait(&slot, attend)?
        };
        self.pending.pop_front();
        Ok(Some((slot.range.clone(), loaded)))
    }

    /// Loads `range` here and now; the inner result is that of loading.
    ///
    /// # Errors
    /// What `attend` returned.
    pub fn load(
        &self,
        range: Range<u64>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Result<L::Item>> {
        let mut interrupted = None;
        let mut attend = || attend().inspect_err(|error| interrupted = Some(error.clone()));
        let loaded = fork_gate::with_breaks(&mut attend, |check| {
            caught(|| match self.loader.is_long(&range) {
                false => self.loader.load(range, Some(check)),
                true => {
                    let loader = Arc::clone(&self.loader);
                    run_apart(check, move |check| loader.load(range.clone(), Some(check)))
                }
            })
        });
        match interrupted {
            Some(error) => Err(error),
            None => Ok(loaded),
        }
    }
}

fn wait<T>(slot: &Slot<T>, attend: &mut dyn FnMut() -> Result<()>) -> Result<Result<T>> {
    let mut progress = slot.lock();
    loop {
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Done(loaded) => return Ok(loaded),
            other => *progress = other,
        }
        let (guard, waited) =
            slot.done.wait_timeout(progress, WAIT_SLICE).unwrap_or_else(PoisonError::into_inner);
        progress = guard;
        if waited.timed_out() {
            drop(progress);
            attend()?;
            progress = slot.lock();
        }
    }
}

/// Refuses to go on in a forked child, whose ranges are still on their way in the parent.
///
/// # Errors
/// `Conflict` in another process than `pid`.
pub fn check_process(pid: u32) -> Result<()> {
    if pid == fork_gate::process() {
        return Ok(());
    }
    Err(Error::conflict(
        "this iterator was made before the process forked; make a new one with iter() in this \
         process",
    ))
}

impl<L: Load> Drop for Lookahead<L> {
    fn drop(&mut self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use dataset_rt_storage::Kind;

    use super::*;

    #[test]
    fn a_panic_in_a_job_of_a_worker_arrives_as_an_error_to_report() {
        let pool = WorkerPool::new(1);
        let (outcomes, arrived) = mpsc::channel();
        for number in 0..3 {
            let outcomes = outcomes.clone();
            pool.submit(move || {
                let outcome = caught(|| match number {
                    0 => panic!("a fixed text"),
                    1 => panic!("job {number}"),
                    _ => Ok(number),
                });
                outcomes.send(outcome).unwrap();
            });
        }
        drop(outcomes);
        let arrived: Vec<Result<i32>> = arrived.iter().collect();
        for (outcome, text) in arrived.iter().zip(["a fixed text", "job 1"]) {
            let error = outcome.as_ref().unwrap_err();
            assert_eq!(error.kind(), Kind::Internal);
            assert!(error.message().contains(text), "{error}");
            assert!(error.message().contains("please report it"), "{error}");
        }
        assert_eq!(arrived[2], Ok(2), "the worker lives on");
    }
}
