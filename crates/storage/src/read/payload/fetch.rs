//! From places to payloads: verified, shared with the mapping or copied into one arena a call.
//! Knows no rows and no order beyond that of the places.

use std::ops::Range;

use arrow_buffer::Buffer;

use super::arena::Arena;
use super::fetcher::Fetcher;
use crate::format::codec::Decompressor;
use crate::format::index::IndexRecord;
use crate::format::limits::BLOCK_BYTES;
use crate::read::cache::Cache;
use crate::read::file::VerifiedFile;
use crate::read::locate::PayloadPlace;
use crate::store::{Section, guarded};
use crate::{Error, Result};

/// The bytes of one payload: read-only, and alive as long as it is.
#[derive(Clone, Debug)]
pub struct Payload(pub(super) Buffer);

impl Payload {
    /// The bytes of verified, mapped memory.
    pub(in crate::read) fn shared(bytes: Buffer) -> Self {
        Self(bytes)
    }

    /// The bytes. What is made of them is handed on after [`Cache::check_shard_unchanged`].
    pub fn bytes<'a>(&'a self, _inside: Section<'a>) -> &'a [u8] {
        self.0.as_slice()
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> usize {
        self.0.len()
    }

    /// The bytes as others may see them without copying: as long as the file is not modified.
    pub fn as_view(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// A `FileRange` record as plain numbers.
pub(super) struct Stored {
    pub range: Range<u64>,
    raw_len: usize,
}

impl Cache {
    /// One payload; see [`Cache::fetch`].
    ///
    /// # Errors
    /// Those of [`Cache::fetch`].
    pub fn payload(&self, place: &PayloadPlace, fetcher: &mut Fetcher) -> Result<Payload> {
        let mut found = Vec::with_capacity(1);
        self.fetch(std::slice::from_ref(place), fetcher, &mut found)?;
        found.pop().ok_or_else(|| Error::internal("one payload fetched to nowhere"))
    }

    /// Appends the payloads at `places`, in their order, to `out`. Uncompressed payloads of
    /// mapped files are shared with the mapping; all others lie in one arena that lives as long
    /// as any of them. Takes memory for the raw bytes of `places`, and for one batch with
    /// compression scope `buffer`: the caller bounds them by the number of places.
    ///
    /// Whoever makes something of shared payloads calls [`Cache::check_shard_unchanged`]
    /// afterwards, before it hands that on; and [`Cache::check_tables_unchanged`] for the places.
    ///
    /// # Errors
    /// `Corrupt` for damage, naming file and block, `Conflict` when a file changed while open,
    /// `Exhausted` without memory; `out` is then as before.
    pub fn fetch(
        &self,
        places: &[PayloadPlace],
        fetcher: &mut Fetcher,
        out: &mut Vec<Payload>,
    ) -> Result<()> {
        let kept = out.len();
        out.reserve(places.len());
        let outcome = guarded(|section| {
            out.truncate(kept);
            match self.fetch_arena(section, places, fetcher)? {
                Some(arena) => arena.finish(out),
                None => self.fetch_shared(section, places, out)?,
            }
            Ok(())
        });
        if outcome.is_err() {
            out.truncate(kept);
        }
        outcome
    }

    /// The payloads that have to be copied; `None` when they are shared.
    pub(super) fn fetch_arena(
        &self,
        section: Section<'_>,
        places: &[PayloadPlace],
        fetcher: &mut Fetcher,
    ) -> Result<Option<Arena>> {
        if self.manifest.compression.is_per_buffer() {
            self.fetch_from_batches(section, places, fetcher).map(Some)
        } else if self.manifest.compression.is_per_payload() {
            self.fetch_frames(section, places, fetcher).map(Some)
        } else if self.is_shared()? {
            Ok(None)
        } else {
            self.fetch_copies(section, places, fetcher).map(Some)
        }
    }

    /// Whether payloads are shared with mapped files instead of copied by [`Cache::fetch`].
    ///
    /// # Errors
    /// When the first shard cannot be opened, which decides it for all.
    pub fn is_shared(&self) -> Result<bool> {
        Ok(!self.is_compressed() && self.is_mapped()?)
    }

    /// Whether payloads are stored compressed.
    pub fn is_compressed(&self) -> bool {
        self.manifest.compression.is_per_payload() || self.manifest.compression.is_per_buffer()
    }

    /// Whether shards are mapped.
    ///
    /// # Errors
    /// When the first shard cannot be opened, which decides it for all.
    pub fn is_mapped(&self) -> Result<bool> {
        self.shard(0)?.file.is_mapped()
    }

    /// Fails when the index or the metadata changed since it was opened: places and cells read
    /// before this call may be wrong. Costs two `stat`s at most.
    ///
    /// # Errors
    /// `Conflict` when a file changed, `Unavailable` when that cannot be told.
    pub fn check_tables_unchanged(&self) -> Result<()> {
        self.index.check_unchanged()?;
        self.metadata.check_unchanged()
    }

    /// Fails when a shard changed since it was opened: what was copied out of it before this call
    /// may be wrong. Costs a `stat`.
    ///
    /// # Errors
    /// As [`Cache::check_tables_unchanged`].
    pub fn check_shard_unchanged(&self, shard: u32) -> Result<()> {
        self.shard(shard)?.file.check_unchanged()
    }

    /// Whether the first byte of a payload is in memory; true where that cannot be told.
    pub fn is_resident(&self, place: &PayloadPlace) -> bool {
        let (Ok(shard), Ok(stored)) = (self.shard(place.shard), self.stored(place)) else {
            return true;
        };
        stored.range.is_empty() || shard.file.is_resident(&stored.range)
    }

    /// Asks the kernel to read the bytes of `places` ahead; a hint whose failure costs speed.
    pub fn advise_willneed(&self, places: &[PayloadPlace]) {
        self.advise(places, |_, _| true);
    }

    pub(super) fn check_shards_unchanged(&self, places: &[PayloadPlace]) -> Result<()> {
        let mut shards: Vec<u32> = Vec::new();
        for place in places {
            if shards.last() != Some(&place.shard) {
                shards.push(place.shard);
            }
        }
        shards.sort_unstable();
        shards.dedup();
        shards.iter().try_for_each(|&shard| self.check_shard_unchanged(shard))
    }

    fn fetch_shared(
        &self,
        section: Section<'_>,
        places: &[PayloadPlace],
        out: &mut Vec<Payload>,
    ) -> Result<()> {
        self.advise_unverified(places);
        for place in places {
            let stored = self.stored(place)?;
            out.push(Payload(self.shard(place.shard)?.file.buffer(section, stored.range)?));
        }
        Ok(())
    }

    fn fetch_copies(
        &self,
        section: Section<'_>,
        places: &[PayloadPlace],
        fetcher: &mut Fetcher,
    ) -> Result<Arena> {
        self.advise_unverified(places);
        let mut arena = Arena::new(places)?;
        for place in places {
            let Stored { range, raw_len } = self.stored(place)?;
            let file = &self.shard(place.shard)?.file;
            file.read_into(section, range, arena.grow(raw_len)?, &mut fetcher.scratch)?;
            arena.close_payload();
        }
        self.check_shards_unchanged(places)?;
        Ok(arena)
    }

    fn fetch_frames(
        &self,
        section: Section<'_>,
        places: &[PayloadPlace],
        fetcher: &mut Fetcher,
    ) -> Result<Arena> {
        self.advise_unverified(places);
        let mut decompressor = fetcher.take_decompressor(self)?;
        let mut arena = Arena::new(places)?;
        for place in places {
            self.append_frame(section, place, &mut decompressor, fetcher, &mut arena)?;
            arena.close_payload();
        }
        fetcher.give_back(self, decompressor);
        self.check_shards_unchanged(places)?;
        Ok(arena)
    }

    fn append_frame(
        &self,
        section: Section<'_>,
        place: &PayloadPlace,
        decompressor: &mut Decompressor,
        fetcher: &mut Fetcher,
        arena: &mut Arena,
    ) -> Result<()> {
        let Stored { range, raw_len } = self.stored(place)?;
        if range.is_empty() {
            // Empty payloads have no frame; `stored` made sure that this is one.
            return Ok(());
        }
        let file = &self.shard(place.shard)?.file;
        let start = range.start;
        let target = arena.grow(raw_len)?;
        let frame = if file.is_mapped()? {
            file.slice(section, range)?
        } else {
            fetcher.frame.clear();
            let (frame, scratch) = (&mut fetcher.frame, &mut fetcher.scratch);
            file.read_append(section, range, frame, scratch)?;
            fetcher.frame.as_slice()
        };
        decompressor
            .decompress(frame, target)
            .map_err(|e| e.within(format!("{} payload at byte {start}", file.name())))
    }

    /// Where a payload is stored, checked as [`Cache::locate`] does: a place may come from
    /// another cache.
    pub(super) fn stored(&self, place: &PayloadPlace) -> Result<Stored> {
        self.check_record(place.shard, &place.record)?;
        let IndexRecord::FileRange { offset, stored_len, raw_len } = place.record else {
            return Err(foreign_place());
        };
        let end = offset.saturating_add(u64::from(stored_len));
        Ok(Stored { range: offset..end, raw_len: raw_len as usize })
    }

    pub(super) fn advise_unverified(&self, places: &[PayloadPlace]) {
        if places.len() > 1 {
            self.advise(places, |file, range| !file.is_verified(range));
        }
    }

    /// One hint for each run of neighbours among the places that are `wanted`.
    fn advise(&self, places: &[PayloadPlace], wanted: impl Fn(&VerifiedFile, &Range<u64>) -> bool) {
        let mut run: Option<(&VerifiedFile, Range<u64>)> = None;
        for place in places {
            let (Ok(shard), Ok(stored)) = (self.shard(place.shard), self.stored(place)) else {
                continue;
            };
            let (file, range) = (&shard.file, stored.range);
            if range.is_empty() || !wanted(file, &range) {
                continue;
            }
            match &mut run {
                Some((last, held))
                    if std::ptr::eq(*last, file)
                        && held.start <= range.start
                        && range.start <= held.end.saturating_add(BLOCK_BYTES) =>
                {
                    held.end = held.end.max(range.end);
                }
                _ => {
                    if let Some((file, range)) = run.replace((file, range)) {
                        file.advise_willneed(&range);
                    }
                }
            }
        }
        if let Some((file, range)) = run {
            file.advise_willneed(&range);
        }
    }
}

pub(super) fn foreign_place() -> Error {
    Error::invalid("a place of a cache with another compression scope; locate the row again")
}
