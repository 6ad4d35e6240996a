//! Payloads of compression scope "buffer": whole batches are decompressed, and kept by the
//! thread for the samples to come. Knows nothing of the other scopes.

use arrow_buffer::Buffer;

use super::arena::Arena;
use super::fetch::foreign_place;
use super::fetcher::{BatchKey, Fetcher};
use crate::format::index::IndexRecord;
use crate::format::limits::PAYLOAD_BYTES_MAX;
use crate::read::cache::Cache;
use crate::read::columns::{read_buffer, read_header};
use crate::read::locate::PayloadPlace;
use crate::store::{Section, guarded};
use crate::{Error, Result};

impl Cache {
    pub(super) fn fetch_from_batches(
        &self,
        _inside: Section<'_>,
        places: &[PayloadPlace],
        fetcher: &mut Fetcher,
    ) -> Result<Arena> {
        // In batch order each batch is decompressed once, however the places are mixed.
        let mut order = Vec::with_capacity(places.len());
        for (position, place) in places.iter().enumerate() {
            let IndexRecord::BatchRange { offset, batch, raw_len } = place.record else {
                return Err(foreign_place());
            };
            order.push((place.shard, batch, offset, raw_len, position));
        }
        order.sort_unstable();
        let mut arena = Arena::new(&[])?;
        arena.ranges = vec![0..0; places.len()];
        for (shard, batch, offset, raw_len, position) in order {
            let key = BatchKey { instance: self.instance, shard, batch };
            // A section of its own: what a loss spoiled must not be kept for later calls.
            let read = || guarded(|section| self.read_batch_payloads(section, shard, batch));
            let payloads = fetcher.batch(key, read)?;
            let end = offset.checked_add(u64::from(raw_len));
            let end = end.filter(|&end| end <= payloads.len() as u64).ok_or_else(|| {
                Error::corrupt(format!(
                    "index names {raw_len} bytes at {offset} of batch {batch} of shard {shard}, \
                     which holds {} bytes of payload; rebuild the cache; in {}",
                    payloads.len(),
                    self.index.name()
                ))
            })?;
            let bytes = payloads.get(offset as usize..end as usize).unwrap_or_default();
            let start = arena.len();
            arena.grow(bytes.len())?.copy_from_slice(bytes);
            let end = arena.len();
            if let Some(range) = arena.ranges.get_mut(position) {
                *range = start..end;
            }
        }
        self.check_shards_unchanged(places)?;
        Ok(arena)
    }

    /// The payload buffer of a batch, decompressed.
    fn read_batch_payloads(&self, section: Section<'_>, shard: u32, batch: u32) -> Result<Buffer> {
        let file = &self.shard(shard)?.file;
        let layout = self.shard_layout(section, shard)?;
        let place = layout.batches.get(batch as usize).ok_or_else(|| {
            Error::corrupt(format!(
                "index names batch {batch}; {} has {}; rebuild the cache",
                file.name(),
                layout.batches.len()
            ))
        })?;
        let header = read_header(section, file, place, &self.shard_schema())?;
        // `decode_batch_header` matched buffers to columns; the payload column is the last.
        let range = header.buffers.last().cloned();
        let range = range.ok_or_else(|| Error::internal("a shard without payload column"))?;
        if !file.is_verified(&range) {
            file.advise_willneed(&range);
        }
        let raw_max = self.manifest.payload_bytes_total.min(PAYLOAD_BYTES_MAX);
        read_buffer(section, file, range, header.compression, raw_max)
    }
}
