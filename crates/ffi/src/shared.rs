//! What the threads that share an iterator take turns with. Knows nothing of what it guards.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use dataset_rt_runtime::{check_process, fork_gate};
use dataset_rt_storage::Error;
use pyo3::prelude::*;

use crate::failure::{to_py, without_lock};

/// Between two looks for signals of a thread that waits for its turn.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// Where an iterator stands.
pub struct Shared<T> {
    place: Mutex<T>,
    /// Token of the thread that holds `place`, or 0.
    holder: AtomicUsize,
    queue: Queue,
    pid: u32,
}

/// Threads that wait for their turn, first come, first served: one that comes back at once would
/// otherwise always be faster than one that is woken. Costs a load where nobody waits.
#[derive(Default)]
struct Queue {
    len: AtomicUsize,
    tickets: Mutex<VecDeque<u64>>,
    issued: AtomicU64,
    freed: Condvar,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    fn tickets(&self) -> MutexGuard<'_, VecDeque<u64>> {
        // Nothing that can panic is done with it.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self) -> Ticket<'_> {
        let number = self.issued.fetch_add(1, Ordering::SeqCst);
        self.tickets().push_back(number);
        self.len.fetch_add(1, Ordering::SeqCst);
        Ticket { queue: self, number }
    }

    fn wake(&self) {
        if !self.is_empty() {
            // Whoever looked before the place was free waits by the time this lock is had.
            let _tickets = self.tickets();
            self.freed.notify_all();
        }
    }
}

/// A place in the queue, given up when it is dropped.
struct Ticket<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Ticket<'_> {
    /// Waits a moment at most; whether this ticket is the first and the place `is_free`.
    fn wait(&self, is_free: impl Fn() -> bool) -> bool {
        let is_due = |tickets: &VecDeque<u64>| tickets.front() == Some(&self.number) && is_free();
        let tickets = self.queue.tickets();
        if is_due(&tickets) {
            return true;
        }
        let waited = self.queue.freed.wait_timeout(tickets, WAIT_SLICE);
        is_due(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.queue.tickets().retain(|&number| number != self.number);
        self.queue.len.fetch_sub(1, Ordering::SeqCst);
        self.queue.wake();
    }
}

/// Wakes those that wait when it is dropped.
struct Wake<'a>(&'a Queue);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

thread_local! {
    static TOKEN: u8 = const { 0 };
}

/// The place, held by this thread.
pub struct Held<'a, T> {
    holder: &'a AtomicUsize,
    place: MutexGuard<'a, T>,
    /// Dropped last, when the place is free.
    _wake: Wake<'a>,
}

impl<T: Send> Shared<T> {
    /// Nobody holds it; it belongs to this process.
    pub fn new(place: T) -> Self {
        let (place, holder) = (Mutex::new(place), AtomicUsize::new(0));
        Self { place, holder, queue: Queue::default(), pid: fork_gate::process() }
    }

    /// Whether nobody waits for a turn, and this is the process it belongs to.
    pub fn is_open(&self) -> bool {
        self.queue.is_empty() && check_process(self.pid).is_ok()
    }

    /// Waits for other threads that share the iterator, but never while it holds the interpreter
    /// lock, nor for that lock while it holds this one; looks for signals meanwhile.
    ///
    /// # Errors
    /// `ConflictError` in a forked child, when this very thread holds it already, or when another
    /// does and a hook of a fork asks; what a signal handler raised.
    pub fn lock(&self, py: Python<'_>) -> PyResult<Held<'_, T>> {
        // Before the lock: another thread may have held it at the instant of the fork.
        check_process(self.pid).map_err(|e| to_py(py, &e))?;
        let this_thread = TOKEN.with(|token| std::ptr::from_ref(token) as usize);
        if self.queue.is_empty()
            && let Some(held) = self.try_hold(py, this_thread)?
        {
            return Ok(held);
        }
        loop {
            // A signal handler or a finaliser runs while this very thread waits for a block.
            if self.holder.load(Ordering::Relaxed) == this_thread {
                return Err(in_use(
                    py,
                    "this thread is inside next() of this iterator already; use another iterator \
                     in signal handlers and finalisers",
                ));
            }
            // The other thread may be waiting for the end of this very fork.
            if fork_gate::is_forking() {
                return Err(in_use(
                    py,
                    "another thread is inside next() of this iterator; use another iterator in \
                     the hooks of a fork",
                ));
            }
            let ticket = self.queue.join();
            let is_free = || !matches!(self.place.try_lock(), Err(TryLockError::WouldBlock));
            if without_lock(py, || ticket.wait(is_free))
                && let Some(held) = self.try_hold(py, this_thread)?
            {
                return Ok(held);
            }
            drop(ticket);
            // Out of the queue: a handler may ask for this iterator, too.
            py.check_signals()?;
        }
    }

    fn try_hold(&self, py: Python<'_>, this_thread: usize) -> PyResult<Option<Held<'_, T>>> {
        match self.place.try_lock() {
            Ok(place) => {
                self.holder.store(this_thread, Ordering::Relaxed);
                Ok(Some(Held { holder: &self.holder, place, _wake: Wake(&self.queue) }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => {
                Err(to_py(py, &Error::internal("this iterator failed before")))
            }
        }
    }
}

fn in_use(py: Python<'_>, text: &str) -> PyErr {
    to_py(py, &Error::conflict(text))
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
