//! The right to do something that is done once for all: one thread has it, others wait. Knows not
//! what is done.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dataset_rt_storage::Result;

use crate::fork_gate;

/// How long to wait for another thread between two looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(20);

/// Who does it, if anybody.
#[derive(Default)]
pub struct Turn {
    worker: Mutex<Option<Worker>>,
    over: Condvar,
}

/// The thread at work.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Worker {
    process: u32,
    thread: usize,
}

thread_local! {
    static TOKEN: u8 = const { 0 };
}

impl Worker {
    fn this() -> Self {
        let thread = TOKEN.with(|token| std::ptr::from_ref(token) as usize);
        Self { process: fork_gate::process(), thread }
    }
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
            // Whoever is at work may wait for the end of this thread's fork, or be this thread:
            // `attend` runs signal handlers, which may need what is being done.
            if fork_gate::is_forking() || self.is_of_this_thread() {
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

impl Turn {
    fn worker(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_of_this_thread(&self) -> bool {
        *self.worker() == Some(Worker::this())
    }
}

/// The turn, held by one thread.
struct Working<'a> {
    turn: &'a Turn,
}

impl<'a> Working<'a> {
    /// Takes the turn, or waits a moment for the thread that has it.
    fn begin(turn: &'a Turn) -> Option<Self> {
        let this = Worker::this();
        let mut worker = turn.worker();
        // A thread of the process that forked this one will never finish here.
        if worker.is_none_or(|worker| worker.process != this.process) {
            *worker = Some(this);
            return Some(Self { turn });
        }
        drop(turn.over.wait_timeout(worker, WAIT_SLICE));
        None
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        *self.turn.worker() = None;
        self.turn.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_asked_again_while_it_works_does_it_then_and_there() {
        let turn = Turn::default();
        let mut inner = None;
        let mut attend = || {
            let made = turn.done_once(|| None, |_| Ok(2), &mut || Ok(()))?;
            inner = Some(made);
            Ok(())
        };
        let make = |attend: &mut dyn FnMut() -> Result<()>| attend().map(|()| 1);
        assert_eq!(turn.done_once(|| None, make, &mut attend), Ok(1));
        assert_eq!(inner, Some(2));
        assert_eq!(turn.done_once(|| None, |_| Ok(3), &mut || Ok(())), Ok(3));
    }
}
