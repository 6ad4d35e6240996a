//! Who reads which positions: global batches, ranks, and lanes of one rank's readers. Arithmetic
//! on positions; knows no row, epoch or thread.
//!
//! ```text
//! stretch      begin ────────────────────────────────────────────► end
//! global steps |  step 0  |  step 1  |  step 2  |  short step |      S30
//! rank 1 of 2       ▒▒▒▒▒      ▒▒▒▒▒      ▒▒▒▒▒        ▒             S31
//! lane 0 of 2       ▒▒▒▒▒                 ▒▒▒▒▒                      S33
//! ```

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// How a stream is divided between ranks (rules S30 to S32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partition {
    rank: u64,
    world_size: u64,
    global_batch: Option<u64>,
    drop_last: bool,
}

/// Why a partition, or a batch size for it, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionError {
    /// A world needs a rank, and ranks count from 0.
    Rank {
        /// Rank asked for.
        rank: u64,
        /// Number of ranks.
        world_size: u64,
    },
    /// A global batch needs a sample.
    EmptyBatch,
    /// Batches of a rank are its parts of the global batches.
    BatchSize {
        /// Batch size asked for.
        found: u64,
        /// The only one that fits.
        expected: u64,
        /// Samples of a global batch.
        global_batch: u64,
        /// Number of ranks.
        world_size: u64,
    },
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank { rank, world_size } => {
                write!(f, "rank {rank} of world_size {world_size}; expected 0 <= rank < world_size")
            }
            Self::EmptyBatch => f.write_str("global_batch_size is 0; expected at least 1"),
            Self::BatchSize { found, expected, global_batch, world_size } => write!(
                f,
                "batch_size {found} does not fit global_batch_size {global_batch} on {world_size} \
                 ranks; expected {expected}, the rank's part of it rounded up"
            ),
        }
    }
}

impl Error for PartitionError {}

impl Partition {
    /// One rank that reads everything.
    pub const WHOLE: Self = Self { rank: 0, world_size: 1, global_batch: None, drop_last: false };

    /// Rank `rank` of `world_size`. A global batch holds `global_batch` samples, or one for each
    /// rank; with `drop_last` a short one at the end is left out.
    ///
    /// # Errors
    /// [`PartitionError`] for a rank that is not in the world, or a batch of nothing.
    pub const fn new(
        rank: u64,
        world_size: u64,
        global_batch: Option<u64>,
        drop_last: bool,
    ) -> Result<Self, PartitionError> {
        if rank >= world_size {
            return Err(PartitionError::Rank { rank, world_size });
        }
        if matches!(global_batch, Some(0)) {
            return Err(PartitionError::EmptyBatch);
        }
        Ok(Self { rank, world_size, global_batch, drop_last })
    }

    /// Number of this rank.
    #[must_use]
    pub const fn rank(&self) -> u64 {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub const fn world_size(&self) -> u64 {
        self.world_size
    }

    /// Samples of a global batch, when they were given.
    #[must_use]
    pub const fn global_batch(&self) -> Option<u64> {
        self.global_batch
    }

    /// Whether a short global batch at the end is left out.
    #[must_use]
    pub const fn drop_last(&self) -> bool {
        self.drop_last
    }

    /// Samples of a global step (rule S30).
    #[must_use]
    pub fn step(&self) -> u64 {
        self.global_batch.unwrap_or(self.world_size)
    }

    /// This rank's part of the positions `stretch`, whose steps begin at its start.
    #[must_use]
    pub fn share(&self, stretch: Range<u64>) -> Share {
        let step = self.step();
        let (each, more) = (step / self.world_size, step % self.world_size);
        let offset = self.rank * each + self.rank.min(more);
        let width = each + u64::from(self.rank < more);
        let len = stretch.end.saturating_sub(stretch.start);
        let dealt = if self.drop_last { len - len % step } else { len };
        let rest = (dealt % step).saturating_sub(offset).min(width);
        let rows = dealt / step * width + rest;
        Share { begin: stretch.start, len, dealt, step, offset, width, rows, lane: Lane::ALL }
    }

    /// This rank's batches of `batch_size` samples of the positions `stretch` (rule S32).
    ///
    /// # Errors
    /// [`PartitionError::BatchSize`] when it is not the rank's part of a global batch.
    pub fn batches(
        &self,
        stretch: Range<u64>,
        batch_size: u64,
    ) -> Result<Batching, PartitionError> {
        let mut share = self.share(stretch);
        let steps = share.steps();
        let batch_size = batch_size.max(1);
        let Some(global_batch) = self.global_batch else {
            let whole = steps / batch_size;
            let batches = if self.drop_last { whole } else { steps.div_ceil(batch_size) };
            if self.drop_last {
                share.dealt = whole * batch_size * share.step;
                share.rows = whole * batch_size * share.width;
            }
            let rows = batch_size.saturating_mul(share.width);
            return Ok(Batching { share, rows, batches, steps: batch_size });
        };
        let expected = global_batch.div_ceil(self.world_size);
        if batch_size != expected {
            let world_size = self.world_size;
            let found = batch_size;
            return Err(PartitionError::BatchSize { found, expected, global_batch, world_size });
        }
        Ok(Batching { share, rows: share.width, batches: steps, steps: 1 })
    }
}

/// Which of a rank's samples one of its readers takes: units of consecutive ones, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lane {
    number: u64,
    lanes: u64,
    unit: u64,
}

