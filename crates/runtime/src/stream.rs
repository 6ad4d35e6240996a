//! One pass over a reader's share of the stream, read ahead by the workers. Delivers blocks in order.
//! Knows no Python.

use std::ops::Range;
use std::sync::Arc;

use dataset_rt_sampler::Share;
use dataset_rt_storage::{Kind, Result};

use crate::ahead::Ahead;
use crate::apart::Check;
use crate::block::Block;
use crate::cycles::HeldCycles;
use crate::fork_gate;
use crate::lookahead::{Load, Lookahead};
use crate::pool::WorkerPool;
use crate::snapshot::Snapshot;

/// Blocks under way at once: one in hand, others being loaded.
const SLOTS: u64 = 4;
/// Most samples of a block: beyond this a hand-over costs nothing per sample any more.
const BLOCK_SAMPLES_MAX: u64 = 256;
/// Most payload bytes that the consumer loads at one go: tenths of a second, even compressed.
const CONSUMER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How far a stream may run ahead of its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Samples not yet delivered, the block in hand included; at least 1.
    pub samples: u64,
    /// The same in payload bytes; one larger sample alone is allowed.
    pub bytes: u64,
    /// Payload bytes of a sample, on the average.
    pub sample_bytes: u64,
}

impl ReadAhead {
    fn slots(self) -> u64 {
        self.samples.clamp(1, SLOTS)
    }

    /// As many as fill a quarter of a block's bytes: larger ones than the average fit, too, so that
    /// workers load all of it, and what the allocator keeps for each worker stays small.
    fn block_samples(self) -> u64 {
        let by_bytes = (self.block_bytes() / 4).checked_div(self.sample_bytes);
        let by_bytes = by_bytes.unwrap_or(BLOCK_SAMPLES_MAX);
        (self.samples / self.slots()).min(by_bytes).clamp(1, BLOCK_SAMPLES_MAX)
    }

    /// Payload bytes that one block may hold.
    pub fn block_bytes(self) -> u64 {
        self.bytes / self.slots()
    }

    /// Payload bytes of a block that the consumer loads itself: signals are not seen meanwhile.
    pub fn consumer_bytes(self) -> u64 {
        self.block_bytes().min(CONSUMER_BYTES_MAX)
    }

    /// Batches of `batch` samples that may be under way, whose copied payloads have
    /// `sample_bytes` each: at least one.
    pub fn batches(self, batch: u64, sample_bytes: u64) -> u64 {
        let by_bytes = self.bytes.checked_div(batch.saturating_mul(sample_bytes));
        (self.samples / batch.max(1)).min(by_bytes.unwrap_or(SLOTS)).clamp(1, SLOTS)
    }
}

struct BlockLoader {
    snapshot: Arc<Snapshot>,
    share: Share,
    ahead: ReadAhead,
    hints: Ahead,
}

impl Load for BlockLoader {
    type Item = Block;

    fn load(&self, range: Range<u64>, attended: Option<Check<'_>>) -> Result<Block> {
        let budget_bytes = match attended {
            Some(_) => self.ahead.consumer_bytes(),
            None => self.ahead.block_bytes(),
        };
        self.hints.hint(&self.snapshot, &range);
        Block::load(&self.snapshot, &self.share, range, budget_bytes)
    }
}

/// The blocks of one reader's share of the stream, in order. Its samples count from 0.
pub struct Stream {
    blocks: Lookahead<BlockLoader>,
    ahead: ReadAhead,
    /// First sample that nobody was asked for yet.
    next: u64,
    end: u64,
    /// Samples handed out or passed over.
    taken: u64,
    /// Samples of the next block; grows so that the first sample waits for one, not for many.
    ramp: u64,
    /// What the order needs for the samples under way.
    cycles: HeldCycles,
    /// Samples of a failed block, read one by one so that only damaged samples are lost.
    one_by_one: Range<u64>,
}

