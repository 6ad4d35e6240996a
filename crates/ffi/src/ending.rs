//! The end of the interpreter, while other threads are still inside this module.
//!
//! Once Python ends, it stops every other thread that asks for the interpreter lock, before 3.14
//! by unwinding its stack. A stack with Rust frames on it cannot be unwound that way: the process
//! would abort. So before the end begins, [`begin_exit`] closes the doors: threads that enter this
//! module, or come back into Python from it, stay where they are for ever (they are daemon
//! threads, the process is about to be gone), and it waits for those already on their way.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyIterator;

/// The thread that ends the interpreter, once one does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Threads inside this module with the interpreter lock. Only changed by who holds that lock, so
/// that plain loads and stores do.
static HOLDING: AtomicUsize = AtomicUsize::new(0);

/// Threads that are past the doors but do not hold the interpreter lock yet.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Calls into this module on this thread's stack since it last let go of the lock.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

fn add_holding(change: isize) {
    HOLDING.store(HOLDING.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::SeqCst);
}

/// A call into this module, interpreter lock held.
pub struct Inside;

impl Inside {
    /// Counts this thread; never comes back while another thread ends the interpreter.
    pub fn enter(py: Python<'_>) -> Self {
        if is_closed_here() {
            py.detach(stay);
        }
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        if depth == 0 {
            add_holding(1);
        }
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            add_holding(-1);
        }
    }
}

/// Lock held on both sides; in between this thread does not count.
struct Outside {
    depth: usize,
}

impl Outside {
    fn leave() -> Self {
        let depth = DEPTH.replace(0);
        if depth > 0 {
            add_holding(-1);
        }
        Self { depth }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        DEPTH.set(self.depth);
        if self.depth > 0 {
            add_holding(1);
        }
        RETURNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Passes the doors when it is dropped, be it by a panic.
struct AtTheDoor;

impl Drop for AtTheDoor {
    fn drop(&mut self) {
        // Counted before the look, so that `begin_exit` sees whoever did not see it.
        RETURNING.fetch_add(1, Ordering::SeqCst);
        if is_closed_here() {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            stay();
        }
    }
}

fn is_closed_here() -> bool {
    ENDING.get().is_some_and(|ending| *ending != std::thread::current().id())
}

fn stay() {
    loop {
        std::thread::park();
    }
}

/// Runs `work` without the interpreter lock.
pub fn without_lock<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    let _outside = Outside::leave();
    py.detach(move || {
        let _door = AtTheDoor;
        work()
    })
}

/// The interpreter lock, taken from the interpreter itself. PyO3 counts its own frames: below one
/// of them it takes the lock for held, though other code may have let go of it in between.
struct Lock(ffi::PyGILState_STATE);

impl Lock {
    fn take() -> Self {
        // SAFETY: callable from any thread once the interpreter was initialised, which loaded
        // this module, whether or not the thread holds the lock; given back by `drop`.
        Self(unsafe { ffi::PyGILState_Ensure() })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: on the thread of `take`, with what it returned, innermost first.
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// Runs `ask` with the interpreter lock, on a thread that let go of it: inside [`without_lock`],
/// or before others called this module without it.
pub fn with_lock<R>(ask: impl FnOnce(Python<'_>) -> R) -> R {
    drop(AtTheDoor);
    let _lock = Lock::take();
    Python::attach(|py| {
        // Given back first: whoever finds the door closed stays behind it.
        RETURNING.fetch_sub(1, Ordering::SeqCst);
        let _inside = Inside::enter(py);
        ask(py)
    })
}

/// Longest wait for threads in between: what they run for us, a source, may wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Closes the doors for all other threads and waits for those that are in between.
#[expect(clippy::disallowed_methods, reason = "the wait is bounded in wall time")]
pub fn begin_exit(py: Python<'_>) {
    let _ = ENDING.set(std::thread::current().id());
    let start = Instant::now();
    while HOLDING.load(Ordering::SeqCst) + RETURNING.load(Ordering::SeqCst) > 0
        && start.elapsed() < WAIT_MAX
    {
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
    }
}

/// Forgets the threads that a forked child does not have.
pub fn after_fork_in_child() {
    HOLDING.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    RETURNING.store(0, Ordering::SeqCst);
}

unsafe extern "C-unwind" {
    /// As PyO3 declares it, but that the stack may be unwound out of it.
    fn PyIter_Next(iterator: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// The next item of a source: Python code that may be waiting when the interpreter ends, and is
/// unwound then. The unwinding stops here.
pub fn next_item<'py>(iterator: &Bound<'py, PyIterator>) -> Option<PyResult<Bound<'py, PyAny>>> {
    /// Dropped by unwinding only.
    struct UnwindsNoFurther;
    impl Drop for UnwindsNoFurther {
        fn drop(&mut self) {
            stay();
        }
    }
    let py = iterator.py();
    if is_closed_here() {
        without_lock(py, || ());
    }
    let guard = UnwindsNoFurther;
    // SAFETY: the pointer is a live iterator, the interpreter lock is held, and the result, a new
    // reference or null, is owned at once. No frame of ours is unwound: the guard stays.
    let item = unsafe { Bound::from_owned_ptr_or_opt(py, PyIter_Next(iterator.as_ptr())) };
    std::mem::forget(guard);
    item.map(Ok).or_else(|| PyErr::take(py).map(Err))
}