impl Lane {
    const ALL: Self = Self { number: 0, lanes: 1, unit: 1 };
}

/// Some positions of a stretch of the stream, in order, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    begin: u64,
    len: u64,
    /// Positions of the stretch that are dealt out: those of a short last step may not be.
    dealt: u64,
    step: u64,
    /// Part of the rank in a step: `offset..offset + width`.
    offset: u64,
    width: u64,
    rows: u64,
    lane: Lane,
}

impl Share {
    /// All positions `positions`.
    #[must_use]
    pub fn all(positions: Range<u64>) -> Self {
        Partition::WHOLE.share(positions)
    }

    /// Number of positions in it.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Global steps of the stretch, a short one included if it is dealt out.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.dealt.div_ceil(self.step)
    }

    /// Lane `number` of `lanes`, which deal out units of `unit` consecutive samples of this share
    /// in turn (rule S33). A share that is a lane already has no lanes: it is returned as it is.
    #[must_use]
    pub fn lane(self, number: u64, lanes: u64, unit: u64) -> Self {
        if self.lane != Lane::ALL || lanes <= 1 {
            return self;
        }
        let unit = unit.clamp(1, self.rows.max(1));
        let units = self.rows.div_ceil(unit);
        let mine = units.saturating_sub(number).div_ceil(lanes);
        let has_last = mine > 0 && (units - 1) % lanes == number;
        let short = if has_last { units * unit - self.rows } else { 0 };
        Self { rows: mine * unit - short, lane: Lane { number, lanes, unit }, ..self }
    }

    /// Stream position of number `i`, which is below [`Share::rows`].
    #[must_use]
    pub fn position(&self, i: u64) -> u64 {
        let Lane { number, lanes, unit } = self.lane;
        let local = (i / unit * lanes + number) * unit + i % unit;
        if self.width == self.step {
            return self.begin + local;
        }
        // A rank without a part has no numbers.
        let width = self.width.max(1);
        self.begin + local / width * self.step + self.offset + local % width
    }

    /// Stream positions of numbers `first, first + 1, ..`.
    pub fn positions_into(&self, first: u64, out: &mut [u64]) {
        if self.is_stretch() {
            (self.begin + first..).zip(out).for_each(|(position, out)| *out = position);
        } else {
            (first..).zip(out).for_each(|(i, out)| *out = self.position(i));
        }
    }

    /// The stream positions from the first to the last of numbers `range`, those of other readers
    /// between them included.
    #[must_use]
    pub fn span(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.min(self.rows());
        if range.start >= end {
            return 0..0;
        }
        self.position(range.start)..self.position(end - 1) + 1
    }

    /// The first position, when numbers and positions run side by side.
    #[must_use]
    pub fn stretch_begin(&self) -> Option<u64> {
        self.is_stretch().then_some(self.begin)
    }

    fn is_stretch(&self) -> bool {
        self.width == self.step && self.lane == Lane::ALL
    }

    /// Where the stream goes on once the rank took its first `taken` samples, and whether it knows
    /// that there are no more: the end of a global step, on all ranks the same (rule S35). `None`
    /// inside a step.
    #[must_use]
    pub fn resume_position(&self, taken: u64, is_finished: bool) -> Option<u64> {
        let end = self.begin + self.len;
        // Who took part in a short step took the last one.
        if is_finished || (taken == self.rows && !taken.is_multiple_of(self.width.max(1))) {
            return Some(end);
        }
        // A rank without a part in any step cannot tell where the others are.
        let steps = taken.checked_div(self.width)?;
        let is_boundary = taken == steps * self.width;
        let position = if steps < self.steps() { self.begin + steps * self.step } else { end };
        is_boundary.then_some(position)
    }
}

