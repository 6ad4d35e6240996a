//! Numbered pieces of one job, each done once, by a worker or by whoever needs it. Knows not what
//! the job is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dataset_rt_storage::{Error, Result};

use crate::fork_gate;
use crate::lookahead::panic_error;
use crate::pool::WorkerPool;

/// How long a waiting thread sleeps before it looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// Pieces in the order in which they are begun. Once this is dropped, no piece is being done or
/// ever will be: what the job needs may be gone then.
pub struct Pieces {
    shared: Arc<Shared>,
    pid: u32,
}

type Work = Arc<dyn Fn(usize) -> Result<()> + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    /// A piece came to its end.
    ended: Condvar,
}

struct State {
    /// Gone when no piece will begin any more, though workers may not have found out yet.
    work: Option<Work>,
    /// First piece that nobody has begun.
    next: usize,
    running: usize,
    outcomes: Vec<Option<Result<()>>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.ended.wait_timeout(state, WAIT_SLICE).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Does the first piece that nobody has begun; false when there is none.
    fn do_next(&self) -> bool {
        let (work, piece) = {
            let mut state = self.lock();
            let Some(work) = state.work.clone() else { return false };
            if state.next == state.outcomes.len() {
                return false;
            }
            state.running += 1;
            state.next += 1;
            (work, state.next - 1)
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(piece)));
        let outcome = outcome.unwrap_or_else(|panic| Err(panic_error(panic.as_ref())));
        drop(work);
        let mut state = self.lock();
        state.running -= 1;
        if let Some(place) = state.outcomes.get_mut(piece) {
            *place = Some(outcome);
        }
        drop(state);
        self.ended.notify_all();
        true
    }
}

impl Pieces {
    /// `count` pieces of `work`, for up to `helpers` workers of `pool` from now on.
    pub fn new(
        pool: &WorkerPool,
        helpers: usize,
        count: usize,
        work: impl Fn(usize) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let work: Option<Work> = Some(Arc::new(work));
        let state = State { work, next: 0, running: 0, outcomes: vec![None; count] };
        let shared = Arc::new(Shared { state: Mutex::new(state), ended: Condvar::new() });
        for _ in 0..helpers.min(pool.num_workers()) {
            let job = Arc::clone(&shared);
            pool.submit(move || while job.do_next() {});
        }
        Self { shared, pid: fork_gate::process() }
    }

    /// What became of `piece`, if it came to its end.
    pub fn outcome(&self, piece: usize) -> Option<Result<()>> {
        let unknown = || Some(Err(Error::internal(format!("there is no piece {piece}"))));
        self.shared.lock().outcomes.get(piece).map_or_else(unknown, Clone::clone)
    }

    /// Does the first piece that nobody has begun, here; false when there is none.
    pub fn help(&self) -> bool {
        self.shared.do_next()
    }

    /// Waits for the end of `piece`, which somebody has begun. `attend` is called several times a
    /// second; its error ends the wait.
    ///
    /// # Errors
    /// What `attend` returned.
    pub fn wait(&self, piece: usize, attend: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut state = self.shared.lock();
        while state.outcomes.get(piece).is_some_and(Option::is_none) {
            state = self.shared.wait(state);
            if state.outcomes.get(piece).is_some_and(Option::is_none) {
                drop(state);
                attend()?;
                state = self.shared.lock();
            }
        }
        Ok(())
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // A forked child has none of the threads, and the lock may be one of theirs.
        if self.pid != fork_gate::process() {
            return;
        }
        let mut state = self.shared.lock();
        let work = state.work.take();
        while state.running > 0 {
            state = self.shared.wait(state);
        }
        drop(state);
        // Jobs may still be queued: what the work holds goes now.
        drop(work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn every_piece_is_done_once_whoever_does_it() {
        let pool = WorkerPool::new(2);
        let counts: Arc<Vec<AtomicUsize>> =
            Arc::new((0..50).map(|_| AtomicUsize::new(0)).collect());
        let theirs = Arc::clone(&counts);
        let work = move |piece: usize| match theirs[piece].fetch_add(1, Ordering::SeqCst) {
            _ if piece == 7 => Err(Error::invalid("seven")),
            _ if piece == 8 => panic!("eight"),
            _ => Ok(()),
        };
        let pieces = Pieces::new(&pool, 2, counts.len(), work);
        while pieces.help() {}
        for piece in 0..counts.len() {
            pieces.wait(piece, &mut || Ok(())).unwrap();
            let outcome = pieces.outcome(piece).unwrap();
            assert_eq!(outcome.is_err(), piece == 7 || piece == 8, "{outcome:?}");
        }
        assert!(counts.iter().all(|count| count.load(Ordering::SeqCst) == 1));
    }

    #[test]
    fn a_closed_pool_leaves_everything_to_whoever_needs_it() {
        let pool = WorkerPool::new(1);
        pool.close();
        let pieces = Pieces::new(&pool, 1, 2, |_| Ok(()));
        assert_eq!(pieces.outcome(0), None);
        assert!(pieces.help() && pieces.help() && !pieces.help());
        assert_eq!(pieces.outcome(1), Some(Ok(())));
    }

    #[test]
    fn dropping_waits_for_the_piece_being_done_and_lets_none_begin() {
        let pool = WorkerPool::new(1);
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let (finished, ended) = (Mutex::new(finished), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&ended);
        let pieces = Pieces::new(&pool, 1, 2, move |piece| {
            begin.send(piece).unwrap();
            let _ = finished.lock().unwrap().recv();
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        assert_eq!(begun.recv(), Ok(0));
        let shared = Arc::clone(&pieces.shared);
        let dropper = thread::spawn(move || drop(pieces));
        // From here on the other thread is in `drop`.
        while shared.lock().work.is_some() {
            thread::yield_now();
        }
        assert!(!dropper.is_finished());
        finish.send(()).unwrap();
        dropper.join().unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), 1, "what ran came to its end first");
        drop(pool);
        assert!(begun.try_recv().is_err(), "the other piece never began");
    }

    #[test]
    fn a_job_that_waits_for_a_worker_holds_nothing_once_it_was_given_up() {
        let pool = WorkerPool::new(1);
        let (release, released) = mpsc::channel::<()>();
        pool.submit(move || assert!(released.recv().is_ok()));
        let held = Arc::new(());
        let theirs = Arc::clone(&held);
        let pieces = Pieces::new(&pool, 1, 2, move |_| {
            let _ = &theirs;
            Ok(())
        });
        assert!(pieces.help());
        drop(pieces);
        assert_eq!(Arc::strong_count(&held), 1);
        release.send(()).unwrap();
    }

    #[test]
    fn an_interrupt_ends_the_wait_and_not_the_piece() {
        let pool = WorkerPool::new(1);
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let finished = Mutex::new(finished);
        let pieces = Pieces::new(&pool, 1, 1, move |_| {
            begin.send(()).unwrap();
            let _ = finished.lock().unwrap().recv();
            Ok(())
        });
        begun.recv().unwrap();
        let stop = Error::invalid("stop");
        assert_eq!(pieces.wait(0, &mut || Err(stop.clone())), Err(stop.clone()));
        assert_eq!(pieces.outcome(0), None);
        finish.send(()).unwrap();
        assert_eq!(pieces.wait(0, &mut || Ok(())), Ok(()));
        assert_eq!(pieces.outcome(0), Some(Ok(())));
    }
}
