//! The one place that maps memory. Knows no format.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_buffer::Buffer;
use memmap2::{Advice, Mmap};

use super::guard::{self, Section};
use super::regions::{self, Region};
use crate::{Error, Result};

/// Bytes of one hint: the kernel ignores what is beyond the read-ahead of the device, which is 128
/// KiB unless somebody raised it.
pub(super) const HINT_BYTES: usize = 128 * 1024;

/// A whole file mapped read-only. Buffers made from it keep it mapped.
///
/// Its bytes are given out for the length of a guarded section, or as a view for others.
#[derive(Clone, Debug)]
pub struct Mapping {
    bytes: Arc<MappedBytes>,
}

struct MappedBytes {
    /// `None` only while it is dropped.
    map: Option<Mmap>,
    region: &'static Region,
}

impl Mapping {
    /// Maps all of `file`, which must not be empty.
    ///
    /// # Errors
    /// `Exhausted` when no more mappings are allowed, else as the system fails.
    pub(super) fn new(file: &File, path: &Path) -> Result<Self> {
        guard::arm();
        // Another process may break the argument below: bytes that vanish raise a signal that
        // `guard` turns into an error in sections, and `LazyFile::check_unchanged` notices bytes
        // that changed before anything made of them is handed on. Views are promised only while
        // files are unmodified; `io="pread"` maps nothing.
        // SAFETY: published files are never written again by this library, so the mapped bytes
        // stay what they are for as long as the mapping lives.
        let map = unsafe { Mmap::map(file) }.map_err(|e| Error::from_io("map", path, &e))?;
        // Samples are read in random order: read-ahead around each would waste the page cache.
        // A refused hint costs speed only.
        let _ = map.advise(Advice::Random);
        let start = map.as_ptr() as usize;
        let range = start..start.saturating_add(map.len());
        let region = regions::register(&range, path.display().to_string());
        Ok(Self { bytes: Arc::new(MappedBytes { map: Some(map), region }) })
    }

    /// The mapped bytes.
    ///
    /// # Errors
    /// `Conflict` when some of them could not be read once.
    #[inline]
    pub fn bytes<'a>(&'a self, _inside: Section<'a>) -> Result<&'a [u8]> {
        self.check_readable()?;
        Ok((*self.bytes).as_ref())
    }

    /// The mapped bytes as an Arrow buffer that keeps the mapping alive. Whoever touches it does
    /// so in a guarded section, or dies with the process when the file is cut short.
    ///
    /// # Errors
    /// `Conflict` when some of them could not be read once.
    pub fn view(&self) -> Result<Buffer> {
        self.check_readable()?;
        Ok(Buffer::from(bytes::Bytes::from_owner(SharedBytes(Arc::clone(&self.bytes)))))
    }

    /// Fails when some bytes could not be read once: the file is refused ever after.
    ///
    /// # Errors
    /// `Conflict` then.
    #[inline]
    pub fn check_readable(&self) -> Result<()> {
        if self.bytes.region.is_lost() {
            return Err(guard::unreadable(&self.bytes.region.name()));
        }
        Ok(())
    }

    /// Asks the kernel to read `range` ahead; a hint.
    pub fn advise_willneed(&self, range: Range<u64>) {
        let Some(map) = &self.bytes.map else { return };
        let end = range.end.min(map.len() as u64) as usize;
        for start in (range.start as usize..end).step_by(HINT_BYTES) {
            let _ = map.advise_range(Advice::WillNeed, start, HINT_BYTES.min(end - start));
        }
    }
}

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl std::fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} mapped bytes", self.as_ref().len())
    }
}

impl Drop for MappedBytes {
    fn drop(&mut self) {
        // The place of lost pages stays ours for ever: another thread may be about to put
        // something there. It holds no memory of its own.
        if !self.region.release() {
            std::mem::forget(self.map.take());
        }
    }
}

struct SharedBytes(Arc<MappedBytes>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}
