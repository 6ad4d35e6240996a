//! What the threads that share an iterator take turns with. Knows nothing of what it guards.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use dataset_rt_runtime::{check_process, fork_gate};
use dataset_rt_storage::Error;
use pyo3::prelude::*;

use crate::failure::{to_py, without_lock};

/// Where an iterator stands.
pub struct Shared<T> {
    place: Mutex<T>,
    /// Token of the thread that holds `place`, or 0.
    holder: AtomicUsize,
    pid: u32,
}

thread_local! {
    static TOKEN: u8 = const { 0 };
}

/// The place, held by this thread.
pub struct Held<'a, T> {
    holder: &'a AtomicUsize,
    place: MutexGuard<'a, T>,
}

impl<T: Send> Shared<T> {
    /// Nobody holds it; it belongs to this process.
    pub fn new(place: T) -> Self {
        let (place, holder) = (Mutex::new(place), AtomicUsize::new(0));
        Self { place, holder, pid: fork_gate::process() }
    }

    /// Waits for other threads that share the iterator, but never while it holds the interpreter
    /// lock, nor for that lock while it holds this one.
    ///
    /// # Errors
    /// `ConflictError` in a forked child, or when this very thread holds it already.
    pub fn lock(&self, py: Python<'_>) -> PyResult<Held<'_, T>> {
        // Before the lock: another thread may have held it at the instant of the fork.
        check_process(self.pid).map_err(|e| to_py(py, &e))?;
        let this_thread = TOKEN.with(|token| std::ptr::from_ref(token) as usize);
        loop {
            match self.place.try_lock() {
                Ok(place) => {
                    self.holder.store(this_thread, Ordering::Relaxed);
                    return Ok(Held { holder: &self.holder, place });
                }
                // A signal handler or a finaliser runs while this very thread waits for a block.
                Err(TryLockError::WouldBlock)
                    if self.holder.load(Ordering::Relaxed) == this_thread =>
                {
                    let text = "this thread is inside next() of this iterator already; use another \
                                iterator in signal handlers and finalisers";
                    return Err(to_py(py, &Error::conflict(text)));
                }
                Err(TryLockError::WouldBlock) => without_lock(py, || drop(self.place.lock())),
                Err(TryLockError::Poisoned(_)) => {
                    return Err(to_py(py, &Error::internal("this iterator failed before")));
                }
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.place
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.place
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}
