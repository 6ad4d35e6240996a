//! Bytes that are there, and why others are not. Knows no file.

use std::ops::Range;

use crate::Result;

/// Looks for signals; its error ends the work.
pub(super) type Attend<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Why bytes are not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// File within the cache.
    pub file: String,
    /// What is wrong with it, and where.
    pub reason: String,
}

/// Bytes that are there, or why they are not. The outer error of functions that return one is
/// never the cache's fault.
pub(super) type Found<T> = std::result::Result<T, Loss>;

/// Part of a file, with holes where bytes are not proven.
pub(super) struct Region {
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) holes: Vec<(Range<u64>, String)>,
}

impl Region {
    /// Bytes that came from elsewhere: from a buffer that was decompressed.
    pub(super) fn whole(name: &str, bytes: Vec<u8>) -> Self {
        Self { name: name.to_owned(), start: 0, bytes, holes: Vec::new() }
    }

    /// A part of which nothing is there.
    pub(super) fn lost(loss: Loss) -> Self {
        let holes = vec![(0..u64::MAX, loss.reason)];
        Self { name: loss.file, start: 0, bytes: Vec::new(), holes }
    }

    /// The proven bytes of `range`.
    pub(super) fn get(&self, range: Range<u64>) -> Found<&[u8]> {
        let loss = |reason: String| Loss { file: self.name.clone(), reason };
        if range.start == range.end {
            return Ok(&[]);
        }
        let touches = |hole: &Range<u64>| hole.start < range.end && range.start < hole.end;
        if let Some((_, reason)) = self.holes.iter().find(|(hole, _)| touches(hole)) {
            return Err(loss(reason.clone()));
        }
        let place = |at: u64| at.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        place(range.start)
            .zip(place(range.end))
            .and_then(|(start, end)| self.bytes.get(start..end))
            .ok_or_else(|| loss("a row names bytes that are not among its column's".to_owned()))
    }

    /// Whether nothing is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.holes.is_empty()
    }
}
