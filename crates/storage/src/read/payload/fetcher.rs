//! What one thread keeps between fetches: scratch memory, decompressors, decompressed batches.
//! Decides nothing about payloads.

use std::collections::VecDeque;

use arrow_buffer::Buffer;

use crate::Result;
use crate::format::codec::Decompressor;
use crate::read::cache::Cache;
use crate::store::{Section, guarded};

/// Decompressed payload buffers kept by one thread, all of which load blocks of large payloads:
/// reading in order meets each batch of 1 MiB once, and a window of eight still fits.
const BATCHES_KEPT_BYTES: usize = 8 * 1024 * 1024;
/// Decompressors kept by one thread: with a dictionary each costs some hundred KiB.
const DECOMPRESSORS_KEPT: usize = 8;

/// The state that fetching reuses; one per thread, for any caches. Holds at most 8 MiB and one
/// more batch of decompressed payloads.
#[derive(Default)]
pub struct Fetcher {
    /// Blocks of a file that is not mapped, met for the first time.
    pub(super) scratch: Vec<u8>,
    /// One compressed payload of such a file.
    pub(super) frame: Vec<u8>,
    decompressors: VecDeque<(u64, Decompressor)>,
    batches: VecDeque<KeptBatch>,
    batches_bytes: usize,
}

struct KeptBatch {
    key: BatchKey,
    payloads: Buffer,
}

/// A record batch of one shard of one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchKey {
    pub instance: u64,
    pub shard: u32,
    pub batch: u32,
}

impl Fetcher {
    /// A fetcher that holds nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the decompressor for payloads of `cache` out, to be given back; makes it when this
    /// thread has none.
    pub(super) fn take_decompressor(&mut self, cache: &Cache) -> Result<Decompressor> {
        let kept = self.decompressors.iter().position(|(instance, _)| *instance == cache.instance);
        if let Some((_, decompressor)) = kept.and_then(|kept| self.decompressors.remove(kept)) {
            return Ok(decompressor);
        }
        let dictionary = match &cache.dictionary {
            None => None,
            Some(file) => {
                // A section and a check of its own: a dictionary that a loss or a change spoiled
                // must not be kept for later calls.
                let read = |section: Section<'_>| {
                    Ok(file.read(section, 0..file.size_bytes())?.into_owned())
                };
                let bytes = guarded(read)?;
                file.check_unchanged()?;
                Some(bytes)
            }
        };
        Decompressor::new(&cache.manifest.compression, dictionary.as_deref())
            .map_err(|e| e.within(cache.path().display()))
    }

    pub(super) fn give_back(&mut self, cache: &Cache, decompressor: Decompressor) {
        self.decompressors.push_back((cache.instance, decompressor));
        if self.decompressors.len() > DECOMPRESSORS_KEPT {
            self.decompressors.pop_front();
        }
    }

    /// The decompressed payloads of a batch, from `read` when this thread does not hold them.
    pub(super) fn batch(
        &mut self,
        key: BatchKey,
        read: impl FnOnce() -> Result<Buffer>,
    ) -> Result<Buffer> {
        let kept = self.batches.iter().position(|batch| batch.key == key);
        if let Some(batch) = kept.and_then(|kept| self.batches.remove(kept)) {
            let payloads = batch.payloads.clone();
            self.batches.push_back(batch);
            return Ok(payloads);
        }
        let payloads = read()?;
        self.batches_bytes += payloads.len();
        self.batches.push_back(KeptBatch { key, payloads: payloads.clone() });
        while self.batches_bytes > BATCHES_KEPT_BYTES && self.batches.len() > 1 {
            let oldest = self.batches.pop_front().map_or(0, |batch| batch.payloads.len());
            self.batches_bytes = self.batches_bytes.saturating_sub(oldest);
        }
        Ok(payloads)
    }
}