/// A share cut into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Batching {
    /// The samples of all batches.
    pub share: Share,
    /// Samples of every batch but the last ones, which may have fewer, or none.
    pub rows: u64,
    /// Number of batches, on all ranks the same.
    pub batches: u64,
    /// Global steps of every batch but the last.
    steps: u64,
}

impl Batching {
    /// Numbers of the samples of batch `number`, perhaps none.
    #[must_use]
    pub fn batch(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(self.rows).min(self.share.rows);
        start..start.saturating_add(self.rows).min(self.share.rows)
    }

    /// Stream position of the first step of batch `number`; behind the last one, the end.
    #[must_use]
    pub fn begin_of(&self, number: u64) -> u64 {
        let share = &self.share;
        if number >= self.batches {
            return share.begin + share.len;
        }
        share.begin + number * self.steps * share.step
    }

    /// [`Share::resume_position`] when the rank took its first `taken` samples and with them
    /// `batches` whole batches.
    #[must_use]
    pub fn resume_position(&self, batches: u64, taken: u64) -> Option<u64> {
        let share = &self.share;
        if batches >= self.batches || taken == self.batch(batches).start {
            return Some(self.begin_of(batches));
        }
        share.resume_position(taken, false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partition(rank: u64, world: u64, global_batch: Option<u64>, drop_last: bool) -> Partition {
        Partition::new(rank, world, global_batch, drop_last).unwrap()
    }

    fn positions(share: &Share) -> Vec<u64> {
        let mut out = vec![0; share.rows() as usize];
        share.positions_into(0, &mut out);
        out
    }

    #[test]
    fn without_a_global_batch_ranks_take_turns() {
        let share = partition(1, 3, None, false).share(10..18);
        assert_eq!(positions(&share), [11, 14, 17]);
        assert_eq!(positions(&partition(2, 3, None, false).share(10..18)), [12, 15]);
        assert_eq!(positions(&partition(1, 3, None, true).share(10..18)), [11, 14]);
    }

    #[test]
    fn the_first_ranks_take_one_more() {
        let parts =
            [0, 1, 2].map(|rank| positions(&partition(rank, 3, Some(5), false).share(0..8)));
        assert_eq!(parts, [vec![0, 1, 5, 6], vec![2, 3, 7], vec![4]]);
    }

    #[test]
    fn three_samples_on_eight_ranks_are_one_step() {
        for rank in 0..8 {
            let all = partition(rank, 8, None, false);
            let share = all.share(0..3);
            assert_eq!(positions(&share), (rank..3.min(rank + 1)).collect::<Vec<_>>());
            assert_eq!(all.batches(0..3, 4).unwrap().batches, 1);
            assert_eq!(partition(rank, 8, None, true).batches(0..3, 1).unwrap().batches, 0);
            // Who has nothing cannot tell the beginning from the end before it was told.
            let resumed = if rank < 3 { Some(3) } else { Some(0) };
            assert_eq!(share.resume_position(share.rows(), false), resumed);
            assert_eq!(share.resume_position(share.rows(), true), Some(3));
        }
    }

    #[test]
    fn refusals_name_the_numbers() {
        let text = Partition::new(2, 2, None, false).unwrap_err().to_string();
        assert!(text.contains("rank 2") && text.contains("world_size 2"), "{text}");
        assert_eq!(
            Partition::new(0, 0, None, false).unwrap_err(),
            PartitionError::Rank { rank: 0, world_size: 0 }
        );
        assert_eq!(Partition::new(0, 1, Some(0), false), Err(PartitionError::EmptyBatch));
        let text = partition(0, 2, Some(5), false).batches(0..9, 2).unwrap_err().to_string();
        assert!(text.contains("batch_size 2") && text.contains("expected 3"), "{text}");
    }

    #[test]
    fn the_ends_of_the_stream_do_not_overflow() {
        let end = crate::POSITION_LIMIT;
        for world in [1, 2, u64::MAX] {
            let all = partition(world - 1, world, None, false);
            let share = all.share(0..end);
            assert!(share.rows() == 0 || share.position(share.rows() - 1) < end);
            let lane = share.lane(1, 2, u64::MAX);
            assert!(lane.rows() <= share.rows());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// The union of all ranks' steps is the stretch, step by step and in order.
        #[test]
        fn ranks_together_read_the_stretch(
            begin in 0..50_u64, len in 0..60_u64, world in 1..10_u64,
            global_batch in prop::option::of(1..20_u64), drop_last: bool,
        ) {
            let step = global_batch.unwrap_or(world);
            let dealt = if drop_last { len / step * step } else { len };
            let mut read = Vec::new();
            let shares: Vec<Share> = (0..world)
                .map(|rank| partition(rank, world, global_batch, drop_last).share(begin..begin + len))
                .collect();
            let mut taken = vec![0; shares.len()];
            for t in 0..len.div_ceil(step) {
                for (share, taken) in shares.iter().zip(&mut taken) {
                    let within = |i: &u64| (share.position(*i) - begin) / step == t;
                    let mine = (*taken..share.rows()).take_while(within);
                    read.extend(mine.clone().map(|i| share.position(i)));
                    *taken += mine.count() as u64;
                }
                // All ranks say the same at the end of a step that all of them took part in.
                for (share, &taken) in shares.iter().zip(&taken) {
                    if (t + 1) * step <= dealt {
                        let last = (t + 1) * step == dealt;
                        let next = if last { begin + len } else { begin + (t + 1) * step };
                        prop_assert!(share.width == 0
                            || share.resume_position(taken, false) == Some(next));
                    }
                    prop_assert_eq!(share.resume_position(taken, true), Some(begin + len));
                }
            }
            prop_assert_eq!(read, (begin..begin + dealt).collect::<Vec<_>>());
        }

        #[test]
        fn batches_hold_the_share_and_are_equally_many(
            len in 0..60_u64, world in 1..10_u64, batch in 1..6_u64, drop_last: bool,
        ) {
            let steps = if drop_last { len / world } else { len.div_ceil(world) };
            let expected = if drop_last { steps / batch } else { steps.div_ceil(batch) };
            for rank in 0..world {
                let all = partition(rank, world, None, drop_last);
                let batching = all.batches(3..3 + len, batch).unwrap();
                let Batching { share, rows, batches, .. } = batching;
                prop_assert_eq!((rows, batches), (batch, expected));
                for n in 0..=batches {
                    let taken = batching.batch(n).start;
                    let next = if n < batches { 3 + n * batch * world } else { 3 + len };
                    prop_assert_eq!(batching.resume_position(n, taken), Some(next));
                    prop_assert_eq!(batching.begin_of(n), next);
                }
                let kept = if drop_last { batches * batch } else { u64::MAX };
                let read: Vec<u64> = positions(&all.share(3..3 + len)).into_iter()
                    .take(kept as usize).collect();
                prop_assert_eq!(positions(&share), read);
                prop_assert!(share.rows() <= rows * batches);
            }
        }

        /// Lanes deal out whole units in turn: unit by unit they give the share back.
        #[test]
        fn lanes_take_turns(
            len in 0..80_u64, world in 1..4_u64, lanes in 1..5_u64, unit in 1..7_u64,
        ) {
            let whole = partition(0, world, None, false).share(0..len);
            let mut readers: Vec<_> = (0..lanes)
                .map(|lane| positions(&whole.lane(lane, lanes, unit)).into_iter())
                .collect();
            let mut read = Vec::new();
            for turn in 0..whole.rows().div_ceil(unit) {
                read.extend(readers[(turn % lanes) as usize].by_ref().take(unit as usize));
            }
            prop_assert_eq!(read, positions(&whole));
            prop_assert!(readers.iter_mut().all(|reader| reader.next().is_none()));
        }

        #[test]
        fn inside_a_step_there_is_no_place_to_resume(
            steps in 1..6_u64, global_batch in 2..9_u64, taken in 0..60_u64,
        ) {
            let share = partition(0, 1, Some(global_batch), false).share(0..steps * global_batch);
            let taken = taken.min(share.rows());
            let expected = (taken % global_batch == 0).then_some(taken);
            prop_assert_eq!(share.resume_position(taken, false), expected);
        }
    }
}
