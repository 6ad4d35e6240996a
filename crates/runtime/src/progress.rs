//! How far the consumer of one iterator is: what a saved state says. Counts what was taken, never
//! what was read ahead. Knows no sample.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dataset_rt_sampler::{Batching, Share, Window};

use crate::fork_gate;

/// What an iterator hands out of its window.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Samples(Share),
    Batches(Batching),
}

/// Where an iterator stands in its window. Written by who holds the iterator, read by others.
#[derive(Debug)]
pub struct Progress {
    window: Window,
    shape: Shape,
    /// Process whose iterator it is.
    process: u32,
    /// Samples taken, damaged ones that were passed over included.
    taken: AtomicU64,
    /// Whole batches taken.
    batches: AtomicU64,
    /// Whether the consumer was told that there are no more samples.
    is_finished: AtomicBool,
}

impl Progress {
    /// Nothing was taken yet of the samples `share` of `window`.
    pub fn of_samples(window: Window, share: Share) -> Self {
        Self::new(window, Shape::Samples(share))
    }

    /// Nothing was taken yet of the batches of `window`.
    pub fn of_batches(window: Window, batching: Batching) -> Self {
        Self::new(window, Shape::Batches(batching))
    }

    fn new(window: Window, shape: Shape) -> Self {
        Self {
            window,
            shape,
            process: fork_gate::process(),
            taken: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
        }
    }

    /// The consumer took the next sample.
    pub fn take_one(&self) {
        // One thread at a time writes: no need for a locked addition.
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The consumer took the first `taken` samples, and with them `batches` whole batches.
    pub fn set(&self, taken: u64, batches: u64) {
        self.taken.store(taken, Ordering::Relaxed);
        self.batches.store(batches, Ordering::Relaxed);
    }

    /// The consumer was told that there are no more samples.
    pub fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    /// Samples taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The window.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Whether the iterator belongs to this process.
    pub fn is_of_this_process(&self) -> bool {
        self.process == fork_gate::process()
    }

    /// Where the stream goes on, or `None` inside a global step.
    pub fn position(&self) -> Option<u64> {
        let is_finished = self.is_finished.load(Ordering::Relaxed);
        match &self.shape {
            Shape::Samples(share) => share.resume_position(self.taken(), is_finished),
            Shape::Batches(batching) => {
                let batches = self.batches.load(Ordering::Relaxed);
                batching.resume_position(batches, self.taken())
            }
        }
    }
}
