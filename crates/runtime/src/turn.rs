//! The right to do something that is done once for all: one thread has it, others wait. Knows not
//! what is done.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use dataset_rt_storage::Result;

use crate::fork_gate;

/// How long to wait for another thread between two looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(20);

/// Who does it, if anybody.
#[derive(Default)]
pub struct Turn {
    /// Process of the thread at work.
    worker: Mutex<Option<u32>>,
    over: Condvar,
}

impl Turn {
    /// What `find` finds, made by `make` in one thread while others wait for it. `attend` is
    /// called many times a second; its error ends the work or the wait. Called inside the fork
    /// gate, with breaks.
    ///
    /// # Errors
    /// Those of `make`, or what `attend` returned.
    pub fn done_once<T>(
        &self,
        mut find: impl FnMut() -> Option<T>,
        make: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<T>,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<T> {
        loop {
            if let Some(found) = find() {
                return Ok(found);
            }
            if fork_gate::is_forking() {
                // Whoever is at work may wait for the end of this thread's fork.
                return make(attend);
            }
            if let Some(_working) = Working::begin(self) {
                return match find() {
                    Some(found) => Ok(found),
                    None => make(attend),
                };
            }
            attend()?;
        }
    }
}

/// The turn, held by one thread.
struct Working<'a> {
    turn: &'a Turn,
}

impl<'a> Working<'a> {
    /// Takes the turn, or waits a moment for the thread that has it.
    fn begin(turn: &'a Turn) -> Option<Self> {
        let process = fork_gate::process();
        let mut worker = turn.worker.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread of the process that forked this one will never finish here.
        if *worker != Some(process) {
            *worker = Some(process);
            return Some(Self { turn });
        }
        drop(turn.over.wait_timeout(worker, WAIT_SLICE));
        None
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        *self.turn.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.turn.over.notify_all();
    }
}
