//! Steps that last and cannot be broken off: a thread of their own takes them, so that whoever
//! waits for one can be interrupted. Knows nothing of what the steps do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use dataset_rt_storage::{Error, Result};

use crate::fork_gate;
use crate::lookahead::panic_error;

/// Between two calls of `attend`: far below what a user notices.
const WAIT_SLICE: Duration = Duration::from_millis(20);

/// The check that work calls where it can be broken off.
pub type Check<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Runs `work` on a thread of its own, and calls `attend` many times a second meanwhile. An error
/// of `attend` ends the wait at once; `work` ends at its next check then, or for nobody. Without
/// a thread to be had, `work` runs here. Called inside the gate that keeps forks away; `attend`
/// lets them pass, see [`fork_gate::with_breaks`].
///
/// # Errors
/// Those of `work`, what `attend` returned, or `Conflict` in a child forked meanwhile.
pub fn run_apart<R: Send + 'static>(
    attend: Check<'_>,
    work: impl Fn(Check<'_>) -> Result<R> + Send + Sync + 'static,
) -> Result<R> {
    // Others may not run before this thread's fork is over.
    if fork_gate::is_forking() {
        return work(attend);
    }
    let work = Arc::new(work);
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::sync_channel(1);
    let (theirs, is_over) = (Arc::clone(&work), Arc::clone(&is_abandoned));
    let job = move || {
        let mut look = || match is_over.load(Ordering::Relaxed) {
            true => Err(Error::conflict("interrupted")),
            false => Ok(()),
        };
        let step = || fork_gate::with_breaks(&mut look, |check| theirs(check));
        let outcome = catch_unwind(AssertUnwindSafe(step));
        // Nobody listens any more after an interrupt.
        let _ = sender.send(outcome.unwrap_or_else(|panic| Err(panic_error(panic.as_ref()))));
    };
    let thread = std::thread::Builder::new().name("dataset-rt-step".to_owned()).spawn(job);
    let Ok(thread) = thread else { return work(attend) };
    let process = fork_gate::process();
    loop {
        match receiver.recv_timeout(WAIT_SLICE) {
            Ok(outcome) => {
                // It has nothing left to do; nobody finds it running once the outcome is known.
                let _ = thread.join();
                return outcome;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a thread ended without an outcome"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Whoever attends may have forked: the other thread is not in the child.
        let attended = attend().and_then(|()| match process == fork_gate::process() {
            true => Ok(()),
            false => Err(Error::conflict(
                "the process forked while this call waited for a thread, which the child does not \
                 have; call again",
            )),
        });
        if let Err(error) = attended {
            is_abandoned.store(true, Ordering::Relaxed);
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use dataset_rt_storage::Kind;

    use super::*;

    #[test]
    fn an_interrupt_ends_the_wait_and_then_the_work() {
        let (report, reports) = mpsc::channel();
        let work = move |check: Check<'_>| {
            let ended = loop {
                if let Err(error) = check() {
                    break error;
                }
                std::thread::yield_now();
            };
            report.send(ended.clone()).unwrap();
            Err::<(), Error>(ended)
        };
        let outcome = run_apart(&mut || Err(Error::invalid("stop")), work);
        assert_eq!(outcome.unwrap_err(), Error::invalid("stop"));
        assert_eq!(reports.recv().unwrap().kind(), Kind::Conflict);
    }

    #[test]
    fn outcomes_and_panics_come_back() {
        assert_eq!(run_apart(&mut || Ok(()), |_| Ok(7)), Ok(7));
        let panicked = run_apart(&mut || Ok(()), |_| -> Result<()> { panic!("a bug") });
        assert_eq!(panicked.unwrap_err().kind(), Kind::Internal);
    }

    #[test]
    fn the_forking_thread_does_it_alone() {
        fork_gate::before_fork();
        let here = std::thread::current().id();
        let there = run_apart(&mut || Ok(()), |_| Ok(std::thread::current().id()));
        fork_gate::after_fork();
        assert_eq!(there, Ok(here));
    }
}
