//! A bounded queue of row groups between the source and the encoders. Bounded in groups and bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a queue may hold at once, work taken from it but not finished included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBound {
    /// Groups that are always welcome: one per worker keeps all of them busy.
    pub groups: usize,
    /// More groups are welcome while they hold fewer samples than this together.
    pub samples: u64,
    /// No second group is taken in beyond this many bytes.
    pub bytes: u64,
}

/// Size of one item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemSize {
    /// Samples in the group.
    pub samples: u64,
    /// Bytes of the group before compression.
    pub bytes: u64,
}

struct Inner<T> {
    waiting: VecDeque<T>,
    groups: usize,
    held: ItemSize,
    is_closed: bool,
}

/// First in, first out; room is given back by [`BoundedQueue::finished`].
pub struct BoundedQueue<T> {
    bound: QueueBound,
    inner: Mutex<Inner<T>>,
    changed: Condvar,
}

/// How long a full queue lets the source wait before it looks for signals.
const WAIT_SLICE: Duration = Duration::from_millis(50);

impl<T> BoundedQueue<T> {
    /// An empty queue.
    pub fn new(bound: QueueBound) -> Self {
        let inner = Inner {
            waiting: VecDeque::new(),
            groups: 0,
            held: ItemSize::default(),
            is_closed: false,
        };
        Self { bound, inner: Mutex::new(inner), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, inner: &Inner<T>, size: ItemSize) -> bool {
        let few = inner.groups < self.bound.groups
            || inner.held.samples + size.samples <= self.bound.samples;
        inner.groups == 0 || (few && inner.held.bytes + size.bytes <= self.bound.bytes)
    }

    /// Waits a moment for room. Gives the item back when there is none yet; `None` means taken,
    /// or dropped because the queue is closed.
    pub fn offer(&self, item: T, size: ItemSize) -> Option<T> {
        let mut inner = self.lock();
        if !inner.is_closed && !self.has_room(&inner, size) {
            inner = self
                .changed
                .wait_timeout(inner, WAIT_SLICE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if inner.is_closed {
            return None;
        }
        if !self.has_room(&inner, size) {
            return Some(item);
        }
        inner.groups += 1;
        inner.held.samples += size.samples;
        inner.held.bytes += size.bytes;
        inner.waiting.push_back(item);
        drop(inner);
        self.changed.notify_all();
        None
    }

    /// The next item; `None` once the queue is closed and empty.
    pub fn take(&self) -> Option<T> {
        let mut inner = self.lock();
        loop {
            if let Some(item) = inner.waiting.pop_front() {
                return Some(item);
            }
            if inner.is_closed {
                return None;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives back the room of an item whose work is done.
    pub fn finished(&self, size: ItemSize) {
        let mut inner = self.lock();
        inner.groups = inner.groups.saturating_sub(1);
        inner.held.samples = inner.held.samples.saturating_sub(size.samples);
        inner.held.bytes = inner.held.bytes.saturating_sub(size.bytes);
        drop(inner);
        self.changed.notify_all();
    }

    /// No more items; what waits is still given out unless `discard`.
    pub fn close(&self, discard: bool) {
        let mut inner = self.lock();
        inner.is_closed = true;
        let dropped = discard.then(|| std::mem::take(&mut inner.waiting));
        drop(inner);
        drop(dropped);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(samples: u64, bytes: u64) -> ItemSize {
        ItemSize { samples, bytes }
    }

    #[test]
    fn bytes_bound_the_queue_and_one_large_item_passes_alone() {
        let queue = BoundedQueue::new(QueueBound { groups: 4, samples: 0, bytes: 100 });
        assert_eq!(queue.offer('a', size(1, 500)), None);
        assert_eq!(queue.offer('b', size(1, 1)), Some('b'));
        assert_eq!(queue.take(), Some('a'));
        assert_eq!(queue.offer('b', size(1, 1)), Some('b'), "work in progress still counts");
        queue.finished(size(1, 500));
        assert_eq!(queue.offer('b', size(1, 1)), None);
    }

    #[test]
    fn more_groups_are_welcome_while_their_samples_are_few() {
        let queue = BoundedQueue::new(QueueBound { groups: 1, samples: 10, bytes: 100 });
        for _ in 0..5 {
            assert_eq!(queue.offer((), size(2, 1)), None);
        }
        assert_eq!(queue.offer((), size(2, 1)), Some(()));
    }

    #[test]
    fn a_closed_queue_gives_out_what_it_holds_or_nothing() {
        for (discard, expected) in [(false, Some(1)), (true, None)] {
            let queue = BoundedQueue::new(QueueBound { groups: 2, samples: 0, bytes: 9 });
            queue.offer(1, size(1, 1));
            queue.close(discard);
            assert_eq!(queue.take(), expected);
            assert_eq!(queue.take(), None);
            assert_eq!(queue.offer(2, size(1, 1)), None);
        }
    }
}
