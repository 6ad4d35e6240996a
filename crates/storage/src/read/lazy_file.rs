//! One file of a cache, opened when it is first used: mapped, or read through few descriptors.
//! Checks its size, not its contents.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;

use super::descriptors::Descriptor;
use crate::store::{IoMode, ReadFile};
use crate::{Error, Kind, Result};

/// The directory that a cache was opened in.
pub(super) struct Origin {
    /// Path as the caller gave it.
    pub directory: PathBuf,
    /// How its files are read.
    pub io: IoMode,
    /// The manifest as it was when the cache was opened. A rewritten cache has another one.
    pub manifest: ReadFile,
}

/// A file that costs no descriptor and no mapping before it is used.
pub(super) struct LazyFile {
    origin: Arc<Origin>,
    name: String,
    size_bytes: u64,
    opened: OnceLock<Opened>,
}

enum Opened {
    /// The whole file; `ReadFile` keeps what tells a change, not a descriptor.
    Mapped(Buffer, ReadFile),
    Read(Descriptor),
}

impl LazyFile {
    /// The file `name` of the cache, which the manifest says has `size_bytes`.
    pub fn new(origin: &Arc<Origin>, name: &str, size_bytes: u64) -> Self {
        let (origin, name) = (Arc::clone(origin), name.to_owned());
        Self { origin, name, size_bytes, opened: OnceLock::new() }
    }

    /// Path relative to the cache directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length that the manifest states; an opened file has exactly it.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The mapping of the whole file, or `None` where it is read by copying.
    pub fn mapping(&self) -> Result<Option<&Buffer>> {
        Ok(match self.opened()? {
            Opened::Mapped(buffer, _) => Some(buffer),
            Opened::Read(_) => None,
        })
    }

    /// The bytes of `range`, unverified: shared with the mapping, or read.
    pub fn buffer(&self, range: Range<u64>) -> Result<Buffer> {
        if range.start > range.end || range.end > self.size_bytes {
            return Err(Error::corrupt(format!(
                "bytes {}..{} lie outside the file of {} bytes; rebuild the cache; in {}",
                range.start, range.end, self.size_bytes, self.name
            )));
        }
        let len = (range.end - range.start) as usize;
        match self.opened()? {
            Opened::Mapped(buffer, _) => Ok(buffer.slice_with_length(range.start as usize, len)),
            Opened::Read(_) => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(len).map_err(|_| super::too_large(len as u64))?;
                bytes.resize(len, 0);
                self.read_at(range.start, &mut bytes)?;
                Ok(Buffer::from_vec(bytes))
            }
        }
    }

    /// Fills `out` with the unverified bytes at `offset`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.opened()? {
            Opened::Mapped(buffer, _) => {
                let bytes = usize::try_from(offset)
                    .ok()
                    .and_then(|start| buffer.get(start..start.checked_add(out.len())?));
                let bytes = bytes.ok_or_else(|| Error::internal("read outside a mapping"))?;
                out.copy_from_slice(bytes);
                Ok(())
            }
            Opened::Read(descriptor) => {
                descriptor.with(|file| file.read_at(offset, out)).map_err(|e| self.explain(e))
            }
        }
    }

    /// A hint; failure costs speed only.
    pub fn advise_willneed(&self, range: Range<u64>) {
        if let Ok(Opened::Mapped(_, file)) = self.opened() {
            file.advise_willneed(range);
        }
    }

    /// Fails when an opened file changed since.
    pub fn check_unchanged(&self) -> Result<()> {
        let changed = match self.opened.get() {
            None => false,
            Some(Opened::Mapped(_, file)) => file.changed()?,
            Some(Opened::Read(descriptor)) => descriptor.with(ReadFile::changed)?,
        };
        if changed { Err(self.conflict()) } else { Ok(()) }
    }

    fn opened(&self) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open().map_err(|e| self.explain(e))?;
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        let _ = self.opened.set(opened);
        self.opened.get().ok_or_else(|| Error::internal("a file just opened is not there"))
    }

    #[cold]
    fn open(&self) -> Result<Opened> {
        let path = self.origin.directory.join(&self.name);
        let file = ReadFile::open(&path, self.origin.io)?;
        if file.size_bytes() != self.size_bytes {
            return Err(wrong_size(&self.name, self.size_bytes, file.size_bytes()));
        }
        if self.origin.manifest.changed()? {
            return Err(self.conflict());
        }
        Ok(match file.mapped() {
            Some(mapping) => Opened::Mapped(mapping.to_buffer(), file),
            None => Opened::Read(Descriptor::new(path, file)),
        })
    }

    /// A file that is gone or other than at open is a conflict, not damage.
    fn explain(&self, error: Error) -> Error {
        let moved = matches!(self.origin.manifest.changed(), Ok(true) | Err(_));
        let replaced = matches!(error.kind(), Kind::NotFound | Kind::Corrupt) && moved;
        if replaced { self.conflict() } else { error.within(&self.name) }
    }

    fn conflict(&self) -> Error {
        Error::conflict(format!(
            "the cache changed while open; reopen it; found at {} of {}",
            self.name,
            self.origin.directory.display()
        ))
    }
}

/// The error for a file whose length is not the manifest's.
pub(super) fn wrong_size(name: &str, expected: u64, found: u64) -> Error {
    Error::corrupt(format!(
        "file has {found} bytes; expected {expected}; restore or rebuild the cache; in {name}"
    ))
}
