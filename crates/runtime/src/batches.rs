//! Record batches one after another, loaded by the workers ahead of their consumer. Decides how
//! rows are cut and what becomes of rows that cannot be read; knows no column.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use dataset_rt_storage::{Kind, Result};

use crate::apart::Check;
use crate::batch::{BatchLoader, Rows};
use crate::cycles::HeldCycles;
use crate::fork_gate;
use crate::lookahead::Lookahead;
use crate::pool::WorkerPool;

/// Batches of a range of rows, in order.
pub struct Batches {
    ahead: Lookahead<BatchLoader>,
    cut: Cut,
    slots: u64,
    /// Number of the first batch that nobody was asked for yet.
    next: u64,
    /// Rows handed out or passed over, and whole batches of them.
    taken: (u64, u64),
    /// What the order needs for the batches under way.
    cycles: HeldCycles,
    /// What is left of a batch that cannot be loaded as a whole.
    failed: Range<u64>,
    /// Whether the first of these cannot be loaded together with those before it.
    is_suspect: bool,
}

/// How rows become batches.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Rows of all batches.
    pub rows: u64,
    /// Rows of every batch but the last ones.
    pub batch_rows: u64,
    /// Number of batches; those behind the last row are empty.
    pub batches: u64,
}

impl Cut {
    /// `rows`, `batch_rows` at a time.
    pub fn every(rows: u64, batch_rows: u64) -> Self {
        let batch_rows = batch_rows.max(1);
        Self { rows, batch_rows, batches: rows.div_ceil(batch_rows) }
    }

    /// Rows of batch `number`.
    fn batch(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(self.batch_rows).min(self.rows);
        start..start.saturating_add(self.batch_rows).min(self.rows)
    }
}

impl Batches {
    /// Starts with the first batch of `cut`, `slots` batches under way.
    pub fn new(loader: BatchLoader, pool: Arc<WorkerPool>, cut: Cut, slots: u64) -> Self {
        Self {
            ahead: Lookahead::new(loader, pool),
            cut,
            slots: slots.max(1),
            next: 0,
            taken: (0, 0),
            cycles: HeldCycles::new(),
            failed: 0..0,
            is_suspect: false,
        }
    }

    /// Schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        self.ahead.loader().projection.schema()
    }

    /// How many rows were handed out or passed over, and how many whole batches with them.
    pub fn taken(&self) -> (u64, u64) {
        self.taken
    }

    /// Rows before `until` were handed out or passed over.
    fn take_until(&mut self, until: u64) {
        let is_whole = until == self.cut.batch(self.taken.1).end;
        self.taken = (until, self.taken.1 + u64::from(is_whole));
    }

    /// The next batch, or `None` at the end. `attend` is called several times a second; its error
    /// ends the wait and loses nothing.
    ///
    /// A batch with a sample that cannot be read comes in parts: the samples before it, the
    /// error, the samples behind it.
    ///
    /// # Errors
    /// Why a sample cannot be read, naming it, or what `attend` returned.
    pub fn next_batch(
        &mut self,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<RecordBatch>> {
        self.ahead.check_process()?;
        if !self.failed.is_empty() {
            return self.next_of_failed(attend).map(Some);
        }
        let loader = self.ahead.loader();
        if let Rows::Drawn(share) = &loader.rows {
            // Workers find the order ready: no batch waits for it where signals are not seen.
            let first = self.cut.batch(self.next.saturating_sub(self.slots)).start;
            let rows = first..self.cut.batch(self.next.saturating_add(self.slots)).start;
            let prepare =
                |check: Check<'_>| loader.snapshot.prepare_positions(share.span(rows), check);
            self.cycles = fork_gate::with_breaks(attend, prepare)?;
        }
        self.schedule();
        let Some((rows, loaded)) = self.ahead.take(attend)? else { return Ok(None) };
        let batch = match loaded {
            Ok(batch) => batch,
            // Nothing is wrong with the samples: the same batch may be had once memory is free.
            Err(error) if error.kind() == Kind::Exhausted => {
                self.ahead.ask_first(rows);
                return Err(error);
            }
            Err(error) if rows.end - rows.start <= 1 => {
                self.take_until(rows.end);
                return Err(error);
            }
            Err(_) => {
                self.failed = rows;
                return self.next_of_failed(attend).map(Some);
            }
        };
        if batch.until < rows.end {
            self.ahead.ask_first(batch.until..rows.end);
        }
        self.take_until(batch.until);
        // What was delivered no longer counts as read ahead.
        self.schedule();
        Ok(Some(batch.columns))
    }

    fn schedule(&mut self) {
        while self.next < self.cut.batches && (self.ahead.len() as u64) < self.slots {
            self.ahead.ask(self.cut.batch(self.next));
            self.next += 1;
        }
    }

    fn next_of_failed(&mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<RecordBatch> {
        let Range { start, end } = self.failed;
        if !self.is_suspect {
            let (mut good, mut bad) = (start, end);
            let mut longest = None;
            while bad - good > 1 {
                let middle = good + (bad - good) / 2;
                match self.ahead.load(start..middle, attend)? {
                    Ok(batch) => {
                        let is_whole = batch.until == middle;
                        good = batch.until;
                        longest = Some(batch.columns);
                        if !is_whole {
                            break;
                        }
                    }
                    Err(_) => bad = middle,
                }
            }
            if let Some(batch) = longest {
                self.failed.start = good;
                self.is_suspect = true;
                self.take_until(good);
                return Ok(batch);
            }
        }
        let alone = self.ahead.load(start..start + 1, attend)?;
        if alone.as_ref().is_err_and(|error| error.kind() == Kind::Exhausted) {
            return alone.map(|batch| batch.columns);
        }
        self.is_suspect = false;
        self.failed = 0..0;
        if start + 1 < end {
            self.ahead.ask_first(start + 1..end);
        }
        self.take_until(start + 1);
        alone.map(|batch| batch.columns)
    }
}
