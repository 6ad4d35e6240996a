//! One file of a cache, opened when it is first used: mapped, or read through few descriptors.
//! Checks its size, not its contents.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;

use super::advice;
use super::descriptors::Descriptor;
use super::origin::Origin;
use crate::store::{Baseline, IoMode, Mapping, ReadFile, Section};
use crate::{Error, Kind, Result};

/// A file that costs no descriptor and no mapping before it is used.
pub(in crate::read) struct LazyFile {
    origin: Arc<Origin>,
    name: String,
    size_bytes: u64,
    opened: OnceLock<Opened>,
}

enum Opened {
    Mapped(Box<Mapped>),
    Read(Descriptor),
}

struct Mapped {
    file: ReadFile,
    mapping: Mapping,
    /// All of it, for others.
    view: Buffer,
    /// Open while there are few: asking it for a change costs a third of asking the path.
    twin: Descriptor,
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

    /// Whether the file is mapped. Opens it.
    #[inline]
    pub fn is_mapped(&self) -> Result<bool> {
        self.opened().map(|opened| matches!(opened, Opened::Mapped(_)))
    }

    /// The mapped bytes of the whole file, or `None` where it is read by copying.
    #[inline]
    pub fn mapped<'a>(&'a self, section: Section<'a>) -> Result<Option<&'a [u8]>> {
        match self.opened()? {
            Opened::Mapped(mapped) => mapped.mapping.bytes(section).map(Some),
            Opened::Read(_) => Ok(None),
        }
    }

    /// [`LazyFile::mapped`] where the file was opened before.
    #[inline]
    pub fn mapped_already<'a>(&'a self, section: Section<'a>) -> Option<&'a [u8]> {
        match self.opened.get()? {
            Opened::Mapped(mapped) => mapped.mapping.bytes(section).ok(),
            Opened::Read(_) => None,
        }
    }

    /// `range` of a mapped file, to be touched in guarded sections or by others.
    pub fn view(&self, range: &Range<u64>) -> Result<Buffer> {
        let place = self.check_range(range)?;
        match self.opened()? {
            Opened::Mapped(mapped) => {
                mapped.mapping.check_readable()?;
                Ok(mapped.view.slice_with_length(place.start, place.len()))
            }
            Opened::Read(_) => Err(Error::internal(format!("{} is not mapped", self.name))),
        }
    }

    /// The bytes of `range`, unverified: shared with the mapping, or read.
    pub fn buffer(&self, range: Range<u64>) -> Result<Buffer> {
        if self.is_mapped()? {
            return self.view(&range);
        }
        let place = self.check_range(&range)?;
        let mut bytes = Vec::new();
        let too_large = |_| crate::read::expansion::too_large(place.len() as u64);
        bytes.try_reserve_exact(place.len()).map_err(too_large)?;
        bytes.resize(place.len(), 0);
        self.read_at(range.start, &mut bytes)?;
        Ok(Buffer::from_vec(bytes))
    }

    /// `range` as positions in memory, if it lies within the file.
    #[inline]
    pub fn check_range(&self, range: &Range<u64>) -> Result<Range<usize>> {
        if range.start > range.end || range.end > self.size_bytes {
            return Err(self.out_of_range(range));
        }
        Ok(range.start as usize..range.end as usize)
    }

    /// The error for a range that does not lie within the file.
    #[cold]
    pub fn out_of_range(&self, range: &Range<u64>) -> Error {
        Error::corrupt(format!(
            "bytes {}..{} lie outside the file of {} bytes; rebuild the cache; in {}",
            range.start, range.end, self.size_bytes, self.name
        ))
    }

