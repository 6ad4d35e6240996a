//! Which memory is a mapped file of ours, and which of it can no longer be trusted. Readable in a
//! signal handler: no lock, no allocation. Knows no signal and no system call.
//!
//! Slots are reused when a mapping ends, except those that lost pages: such a mapping is never
//! unmapped, so whoever found its slot may go on using the addresses.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Slots that come at once: more than most processes ever map.
const CHUNK_SLOTS: usize = 128;
/// `Region::lost_from` of a region that lost nothing.
const NOTHING: usize = usize::MAX;

static FIRST: Chunk = Chunk::new();
/// Regions whose lost pages read as zeros at this moment.
static ZEROED: AtomicUsize = AtomicUsize::new(0);
/// Counts how often pages were about to read as zeros.
static LOSSES: AtomicUsize = AtomicUsize::new(0);

/// Slots for ever: chunks are only added.
struct Chunk {
    slots: [Region; CHUNK_SLOTS],
    next: OnceLock<Box<Chunk>>,
}

/// One mapping.
pub(super) struct Region {
    is_taken: AtomicBool,
    /// Odd while the two ends are not to be believed.
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    lost_from: AtomicUsize,
    is_zeroed: AtomicBool,
    /// For messages; never read by the handler.
    name: Mutex<String>,
}

impl Chunk {
    const fn new() -> Self {
        Self { slots: [const { Region::new() }; CHUNK_SLOTS], next: OnceLock::new() }
    }
}

/// Enters the mapping at `range`; before its first byte is touched.
pub(super) fn register(range: &Range<usize>, name: String) -> &'static Region {
    let mut chunk = &FIRST;
    loop {
        if let Some(region) = chunk.slots.iter().find(|slot| slot.claim()) {
            region.publish(range, name);
            return region;
        }
        chunk = match chunk.next.get() {
            Some(next) => next,
            None => {
                // Never `get_or_init`: a thread lost to `fork` in the middle of it would block
                // its child. Somebody else may be faster.
                let _ = chunk.next.set(Box::new(Chunk::new()));
                continue;
            }
        };
    }
}

fn all() -> impl Iterator<Item = &'static Region> {
    let chunks = std::iter::successors(Some(&FIRST), |chunk| chunk.next.get().map(AsRef::as_ref));
    chunks.flat_map(|chunk| &chunk.slots)
}

/// The mapping that holds `address`.
pub(super) fn find(address: usize) -> Option<&'static Region> {
    all().find(|region| region.range().is_some_and(|range| range.contains(&address)))
}

/// A number that differs after pages read as zeros, whoever lost them.
pub(super) fn losses() -> usize {
    LOSSES.load(Ordering::SeqCst)
}

/// Whether pages read as zeros at this moment.
pub(super) fn any_zeroed() -> bool {
    ZEROED.load(Ordering::SeqCst) > 0
}

/// Regions whose lost pages read as zeros. The caller makes them fail again.
pub(super) fn take_zeroed() -> impl Iterator<Item = &'static Region> {
    all().filter(|region| {
        let was_zeroed = region.is_zeroed.swap(false, Ordering::SeqCst);
        if was_zeroed {
            ZEROED.fetch_sub(1, Ordering::SeqCst);
        }
        was_zeroed
    })
}

impl Region {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            version: AtomicUsize::new(1),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            lost_from: AtomicUsize::new(NOTHING),
            is_zeroed: AtomicBool::new(false),
            name: Mutex::new(String::new()),
        }
    }

    fn claim(&self) -> bool {
        !self.is_taken.load(Ordering::Relaxed) && !self.is_taken.swap(true, Ordering::SeqCst)
    }

    fn publish(&self, range: &Range<usize>, name: String) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
        self.start.store(range.start, Ordering::SeqCst);
        self.end.store(range.end, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The addresses; `None` while the slot changes hands, which only happens to mappings that
    /// the caller does not use.
    pub(super) fn range(&self) -> Option<Range<usize>> {
        let version = self.version.load(Ordering::SeqCst);
        let range = self.start.load(Ordering::SeqCst)..self.end.load(Ordering::SeqCst);
        let is_stable = version.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == version;
        is_stable.then_some(range)
    }

    /// Frees the slot; before the memory is unmapped. A region that lost pages keeps it: false.
    pub(super) fn release(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        self.version.fetch_add(1, Ordering::SeqCst);
        self.is_taken.store(false, Ordering::SeqCst);
        true
    }

    /// Remembers that the bytes from `address` on cannot be read and are about to be zeros.
    pub(super) fn lose_from(&self, address: usize) {
        self.lost_from.fetch_min(address, Ordering::SeqCst);
        if !self.is_zeroed.swap(true, Ordering::SeqCst) {
            ZEROED.fetch_add(1, Ordering::SeqCst);
        }
        LOSSES.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether its lost bytes read as zeros now.
    pub(super) fn is_zeroed(&self) -> bool {
        self.is_zeroed.load(Ordering::SeqCst)
    }

    /// Whether bytes of it could not be read.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost_from.load(Ordering::Relaxed) != NOTHING
    }

    /// The bytes that could not be read.
    pub(super) fn lost(&self) -> Range<usize> {
        self.lost_from.load(Ordering::SeqCst)..self.end.load(Ordering::SeqCst)
    }

    /// What is mapped, for messages.
    pub(super) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Addresses no mapping ever has.
    const BASE: usize = 8;

    #[test]
    fn a_freed_slot_is_reused_and_no_longer_found() {
        let first = register(&(BASE..BASE + 8), "first".to_owned());
        assert!(std::ptr::eq(find(BASE + 7).unwrap(), first));
        assert!(find(BASE + 8).is_none());
        assert!(first.release());
        assert!(find(BASE).is_none());
    }

    #[test]
    fn there_is_room_for_any_number_of_mappings() {
        let count = 3 * CHUNK_SLOTS;
        let at = |i: usize| 100 + 2 * i..101 + 2 * i;
        let regions: Vec<_> = (0..count).map(|i| register(&at(i), i.to_string())).collect();
        for (i, region) in regions.iter().enumerate() {
            assert_eq!(find(at(i).start).unwrap().name(), i.to_string());
            assert_eq!(region.name(), i.to_string());
        }
        assert!(regions.iter().all(|region| region.release()));
    }
}
