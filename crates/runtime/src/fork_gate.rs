//! Makes `fork` find every lock of ours free. Knows nothing of what the locks protect.
//!
//! A forked child inherits memory but only the forking thread: a lock that another thread held at
//! that instant stays locked in the child for ever. Work that takes our locks runs inside
//! [`enter`]; the border calls [`before_fork`] and [`after_fork`] around every fork, so the child
//! starts when nobody is inside. Nobody may wait for another thread's work while inside.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dataset_rt_storage::Result;
use dataset_rt_storage::store::AllLocks;

static GATE: RwLock<()> = RwLock::new(());

/// Id of this process, or 0 before anybody asked.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The forking thread survives into the child, and its guards with it.
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

struct Forking {
    /// A signal handler or another hook may fork again between this thread's hooks.
    depth: u32,
    _gate: RwLockWriteGuard<'static, ()>,
    locks: AllLocks,
}

/// Proof that no fork happens while it lives.
pub struct Inside {
    _guard: Option<RwLockReadGuard<'static, ()>>,
}

/// Waits out a fork in progress, then keeps others away. Not reentrant. The forking thread itself
/// passes: other hooks of its fork, and signal handlers, may use the library.
pub fn enter() -> Inside {
    if is_forking() {
        return Inside { _guard: None };
    }
    Inside { _guard: Some(GATE.read().unwrap_or_else(PoisonError::into_inner)) }
}

/// Whether this thread is between the hooks of a fork: threads that want in wait for it.
pub fn is_forking() -> bool {
    FORKING.with_borrow(Option::is_some)
}

/// Runs long `work` inside, and outside whenever it calls its check, which calls `attend`: there
/// Python may run, even fork. `work` must hold no lock while it calls the check.
pub fn with_breaks<R>(
    attend: &mut dyn FnMut() -> Result<()>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> R,
) -> R {
    let mut inside = Some(enter());
    work(&mut || {
        drop(inside.take());
        let attended = attend();
        inside = Some(enter());
        attended
    })
}

/// Waits until nobody is inside and closes the gate. Call on the forking thread, without the
/// interpreter lock: another thread that forks may need it to open the gate.
pub fn before_fork() {
    let is_nested = FORKING.with_borrow_mut(|slot| match slot {
        Some(forking) => {
            forking.depth += 1;
            true
        }
        None => false,
    });
    if is_nested {
        return;
    }
    let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let forking = Forking { depth: 0, _gate: gate, locks: AllLocks::hold() };
    FORKING.with_borrow_mut(|slot| *slot = Some(forking));
    // So that the child can tell that it is one.
    process();
}

/// Opens the gate again, in parent and child. Call on the forking thread.
pub fn after_fork() {
    let id = std::process::id();
    let is_child = PROCESS.swap(id, Ordering::Relaxed) != id;
    FORKING.with_borrow_mut(|slot| {
        let Some(forking) = slot else { return };
        if is_child {
            // Should the parent die, its caches are free for others though the child lives.
            forking.locks.leave();
        }
        match forking.depth.checked_sub(1) {
            Some(depth) => forking.depth = depth,
            None => *slot = None,
        }
    });
}

/// Id of this process, without asking the system again until the next fork.
pub fn process() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            PROCESS.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_fork_waits_for_those_inside_and_lets_them_in_again() {
        let inside = enter();
        let (report, reports) = mpsc::channel();
        let forker = thread::spawn(move || {
            before_fork();
            report.send("closed").unwrap();
            after_fork();
        });
        assert!(reports.try_recv().is_err());
        drop(inside);
        assert_eq!(reports.recv().unwrap(), "closed");
        forker.join().unwrap();
        drop(enter());
    }

    #[test]
    fn long_work_lets_forks_pass_at_its_breaks() {
        let mut fork = || {
            thread::spawn(|| {
                before_fork();
                after_fork();
            })
            .join()
            .unwrap();
            Ok(())
        };
        assert_eq!(with_breaks(&mut fork, |check| check().and_then(|()| check())), Ok(()));
    }
}