    /// Fills `out` with the unverified bytes at `offset` of a file that is not mapped.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.opened()? {
            Opened::Mapped(mapped) => mapped.file.read_at(offset, out),
            Opened::Read(descriptor) => {
                descriptor.with(|file| file.read_at(offset, out)).map_err(|e| self.explain(e))
            }
        }
    }

    /// A hint; failure costs speed only.
    pub fn advise_willneed(&self, range: Range<u64>) {
        match self.opened() {
            Ok(Opened::Mapped(mapped)) => mapped.file.advise_willneed(range),
            Ok(Opened::Read(descriptor)) => {
                let _ = descriptor.with(|file| {
                    file.advise_willneed(range);
                    Ok(())
                });
            }
            Err(_) => {}
        }
    }

    /// Whether the byte at `offset` is in memory; true where that cannot be told.
    pub fn is_resident(&self, offset: u64) -> bool {
        let descriptor = match self.opened() {
            Ok(Opened::Mapped(mapped)) => &mapped.twin,
            Ok(Opened::Read(descriptor)) => descriptor,
            Err(_) => return true,
        };
        descriptor.with(|file| Ok(file.is_resident(offset))).unwrap_or(true)
    }

    /// Fails when an opened file changed since, or could not be read.
    pub fn check_unchanged(&self) -> Result<()> {
        let changed = match self.opened.get() {
            None => false,
            Some(Opened::Mapped(mapped)) => {
                mapped.mapping.check_readable()?;
                match mapped.twin.kept() {
                    Some(kept) => kept.changed()?,
                    None => mapped.file.changed()?,
                }
            }
            Some(Opened::Read(descriptor)) => {
                descriptor.with(ReadFile::changed).map_err(|e| self.explain(e))?
            }
        };
        if changed { Err(self.origin.conflict(&self.name)) } else { Ok(()) }
    }

    #[inline]
    fn opened(&self) -> Result<&Opened> {
        match self.opened.get() {
            Some(opened) => Ok(opened),
            None => self.open_first(),
        }
    }

    #[cold]
    fn open_first(&self) -> Result<&Opened> {
        let opened = self.open().map_err(|e| self.explain(e))?;
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        let _ = self.opened.set(opened);
        self.opened.get().ok_or_else(|| Error::internal("a file just opened is not there"))
    }

    fn open(&self) -> Result<Opened> {
        let path = self.origin.join(&self.name);
        let file = ReadFile::open(&path, self.origin.io)?;
        if file.size_bytes() != self.size_bytes {
            return Err(wrong_size(&self.name, self.size_bytes, file.size_bytes()));
        }
        if self.origin.is_replaced() {
            return Err(self.origin.conflict(&self.name));
        }
        let Some(mapping) = file.mapped().cloned() else {
            return Ok(Opened::Read(Descriptor::new(path, file)));
        };
        let twin = ReadFile::open(&path, IoMode::Pread)?;
        if !Baseline::new(file.identity()).holds(twin.identity()) {
            return Err(self.origin.conflict(&self.name));
        }
        let (view, twin) = (mapping.view()?, Descriptor::new(path, twin));
        Ok(Opened::Mapped(Box::new(Mapped { file, mapping, view, twin })))
    }

    /// A file that is gone or short because its cache was replaced is a conflict, not damage.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        let may_be_replaced = matches!(error.kind(), Kind::NotFound | Kind::Corrupt);
        if may_be_replaced && self.origin.is_replaced() {
            return self.origin.conflict(&self.name);
        }
        match error.kind() {
            Kind::NotFound => missing(&self.name),
            _ => error,
        }
    }
}

/// The error for a file whose length is not the manifest's.
pub(in crate::read) fn wrong_size(name: &str, expected: u64, found: u64) -> Error {
    let advice = advice(name);
    Error::corrupt(format!(
        "{name} is damaged: it has {found} bytes, expected {expected}; {advice}"
    ))
}

/// The error for a file that the manifest names and the directory lacks.
pub(in crate::read) fn missing(name: &str) -> Error {
    let advice = advice(name);
    Error::corrupt(format!("{name} is missing, which the manifest names; {advice}"))
}
