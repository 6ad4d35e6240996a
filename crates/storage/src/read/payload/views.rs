//! Payloads as the views of an Arrow column: over the mapped shards themselves, or over one arena
//! a call. Knows no rows and no column beside it.

use std::collections::HashMap;
use std::ops::Range;

use arrow_buffer::Buffer;
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};

use super::arena::Arena;
use super::fetcher::Fetcher;
use crate::format::limits::PAYLOAD_BYTES_MAX;
use crate::read::cache::Cache;
use crate::read::file::MappedView;
use crate::read::locate::PayloadPlace;
use crate::store::{Section, guarded};
use crate::{Error, Result};

/// A shard may be longer than the 31 bits in which a view counts bytes: the column sees it as
/// buffers that start at multiples of this.
const WINDOW_BYTES: u64 = 1 << 30;
/// Longest buffer that every byte of can be reached by a view.
const BUFFER_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX;
/// The window of payloads that reach too far to share a buffer.
const OWN_BUFFER: u32 = u32::MAX;

/// Payloads as Arrow binary views, with the buffers they look into.
#[derive(Default)]
pub struct PayloadViews {
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    windows: HashMap<WindowKey, u32>,
}

/// A part of a mapped shard that is a buffer of the column.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct WindowKey {
    instance: u64,
    shard: u32,
    window: u32,
}

impl PayloadViews {
    /// Payloads so far.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Takes out the views, in the order the payloads were fetched, and the buffers they look
    /// into. What is left tells [`Cache::check_views_unchanged`] which those are.
    pub fn take(&mut self) -> (Vec<u128>, Vec<Buffer>) {
        (std::mem::take(&mut self.views), std::mem::take(&mut self.buffers))
    }

    fn truncate(&mut self, views: usize, buffers: usize) {
        self.views.truncate(views);
        self.buffers.truncate(buffers);
        self.windows.retain(|_, buffer| (*buffer as usize) < buffers);
    }

    /// Number of the next buffer.
    fn next_buffer(&self) -> Result<u32> {
        u32::try_from(self.buffers.len())
            .map_err(|_| Error::internal("a column of more than 2^32 buffers"))
    }

    /// The payloads of an arena, which is cut into buffers of at most `reach` bytes.
    fn push_arena(&mut self, arena: Arena, reach: usize) -> Result<()> {
        let (bytes, ranges) = arena.into_buffer();
        // Number and start of the buffer in use.
        let mut open: Option<(u32, usize)> = None;
        for range in ranges {
            let reaches = |start: usize| start <= range.start && range.end - start <= reach;
            let (number, start) = match open {
                Some((number, start)) if reaches(start) => (number, start),
                _ => {
                    let number = self.next_buffer()?;
                    let len = (bytes.len() - range.start).min(reach);
                    self.buffers.push(bytes.slice_with_length(range.start, len));
                    (number, range.start)
                }
            };
            open = Some((number, start));
            let payload = bytes.get(range.clone()).unwrap_or_default();
            self.views.push(view(payload, number, range.start - start));
        }
        Ok(())
    }
}

/// One view; `offset` is below 2^31 where it counts.
fn view(bytes: &[u8], buffer: u32, offset: usize) -> u128 {
    let len = bytes.len() as u32;
    if len <= MAX_INLINE_VIEW_LEN {
        let mut inline = [0_u8; 16];
        let (head, tail) = inline.split_at_mut(4);
        head.copy_from_slice(&len.to_le_bytes());
        tail.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        return u128::from_le_bytes(inline);
    }
    let prefix = bytes.first_chunk::<4>().copied().unwrap_or_default();
    let prefix = u32::from_le_bytes(prefix);
    ByteView { length: len, prefix, buffer_index: buffer, offset: offset as u32 }.as_u128()
}

/// Which buffer of a shard of `size` bytes shows `range`, and what part of the shard it is.
fn window_of(range: &Range<u64>, size: u64) -> (u32, Range<u64>) {
    let window = range.start / WINDOW_BYTES;
    let start = window * WINDOW_BYTES;
    if range.end - start > BUFFER_BYTES_MAX {
        return (OWN_BUFFER, range.clone());
    }
    (window as u32, start..size.min(start + BUFFER_BYTES_MAX))
}

