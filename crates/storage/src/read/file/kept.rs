//! Verified blocks of a file that is read by copying, kept for small reads to come. Knows nothing
//! of what the bytes mean.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that all caches of this process keep: index and metadata of about 700,000 rows with three
/// columns. Rows beyond that cost a read of each page again.
const KEPT_BYTES_MAX: u64 = 32 * 1024 * 1024;

static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);

/// The blocks of one file that came first; none is ever exchanged for another, so that looking
/// one up takes no lock.
pub(super) struct KeptBlocks {
    blocks: Box<[OnceLock<Box<[u8]>>]>,
}

impl KeptBlocks {
    /// None yet, of a file of so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self { blocks: (0..blocks).map(|_| OnceLock::new()).collect() }
    }

    /// Block `block`, if it is kept.
    #[inline]
    pub fn get(&self, block: u64) -> Option<&[u8]> {
        self.blocks.get(block as usize)?.get().map(AsRef::as_ref)
    }

    /// Keeps what `read` brings as block `block`, of at most `size` bytes, while there is room.
    pub fn keep<E>(
        &self,
        block: u64,
        size: u64,
        read: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Option<&[u8]>, E> {
        let Some(slot) = self.blocks.get(block as usize) else { return Ok(None) };
        let Some(room) = Room::take(size) else { return Ok(None) };
        let bytes = read()?.into_boxed_slice();
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        if slot.set(bytes).is_ok() {
            // Given back with the block.
            std::mem::forget(room);
        }
        Ok(slot.get().map(AsRef::as_ref))
    }
}

impl Drop for KeptBlocks {
    fn drop(&mut self) {
        let kept = self.blocks.iter().filter_map(OnceLock::get);
        drop(Room(kept.map(|block| block.len() as u64).sum()));
    }
}

/// A part of [`KEPT_BYTES_MAX`].
struct Room(u64);

impl Room {
    fn take(bytes: u64) -> Option<Self> {
        let room = Self(bytes);
        // Dropped again if it was too much.
        let before = KEPT_BYTES.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= KEPT_BYTES_MAX).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        KEPT_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}
