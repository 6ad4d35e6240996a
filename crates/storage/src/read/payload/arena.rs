//! One piece of memory for the payloads that one call copies, used again when they are gone.
//! Knows nothing of files.

use std::ops::Range;
use std::sync::Mutex;

use arrow_buffer::Buffer;

use super::fetch::Payload;
use crate::read::expansion::too_large;
use crate::read::locate::PayloadPlace;
use crate::{Error, Result};

/// Memory that waits for its next use, of all threads together: fresh pages cost more than the
/// bytes that are copied into them.
const IDLE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pieces of it: looking through them is cheap.
const IDLE_MAX: usize = 16;
/// Arenas come in multiples of an eighth of the next power of two, so that another block's fits.
const SIZE_STEPS: usize = 8;

/// The lock is only tried: another thread may hold it while this process forks.
static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// The copied payloads of one call.
pub(super) struct Arena {
    memory: Memory,
    /// Bytes of payloads so far.
    used: usize,
    /// Where each lies, in the order asked for.
    pub ranges: Vec<Range<usize>>,
}

/// Bytes that may hold an earlier use; they are handed out once they are overwritten.
struct Memory(Vec<u8>);

impl Arena {
    /// Room for `places`, taken at once: growing would copy. Pages not yet written cost nothing.
    pub fn new(places: &[PayloadPlace]) -> Result<Self> {
        let total: u64 = places.iter().map(|place| u64::from(place.record.raw_len())).sum();
        let total = usize::try_from(total).map_err(|_| too_large(total))?;
        let memory = Memory::of(total)?;
        Ok(Self { memory, used: 0, ranges: Vec::with_capacity(places.len()) })
    }

    /// Bytes of payloads so far.
    pub fn len(&self) -> usize {
        self.used
    }

    /// The next `len` bytes, to be overwritten: what they hold is of no meaning.
    pub fn grow(&mut self, len: usize) -> Result<&mut [u8]> {
        let range = self.used..self.used + len;
        let bytes = &mut self.memory.0;
        if bytes.len() < range.end {
            bytes.try_reserve(range.end - bytes.len()).map_err(|_| too_large(len as u64))?;
            bytes.resize(range.end, 0);
        }
        self.used = range.end;
        bytes.get_mut(range).ok_or_else(|| Error::internal("arena did not grow"))
    }

    /// Ends the payload whose bytes came last.
    pub fn close_payload(&mut self) {
        let start = self.ranges.last().map_or(0, |last| last.end);
        self.ranges.push(start..self.used);
    }

    /// The bytes of all payloads, and where each lies.
    pub fn into_buffer(self) -> (Buffer, Vec<Range<usize>>) {
        let bytes = Buffer::from(bytes::Bytes::from_owner(self.memory));
        (bytes.slice_with_length(0, self.used), self.ranges)
    }

    /// The payloads, sharing the arena.
    pub fn finish(self, out: &mut Vec<Payload>) {
        let (bytes, ranges) = self.into_buffer();
        // Ranges were recorded as bytes came.
        let payload = |range: Range<usize>| bytes.slice_with_length(range.start, range.len());
        out.extend(ranges.into_iter().map(|range| Payload(payload(range))));
    }
}

impl Memory {
    fn of(size: usize) -> Result<Self> {
        let fits = |bytes: &Vec<u8>| bytes.capacity() >= size && bytes.capacity() / 2 <= size;
        if let Ok(mut idle) = IDLE.try_lock()
            && let Some(found) = idle.iter().rposition(fits)
        {
            return Ok(Self(idle.remove(found)));
        }
        let step = size.next_power_of_two() / SIZE_STEPS;
        let mut bytes = Vec::new();
        let room = size.checked_next_multiple_of(step.max(1)).unwrap_or(size);
        bytes.try_reserve_exact(room).map_err(|_| too_large(size as u64))?;
        Ok(Self(bytes))
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        if bytes.capacity() == 0 {
            return;
        }
        let Ok(mut idle) = IDLE.try_lock() else { return };
        idle.push(bytes);
        // What came first makes room: its size may be one that nobody asks for any more.
        let mut held: usize = idle.iter().map(Vec::capacity).sum();
        while held > IDLE_BYTES_MAX || idle.len() > IDLE_MAX {
            held -= idle.remove(0).capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_what_waits_is_bounded() {
        let size = 3 << 20;
        let arena = |fill: u8| {
            let mut arena = Arena { memory: Memory::of(size).unwrap(), used: 0, ranges: vec![] };
            arena.grow(size).unwrap().fill(fill);
            arena.close_payload();
            let mut payloads = Vec::new();
            arena.finish(&mut payloads);
            payloads.remove(0)
        };
        // Other tests may have the list, or take the memory, this very moment.
        let is_used_again = |_| {
            drop(arena(1));
            !Memory::of(size).unwrap().0.is_empty()
        };
        assert!((0..100).any(is_used_again), "fresh memory has no bytes yet");
        let mut held = vec![arena(2)];
        held.extend((0..30).map(|_| arena(3)));
        assert!(held[0].0.iter().all(|&byte| byte == 2), "nobody else writes into it");
        held.clear();
        let idle = IDLE.lock().unwrap();
        assert!(idle.iter().map(Vec::capacity).sum::<usize>() <= IDLE_BYTES_MAX);
    }
}
