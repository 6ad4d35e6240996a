//! Receipts of an order: digests by which two runs prove that they saw the same samples, and seeds
//! that belong to positions.

use dataset_rt_sampler::SAMPLER_VERSION;
use dataset_rt_storage::store::guarded;
use dataset_rt_storage::{Error, Result};

use crate::active::SampleRef;
use crate::dataset::Dataset;

impl Dataset {
    /// Hexadecimal BLAKE3 of everything the order depends on; the position is not part of it.
    ///
    /// # Errors
    /// As [`Snapshot::prepare`].
    pub fn order_fingerprint(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<String> {
        let snapshot = self.snapshot()?;
        let mut hasher = blake3::Hasher::new_derive_key("dataset_rt order fingerprint");
        let mode = self.options.mode.as_str();
        hasher.update(&SAMPLER_VERSION.to_le_bytes());
        hasher.update(&(mode.len() as u64).to_le_bytes());
        hasher.update(mode.as_bytes());
        hasher.update(&self.options.seed.to_le_bytes());
        hasher.update(&snapshot.prepare(attend)?.digest().0);
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Hexadecimal BLAKE3 of the identities at stream positions `start..stop`.
    ///
    /// # Errors
    /// `InvalidInput` when `start` is behind `stop`.
    pub fn order_digest(
        &self,
        start: u64,
        stop: u64,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<String> {
        if start > stop || stop > dataset_rt_sampler::POSITION_LIMIT {
            return Err(Error::invalid(format!(
                "range {start}..{stop} is not one of the stream; expected start <= stop <= 2^63"
            )));
        }
        let snapshot = self.snapshot()?;
        let (plan, table) = (snapshot.prepare(attend)?, snapshot.table());
        let mut hasher = blake3::Hasher::new_derive_key("dataset_rt order digest");
        let mut rows = vec![0; 4096];
        let mut position = start;
        while position < stop {
            attend()?;
            let len = (stop - position).min(rows.len() as u64) as usize;
            let _held = plan.prepare(position..position + len as u64, attend)?;
            plan.rows_into(position, &mut rows[..len])?;
            let samples = || rows[..len].iter().map(|&row| table.sample_at(row)).collect();
            let samples: Vec<SampleRef> = guarded(|_| samples())?;
            for sample in samples {
                let cache_id = self.caches[sample.cache as usize].cache_id();
                hasher.update(&cache_id.to_le_bytes());
                hasher.update(&sample.sample_id.to_le_bytes());
            }
            position += len as u64;
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// A seed for augmentations at stream position `k`.
    ///
    /// # Errors
    /// As [`Snapshot::prepare`].
    pub fn position_seed(&self, k: u64, attend: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        Ok(self.snapshot()?.prepare(attend)?.position_seed(k))
    }
}
