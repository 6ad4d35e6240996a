//! One piece of memory for the payloads that one call copies. Knows nothing of files.

use std::ops::Range;

use arrow_buffer::Buffer;

use super::fetch::Payload;
use crate::read::expansion::too_large;
use crate::read::locate::PayloadPlace;
use crate::{Error, Result};

/// The copied payloads of one call.
pub(super) struct Arena {
    /// Payloads so far.
    pub bytes: Vec<u8>,
    /// Where each lies, in the order asked for.
    pub ranges: Vec<Range<usize>>,
}

impl Arena {
    /// Room for `places`, taken at once: growing would copy. Pages not yet written cost nothing.
    pub fn new(places: &[PayloadPlace]) -> Result<Self> {
        let total: u64 = places.iter().map(|place| u64::from(place.record.raw_len())).sum();
        let mut bytes = Vec::new();
        let room = usize::try_from(total).map_err(|_| too_large(total))?;
        bytes.try_reserve_exact(room).map_err(|_| too_large(total))?;
        Ok(Self { bytes, ranges: Vec::with_capacity(places.len()) })
    }

    /// The next `len` bytes, zeroed.
    pub fn grow(&mut self, len: usize) -> Result<&mut [u8]> {
        let start = self.bytes.len();
        self.bytes.try_reserve(len).map_err(|_| too_large(len as u64))?;
        self.bytes.resize(start + len, 0);
        self.bytes.get_mut(start..).ok_or_else(|| Error::internal("arena did not grow"))
    }

    /// Ends the payload that was appended to `bytes`.
    pub fn close_payload(&mut self) {
        let start = self.ranges.last().map_or(0, |last| last.end);
        self.ranges.push(start..self.bytes.len());
    }

    /// The payloads, sharing the arena.
    pub fn finish(self, out: &mut Vec<Payload>) {
        let bytes = Buffer::from_vec(self.bytes);
        // Ranges were recorded as bytes came.
        let payload = |range: Range<usize>| bytes.slice_with_length(range.start, range.len());
        out.extend(self.ranges.into_iter().map(|range| Payload(payload(range))));
    }
}
