//! One pass over a window of the stream, read ahead by the workers. Delivers blocks in order.
//! Knows no Python.
//!
//! A slot is one block on its way. Whoever needs a slot that no worker has begun computes it, so
//! a busy, small or missing pool costs overlap, never progress.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dataset_rt_sampler::Window;
use dataset_rt_storage::{Error, Result};

use crate::block::Block;
use crate::fork_gate;
use crate::pool::WorkerPool;
use crate::snapshot::Snapshot;

/// Blocks under way at once: one in hand, others being loaded.
const SLOTS: u64 = 4;
/// Most samples of a block: beyond this a hand-over costs nothing per sample any more.
const BLOCK_SAMPLES_MAX: u64 = 256;
/// Most payload bytes that the consumer loads at one go: tenths of a second, even compressed.
const CONSUMER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How long a waiting consumer sleeps before it looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// How far a stream may run ahead of its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Samples not yet delivered, the block in hand included; at least 1.
    pub samples: u64,
    /// The same in payload bytes; one larger sample alone is allowed.
    pub bytes: u64,
}

impl ReadAhead {
    fn slots(self) -> u64 {
        self.samples.clamp(1, SLOTS)
    }

    fn block_samples(self) -> u64 {
        (self.samples / self.slots()).clamp(1, BLOCK_SAMPLES_MAX)
    }

    /// Payload bytes that one block may hold.
    pub fn block_bytes(self) -> u64 {
        self.bytes / self.slots()
    }

    /// Payload bytes of a block that the consumer loads itself: signals are not seen meanwhile.
    pub fn consumer_bytes(self) -> u64 {
        self.block_bytes().min(CONSUMER_BYTES_MAX)
    }
}

enum Progress {
    Waiting,
    Running,
    Done(Result<Block>),
    Taken,
}

struct Slot {
    positions: Range<u64>,
    progress: Mutex<Progress>,
    done: Condvar,
    is_abandoned: Arc<AtomicBool>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Progress> {
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

    fn run(&self, snapshot: &Snapshot, budget_bytes: u64) {
        if self.is_abandoned.load(Ordering::Relaxed) || !self.claim() {
            return;
        }
        let block = load_caught(snapshot, self.positions.clone(), budget_bytes);
        *self.lock() = Progress::Done(block);
        self.done.notify_all();
    }
}

fn load_caught(snapshot: &Snapshot, positions: Range<u64>, budget_bytes: u64) -> Result<Block> {
    caught(|| Block::load(snapshot, positions, budget_bytes))
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

/// The blocks of one window, in order.
pub struct Stream {
    snapshot: Arc<Snapshot>,
    pool: Arc<WorkerPool>,
    ahead: ReadAhead,
    pending: VecDeque<Arc<Slot>>,
    is_abandoned: Arc<AtomicBool>,
    /// First position that no slot covers yet.
    next: u64,
    end: u64,
    /// Samples of the next block; grows so that the first sample waits for one, not for many.
    ramp: u64,
    /// Positions of a failed block, read one by one so that only damaged samples are lost.
    one_by_one: Range<u64>,
    pid: u32,
}

impl Stream {
    /// Starts reading `window`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        pool: Arc<WorkerPool>,
        ahead: ReadAhead,
        window: Window,
    ) -> Self {
        Self {
            snapshot,
            pool,
            ahead,
            pending: VecDeque::new(),
            is_abandoned: Arc::new(AtomicBool::new(false)),
            next: window.start,
            end: window.end(),
            ramp: 1,
            one_by_one: 0..0,
            pid: fork_gate::process(),
        }
    }

    /// The table being read.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The next block, or `None` at the end of the window. `attend` is called several times a
    /// second while waiting; its error ends the wait and loses nothing.
    ///
    /// After an error about damaged data the next call goes on with the following sample.
    ///
    /// # Errors
    /// What loading the block met, or what `attend` returned.
    pub fn next_block(&mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Option<Block>> {
        check_process(self.pid)?;
        if !self.one_by_one.is_empty() {
            return self.next_alone().map(Some);
        }
        // Workers find the order ready: no block waits for it where signals are not seen.
        fork_gate::with_breaks(attend, |check| self.snapshot.prepare(check).map(drop))?;
        self.schedule();
        let Some(slot) = self.pending.front().map(Arc::clone) else { return Ok(None) };
        let block = match self.wait(&slot, attend)? {
            Ok(block) => block,
            Err(_) if slot.positions.end - slot.positions.start > 1 => {
                self.pending.pop_front();
                self.one_by_one = slot.positions.clone();
                return self.next_alone().map(Some);
            }
            Err(error) => {
                self.pending.pop_front();
                return Err(error);
            }
        };
        self.pending.pop_front();
        Ok(Some(block))
    }

    fn next_alone(&mut self) -> Result<Block> {
        let position = self.one_by_one.start;
        self.one_by_one.start += 1;
        let _inside = fork_gate::enter();
        load_caught(&self.snapshot, position..position + 1, self.ahead.consumer_bytes())
    }

    /// Keeps the slots filled; the caller is about to take one block in hand.
    fn schedule(&mut self) {
        while self.next < self.end && (self.pending.len() as u64) < self.ahead.slots() {
            let len = self.ramp.min(self.end - self.next);
            let slot = Arc::new(Slot {
                positions: self.next..self.next + len,
                progress: Mutex::new(Progress::Waiting),
                done: Condvar::new(),
                is_abandoned: Arc::clone(&self.is_abandoned),
            });
            self.next += len;
            self.ramp = (self.ramp * 2).min(self.ahead.block_samples());
            self.pending.push_back(Arc::clone(&slot));
            let (snapshot, budget) = (Arc::clone(&self.snapshot), self.ahead.block_bytes());
            self.pool.submit(move || slot.run(&snapshot, budget));
        }
    }

    fn wait(&self, slot: &Slot, attend: &mut dyn FnMut() -> Result<()>) -> Result<Result<Block>> {
        {
            let _inside = fork_gate::enter();
            slot.run(&self.snapshot, self.ahead.consumer_bytes());
        }
        let mut progress = slot.lock();
        loop {
            match std::mem::replace(&mut *progress, Progress::Taken) {
                Progress::Done(block) => return Ok(block),
                other => *progress = other,
            }
            let (guard, waited) = slot
                .done
                .wait_timeout(progress, WAIT_SLICE)
                .unwrap_or_else(PoisonError::into_inner);
            progress = guard;
            if waited.timed_out() {
                drop(progress);
                attend()?;
                progress = slot.lock();
            }
        }
    }
}

/// Refuses to go on in a forked child, whose blocks are still on their way in the parent.
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

impl Drop for Stream {
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