impl Stream {
    /// Starts reading `share`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        pool: Arc<WorkerPool>,
        ahead: ReadAhead,
        share: Share,
    ) -> Self {
        let hints = Ahead::new(&snapshot, share, ahead.sample_bytes, ahead.bytes);
        let loader = BlockLoader { snapshot, share, ahead, hints };
        Self {
            blocks: Lookahead::new(loader, pool),
            ahead,
            next: 0,
            end: share.rows(),
            taken: 0,
            ramp: 1,
            cycles: HeldCycles::new(),
            one_by_one: 0..0,
        }
    }

    /// The table being read.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.blocks.loader().snapshot
    }

    /// How many samples lie before the next block.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The workers that read ahead.
    pub fn pool(&self) -> &Arc<WorkerPool> {
        self.blocks.pool()
    }

    /// The next block, or `None` at the end of the share. `attend` is called several times a
    /// second while waiting; its error ends the wait and loses nothing.
    ///
    /// After an error about damaged data the next call goes on with the following sample; after
    /// one about memory with the same.
    ///
    /// # Errors
    /// What loading the block met, or what `attend` returned.
    pub fn next_block(&mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Option<Block>> {
        self.blocks.check_process()?;
        if !self.one_by_one.is_empty() {
            return self.next_alone(attend).map(Some);
        }
        // Workers find the order ready: no block waits for it where signals are not seen.
        let BlockLoader { snapshot, share, .. } = self.blocks.loader();
        let reach = self.ahead.slots() * self.ahead.block_samples();
        let range = self.next.saturating_sub(reach)..self.end.min(self.next + reach);
        let prepare = |check: Check<'_>| snapshot.prepare_positions(share.span(range), check);
        self.cycles = fork_gate::with_breaks(attend, prepare)?;
        self.schedule();
        match self.blocks.take(attend)? {
            None => Ok(None),
            Some((range, Err(_))) if range.end - range.start > 1 => {
                self.one_by_one = range;
                self.next_alone(attend).map(Some)
            }
            // Nothing is wrong with the sample: it may be had once there is room.
            Some((range, Err(error))) if error.kind() == Kind::Exhausted => {
                self.blocks.ask_first(range);
                Err(error)
            }
            Some((range, block)) => {
                self.taken = range.end;
                block.map(Some)
            }
        }
    }

    fn next_alone(&mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Block> {
        let next = self.one_by_one.start;
        let block = self.blocks.load(next..next + 1, attend)?;
        if !block.as_ref().is_err_and(|error| error.kind() == Kind::Exhausted) {
            self.one_by_one.start = next + 1;
            self.taken = next + 1;
        }
        block
    }

    /// Keeps the slots filled; the caller is about to take one block in hand.
    fn schedule(&mut self) {
        while self.next < self.end && (self.blocks.len() as u64) < self.ahead.slots() {
            let len = self.ramp.min(self.end - self.next);
            self.blocks.ask(self.next..self.next + len);
            self.next += len;
            self.ramp = (self.ramp * 2).min(self.ahead.block_samples());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn blocks_of_large_payloads_have_few_of_them() {
        let samples = |sample_bytes| {
            ReadAhead { samples: 256, bytes: 256 * MIB, sample_bytes }.block_samples()
        };
        assert_eq!(samples(0), 64, "payloads of no bytes");
        assert_eq!(samples(100), 64);
        assert_eq!(samples(110 << 10), 64);
        assert_eq!(samples(MIB), 16);
        assert_eq!(samples(4 * MIB), 4);
        assert_eq!(samples(100 * MIB), 1);
    }

    #[test]
    fn no_more_is_under_way_than_allowed() {
        for samples in (1..40).chain([256, 1000, 100_000]) {
            for bytes in [0, 1, 1000, MIB, 64 * MIB, 256 * MIB] {
                for sample_bytes in [0, 1, 4096, 110 << 10, 4 * MIB, u64::MAX] {
                    let ahead = ReadAhead { samples, bytes, sample_bytes };
                    assert!(ahead.slots() >= 1 && ahead.block_samples() >= 1);
                    assert!(ahead.slots() * ahead.block_samples() <= samples, "{ahead:?}");
                    assert!(ahead.slots() * ahead.block_bytes() <= bytes, "{ahead:?}");
                }
            }
        }
    }
}
