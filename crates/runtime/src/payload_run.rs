//! Payloads of a block that several threads copy at once. Knows not where to.

use std::ops::Range;
use std::sync::Arc;

use dataset_rt_storage::read::{Cache, Payload};
use dataset_rt_storage::store::{Section, guarded};
use dataset_rt_storage::{Error, Result};

/// Consecutive payloads, as one sequence of bytes.
pub struct PayloadRun {
    caches: Arc<[Arc<Cache>]>,
    payloads: Vec<Payload>,
    /// Cache and shard of each payload.
    shards: Vec<(u32, u32)>,
    /// Where each payload begins in the sequence, and the end of the last.
    starts: Vec<usize>,
}

impl PayloadRun {
    /// The payloads of samples of `caches` that lie in `shards`.
    pub(crate) fn new(
        caches: Arc<[Arc<Cache>]>,
        payloads: Vec<Payload>,
        shards: Vec<(u32, u32)>,
    ) -> Self {
        let mut end = 0;
        let ends = payloads.iter().map(|payload| {
            end += payload.size_bytes();
            end
        });
        let starts = std::iter::once(0).chain(ends).collect();
        Self { caches, payloads, shards, starts }
    }

    /// Number of payloads.
    pub fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Bytes of all payloads.
    pub fn size_bytes(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Where payload `i` lies in the sequence.
    pub fn place(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i + 1]
    }

    /// Calls `copy` for the part of each payload that lies in `wanted`, with the payload's number
    /// and where in it the part begins; then looks whether their files are still what they were.
    /// May do all of it twice.
    ///
    /// # Errors
    /// `Conflict` when a file changed while open: what was copied may be wrong.
    pub fn copy(
        &self,
        wanted: Range<usize>,
        mut copy: impl FnMut(usize, usize, &[u8]),
    ) -> Result<()> {
        let first = self.starts.partition_point(|&start| start <= wanted.start).saturating_sub(1);
        let last = self.starts.partition_point(|&start| start < wanted.end).min(self.len());
        let touched = first..last.max(first);
        guarded(|section: Section<'_>| {
            for i in touched.clone() {
                let place = self.place(i);
                let part = wanted.start.max(place.start) - place.start
                    ..wanted.end.min(place.end).saturating_sub(place.start);
                let bytes = self.payloads[i].bytes(section).get(part.clone());
                let bytes = bytes.ok_or_else(|| Error::internal("a part outside its payload"))?;
                copy(i, part.start, bytes);
            }
            Ok(())
        })?;
        check_unchanged(&self.caches, &self.shards[touched])
    }
}

/// Fails when one of some shards changed since it was opened: what was copied out of it before
/// this call may be wrong. Costs a `stat` a shard.
///
/// # Errors
/// `Conflict` when it changed, `Unavailable` when that cannot be told.
pub(crate) fn check_unchanged(caches: &[Arc<Cache>], shards: &[(u32, u32)]) -> Result<()> {
    let mut touched = shards.to_vec();
    touched.sort_unstable();
    touched.dedup();
    touched
        .into_iter()
        .try_for_each(|(cache, shard)| caches[cache as usize].check_shard_unchanged(shard))
}
