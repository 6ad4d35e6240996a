//! Hints to the kernel about payloads of a stream that are not in memory, before their blocks are
//! loaded: the order is known, so the device never waits for its next request. Reads nothing.
//!
//! Looks at a few of the payloads that no hint was given for. Where all of them are in memory, so
//! are most, and nobody looks again for some blocks: warm data cost three calls in 16 blocks.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dataset_rt_sampler::Share;
use dataset_rt_storage::Result;
use dataset_rt_storage::format::index::IndexRecord;
use dataset_rt_storage::read::PayloadPlace;
use dataset_rt_storage::store::guarded;

use crate::active::SampleRef;
use crate::block::locate;
use crate::snapshot::Snapshot;

/// Bytes that are asked for beyond the blocks under way: what a fast disk reads in 20 ms.
const AHEAD_BYTES: u64 = 32 * 1024 * 1024;
/// The same in samples: working out where they lie costs time.
const AHEAD_SAMPLES_MAX: u64 = 4096;
/// What a payload costs beyond its bytes where neighbours are not wanted: the rest of its blocks.
const SCATTERED_BYTES: u64 = 64 * 1024;
/// Samples located at once: the first hints are out while others are worked out.
const PIECE_SAMPLES: u64 = 256;
/// Blocks that nobody looks for after one that was in memory.
const BLOCKS_BETWEEN: u32 = 16;
/// Blocks that are hinted without a look after one that was not: rows drawn before are in memory
/// again, and a look that meets those alone is wrong.
const BLOCKS_HINTED: u32 = 64;
/// Mark of a count of blocks to be hinted, in contrast to blocks to be left alone.
const COLD: u32 = 1 << 31;

/// What was asked for of one share of the stream.
pub struct Ahead {
    /// Samples that hints run ahead of the block they are given with.
    samples: u64,
    share: Share,
    /// Samples before this were hinted.
    hinted: AtomicU64,
    /// How many more blocks are treated alike, and how. Threads that race cost a hint.
    state: AtomicU32,
}

impl Ahead {
    /// For a share whose payloads have `sample_bytes` on the average, and whose reader allows
    /// `budget_bytes` ahead.
    pub fn new(snapshot: &Snapshot, share: Share, sample_bytes: u64, budget_bytes: u64) -> Self {
        let scattered = if snapshot.is_shuffled() { SCATTERED_BYTES } else { 0 };
        let each = sample_bytes.saturating_add(scattered).max(1);
        let samples = (AHEAD_BYTES.min(budget_bytes) / each).min(AHEAD_SAMPLES_MAX);
        Self { samples, share, hinted: AtomicU64::new(0), state: AtomicU32::new(0) }
    }

    /// Gives the hints that are due when numbers `range` of the share are about to be loaded.
    pub fn hint(&self, snapshot: &Snapshot, range: &Range<u64>) {
        let until = self.share.rows().min(range.end.saturating_add(self.samples));
        let from = self.hinted.load(Ordering::Relaxed).max(range.start);
        // An order that is not worked out so far is not worth a hint.
        let plan = snapshot.plan_if_made();
        let Some(_held) = plan.and_then(|plan| plan.prepared(self.share.span(from..until))) else {
            return;
        };
        // Whatever goes wrong with a hint goes wrong again, and is told, when its block is loaded.
        if from < until && self.is_cold(snapshot, from..until).unwrap_or(false) {
            let from = self.hinted.fetch_max(until, Ordering::Relaxed).max(range.start);
            let _ = give(snapshot, &self.share, from..until);
        }
    }

    fn is_cold(&self, snapshot: &Snapshot, range: Range<u64>) -> Result<bool> {
        let state = self.state.load(Ordering::Relaxed);
        if state & !COLD > 0 {
            self.state.store(state - 1, Ordering::Relaxed);
            return Ok(state & COLD != 0);
        }
        let is_cold = guarded(|_| {
            // The first may share a block with the last that was hinted.
            let (first, last) = (range.start, range.end - 1);
            for i in [last, first + (last - first) / 2, first] {
                let (samples, places) = located(snapshot, &self.share, i..i + 1)?;
                let cache = |sample: &SampleRef| &snapshot.table().caches()[sample.cache as usize];
                let mut found = samples.iter().zip(&places);
                if found.any(|(sample, place)| !cache(sample).is_resident(place)) {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        let state = if is_cold { COLD | BLOCKS_HINTED } else { BLOCKS_BETWEEN };
        self.state.store(state, Ordering::Relaxed);
        Ok(is_cold)
    }
}

fn give(snapshot: &Snapshot, share: &Share, range: Range<u64>) -> Result<()> {
    for start in range.clone().step_by(PIECE_SAMPLES as usize) {
        let end = range.end.min(start + PIECE_SAMPLES);
        guarded(|_| {
            let (samples, places) = located(snapshot, share, start..end)?;
            let mut found: Vec<_> = samples.iter().map(|sample| sample.cache).zip(places).collect();
            // In the order of the files, neighbours share a hint.
            found.sort_unstable_by_key(|(cache, place)| (*cache, place.shard, offset_of(place)));
            for run in found.chunk_by(|a, b| a.0 == b.0) {
                let places: Vec<PayloadPlace> = run.iter().map(|found| found.1).collect();
                snapshot.table().caches()[run[0].0 as usize].advise_willneed(&places);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn located(
    snapshot: &Snapshot,
    share: &Share,
    range: Range<u64>,
) -> Result<(Vec<SampleRef>, Vec<PayloadPlace>)> {
    let mut rows = vec![0; (range.end - range.start) as usize];
    snapshot.plan()?.share_rows_into(share, range.start, &mut rows)?;
    let samples: Vec<SampleRef> =
        rows.iter().map(|&row| snapshot.table().sample_at(row)).collect::<Result<_>>()?;
    let places = locate(snapshot.table().caches(), &samples)?;
    Ok((samples, places))
}

fn offset_of(place: &PayloadPlace) -> u64 {
    match place.record {
        IndexRecord::FileRange { offset, .. } => offset,
        IndexRecord::BatchRange { batch, .. } => u64::from(batch),
    }
}
