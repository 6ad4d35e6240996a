//! The one place that maps memory. Knows no format.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_buffer::Buffer;
use memmap2::{Advice, Mmap};

use crate::{Error, Result};

/// A whole file mapped read-only. Buffers made from it keep it mapped.
#[derive(Debug)]
pub struct Mapping {
    map: Arc<MappedBytes>,
}

#[derive(Debug)]
struct MappedBytes(Mmap);

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Mapping {
    /// Maps all of `file`, which must not be empty.
    ///
    /// # Errors
    /// `Exhausted` when no more mappings are allowed, else as the system fails.
    pub(super) fn new(file: &File, path: &Path) -> Result<Self> {
        // Another process that truncates or overwrites the file in place breaks the argument below:
        // views are promised only while files are unmodified, and `io="pread"` maps nothing.
        // SAFETY: published files are never written again by this library, so the mapped bytes
        // stay what they are for as long as the mapping lives.
        let map = unsafe { Mmap::map(file) }.map_err(|e| Error::from_io("map", path, &e))?;
        // Samples are read in random order: read-ahead around each would waste the page cache.
        // A refused hint costs speed only.
        let _ = map.advise(Advice::Random);
        Ok(Self { map: Arc::new(MappedBytes(map)) })
    }

    /// The mapped bytes.
    pub fn as_slice(&self) -> &[u8] {
        (*self.map).as_ref()
    }

    /// The mapped bytes as an Arrow buffer that keeps the mapping alive.
    pub fn to_buffer(&self) -> Buffer {
        Buffer::from(bytes::Bytes::from_owner(SharedMap(Arc::clone(&self.map))))
    }

    /// Asks the kernel to read `range` ahead; a hint.
    pub fn advise_willneed(&self, range: Range<u64>) {
        let len = self.as_slice().len() as u64;
        let (start, end) = (range.start.min(len), range.end.min(len));
        if start < end {
            let (start, len) = (start as usize, (end - start) as usize);
            let _ = self.map.0.advise_range(Advice::WillNeed, start, len);
        }
    }
}

struct SharedMap(Arc<MappedBytes>);

impl AsRef<[u8]> for SharedMap {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}
