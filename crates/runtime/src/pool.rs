//! The native worker threads of one runtime. Knows jobs, not what they do.
//!
//! Nobody ever has to wait for a worker: whoever needs a result that no worker has begun computes
//! it (see `stream`), so one worker, or none after a fork, cannot deadlock.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::fork_gate;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside the lock, so a poisoned queue is still a whole queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_job(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Threads of one process; a forked child starts its own.
struct Crew {
    pid: u32,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The crew of a forked child, which must not touch this one's locks.
    successor: OnceLock<Box<Crew>>,
}

impl Crew {
    fn start(num_workers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = (0..num_workers)
            .filter_map(|i| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("dataset-rt-{i}"))
                    .spawn(move || work(&shared))
                    // Fewer threads only mean less overlap: consumers compute what is missing.
                    .ok()
            })
            .collect();
        Self {
            pid: std::process::id(),
            shared,
            threads: Mutex::new(threads),
            successor: OnceLock::new(),
        }
    }
}

fn work(shared: &Shared) {
    while let Some(job) = shared.next_job() {
        let _inside = fork_gate::enter();
        // A job stores its own outcome; a panic that still escapes must not end the worker.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // Threads of the process that forked this one: the system may have given their memory
            // to others here, and letting go of a thread writes into it.
            std::mem::forget(std::mem::take(
                self.threads.get_mut().unwrap_or_else(PoisonError::into_inner),
            ));
        }
    }
}

/// A fixed number of worker threads. Dropping or closing it ends them.
pub struct WorkerPool {
    num_workers: usize,
    crew: Crew,
    was_closed: AtomicBool,
}

impl WorkerPool {
    /// Starts `num_workers` threads.
    pub fn new(num_workers: usize) -> Self {
        Self { num_workers, crew: Crew::start(num_workers), was_closed: AtomicBool::new(false) }
    }

    /// Threads that were asked for.
    pub fn num_workers(&self) -> usize {
        self.num_workers
    }

    fn crew(&self) -> &Crew {
        let pid = std::process::id();
        let mut crew = &self.crew;
        while crew.pid != pid {
            crew = crew.successor.get_or_init(|| Box::new(Crew::start(self.num_workers)));
        }
        crew
    }

    /// Whether [`WorkerPool::close`] was called in this process.
    pub fn is_closed(&self) -> bool {
        self.crew().shared.lock().is_closed
    }

    /// Whether it was closed, be it by a parent of this process. Takes no lock and asks nobody.
    pub fn was_closed(&self) -> bool {
        self.was_closed.load(Ordering::Relaxed)
    }

    /// Queues `job`. After [`WorkerPool::close`] it is dropped unrun.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let shared = &self.crew().shared;
        let mut queue = shared.lock();
        if !queue.is_closed {
            queue.jobs.push_back(Box::new(job));
            drop(queue);
            shared.work.notify_one();
        }
    }

    /// Ends the threads once their current jobs are done; queued jobs are dropped.
    pub fn close(&self) {
        self.was_closed.store(true, Ordering::Relaxed);
        let crew = self.crew();
        let dropped = {
            let mut queue = crew.shared.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.jobs)
        };
        drop(dropped);
        crew.shared.work.notify_all();
        let threads =
            std::mem::take(&mut *crew.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let this_thread = std::thread::current().id();
        for thread in threads {
            // The last owner may be one of the workers, which cannot wait for itself, or a hook of
            // a fork, whose end workers wait for.
            if thread.thread().id() != this_thread && !fork_gate::is_forking() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let pid = std::process::id();
        let mut crews =
            std::iter::successors(Some(&self.crew), |crew| crew.successor.get().map(AsRef::as_ref));
        // A forked child that never used it has nothing to close.
        if crews.any(|crew| crew.pid == pid) {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_in_order_on_one_worker_and_a_panic_does_not_end_it() {
        let pool = WorkerPool::new(1);
        let (report, reports) = mpsc::channel();
        for i in 0..10 {
            let report = report.clone();
            pool.submit(move || {
                assert!(i != 3, "job 3 fails");
                report.send(i).unwrap();
            });
        }
        drop(report);
        assert_eq!(reports.iter().collect::<Vec<i32>>(), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn closing_ends_the_threads_and_drops_what_is_queued() {
        let pool = WorkerPool::new(2);
        pool.close();
        let (report, reports) = mpsc::channel();
        pool.submit(move || report.send(()).unwrap());
        assert!(reports.recv().is_err());
        pool.close();
    }
}
