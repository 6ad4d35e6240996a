//! A cursor over one verified file for many small reads: mapped ones cost nothing, others come from
//! blocks that are kept, or share one `pread` where they are neighbours. Knows nothing of what the bytes mean.

use std::ops::Range;

use super::verified::{MappedView, VerifiedFile};
use crate::Result;
use crate::store::Section;

/// Bytes read around a small range of a file that is not mapped: one page costs as much as 8
/// bytes do, and holds the next 511 values of an 8-byte column.
const WINDOW_BYTES: u64 = 4096;

/// Small reads of one file. The bytes it keeps were verified; the file may change afterwards, so
/// a window lives no longer than one call of the reader.
pub(in crate::read) struct Window<'a> {
    section: Section<'a>,
    file: &'a VerifiedFile,
    mapped: Option<MappedView<'a>>,
    held: Range<u64>,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'a> Window<'a> {
    /// A cursor that has read nothing yet.
    pub fn new(section: Section<'a>, file: &'a VerifiedFile) -> Result<Self> {
        let mapped = file.view(section)?;
        Ok(Self { section, file, mapped, held: 0..0, bytes: Vec::new(), scratch: Vec::new() })
    }

    /// The verified bytes of `range`.
    #[inline]
    pub fn get(&mut self, range: Range<u64>) -> Result<&[u8]> {
        match &self.mapped {
            Some(view) => view.get(range),
            None => match self.file.kept(self.section, &range)? {
                Some(found) => Ok(found),
                None => self.get_read(range),
            },
        }
    }

    fn get_read(&mut self, range: Range<u64>) -> Result<&[u8]> {
        let inside = self.held.start <= range.start && range.end <= self.held.end;
        if !inside || range.start > range.end {
            let start = range.start / WINDOW_BYTES * WINDOW_BYTES;
            let end = range.end.max(start.saturating_add(WINDOW_BYTES));
            // A range past the end of the file must fail, a window past it must not.
            let end = if range.end > self.file.size_bytes() {
                range.end
            } else {
                end.min(self.file.size_bytes())
            };
            let start = start.min(range.start);
            self.held = 0..0;
            self.bytes.clear();
            let (bytes, scratch) = (&mut self.bytes, &mut self.scratch);
            self.file.read_append(self.section, start..end, bytes, scratch)?;
            self.held = start..end;
        }
        let from = (range.start - self.held.start) as usize;
        let len = range.end.saturating_sub(range.start) as usize;
        Ok(self.bytes.get(from..from + len).unwrap_or_default())
    }
}