impl Cache {
    /// Appends the payloads at `places` to `out` as [`Cache::fetch`] would give them: those that
    /// are shared are views of the mapped shards, others lie in an arena of this call.
    ///
    /// Whoever hands shared ones on calls [`Cache::check_views_unchanged`] before, once for any
    /// number of calls, and [`Cache::check_tables_unchanged`] for the places.
    ///
    /// # Errors
    /// Those of [`Cache::fetch`]; `out` is then as before.
    pub fn fetch_views(
        &self,
        places: &[PayloadPlace],
        fetcher: &mut Fetcher,
        out: &mut PayloadViews,
    ) -> Result<()> {
        let (views, buffers) = (out.views.len(), out.buffers.len());
        out.views.reserve(places.len());
        let outcome = guarded(|section| {
            out.truncate(views, buffers);
            match self.fetch_arena(section, places, fetcher)? {
                Some(arena) => out.push_arena(arena, BUFFER_BYTES_MAX as usize),
                None => self.share_views(section, places, out),
            }
        });
        if outcome.is_err() {
            out.truncate(views, buffers);
        }
        outcome
    }

    /// Fails when a shard that views of this cache look into changed since it was opened. Costs
    /// a `stat` a shard.
    ///
    /// # Errors
    /// As [`Cache::check_tables_unchanged`].
    pub fn check_views_unchanged(&self, views: &PayloadViews) -> Result<()> {
        let touched = views.windows.keys().filter(|key| key.instance == self.instance);
        touched.map(|key| key.shard).try_for_each(|shard| self.check_shard_unchanged(shard))
    }

    fn share_views(
        &self,
        section: Section<'_>,
        places: &[PayloadPlace],
        out: &mut PayloadViews,
    ) -> Result<()> {
        self.advise_unverified(places);
        let mut open: Option<(u32, MappedView<'_>)> = None;
        let mut last: Option<(WindowKey, u32)> = None;
        for place in places {
            let shard = place.shard;
            let file = &self.shard(shard)?.file;
            let range = self.stored(place)?.range;
            let mapped = match open {
                Some((number, mapped)) if number == shard => mapped,
                _ => {
                    let gone = || Error::internal(format!("{} is not mapped", file.name()));
                    file.view(section)?.ok_or_else(gone)?
                }
            };
            open = Some((shard, mapped));
            let bytes = mapped.get(range.clone())?;
            let (window, buffer) = window_of(&range, file.size_bytes());
            let key = WindowKey { instance: self.instance, shard, window };
            let number = match last {
                Some((last, number)) if last == key && window != OWN_BUFFER => number,
                _ => match out.windows.get(&key) {
                    Some(&number) if window != OWN_BUFFER => number,
                    _ => out.open_window(key, || file.unverified_view(&buffer))?,
                },
            };
            last = Some((key, number));
            out.views.push(view(bytes, number, (range.start - buffer.start) as usize));
        }
        Ok(())
    }
}

impl PayloadViews {
    #[cold]
    fn open_window(
        &mut self,
        key: WindowKey,
        open: impl FnOnce() -> Result<Buffer>,
    ) -> Result<u32> {
        let number = self.next_buffer()?;
        self.buffers.push(open()?);
        self.windows.insert(key, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, BinaryViewArray};
    use arrow_buffer::ScalarBuffer;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn views_reach_every_payload_of_a_shard_of_any_size() {
        let size = 9 * GIB;
        let longest = PAYLOAD_BYTES_MAX;
        for start in [0, 1, GIB - 1, GIB, 5 * GIB / 2, 6 * GIB + 7] {
            for len in [0, 1, GIB, GIB + 1, longest - 1, longest] {
                let range = start..start + len;
                let (_, buffer) = window_of(&range, size);
                assert!(buffer.start <= range.start && range.end <= buffer.end);
                assert!(buffer.end <= size && buffer.end - buffer.start <= i32::MAX as u64);
            }
        }
        let near_the_end = size - 5..size;
        assert_eq!(window_of(&near_the_end, size), (8, 8 * GIB..size));
        assert_eq!(window_of(&(GIB - 1..GIB + 5), size).0, 0, "shared, though it crosses");
    }

    #[test]
    fn an_arena_is_cut_where_views_count_no_further() {
        let payloads: Vec<Vec<u8>> = (0..20).map(|i| vec![i; 13 + i as usize % 3]).collect();
        let mut arena = Arena::new(&[]).unwrap();
        // Not in the order of the bytes, as with compression by buffer.
        arena.ranges = vec![0..0; 20];
        for i in (0..20).rev() {
            let start = arena.len();
            arena.grow(payloads[i].len()).unwrap().copy_from_slice(&payloads[i]);
            let end = arena.len();
            arena.ranges[i] = start..end;
        }
        let mut views = PayloadViews::default();
        views.push_arena(arena, 50).unwrap();
        let (views, buffers) = views.take();
        assert!(buffers.len() > 1 && buffers.iter().all(|buffer| buffer.len() <= 50));
        let array = BinaryViewArray::try_new(ScalarBuffer::from(views), buffers, None).unwrap();
        assert_eq!(array.len(), 20);
        assert!(array.iter().zip(&payloads).all(|(found, payload)| found == Some(payload)));
    }
}
