//! Where a dataset's stream stands and who reads what of it: windows, epochs, ranks, lanes. Reads no
//! sample itself.

use std::ops::Range;
use std::sync::Arc;

use dataset_rt_sampler::{Batching, Cursor, CursorError, PartitionError, Share, Window};
use dataset_rt_storage::store::IoMode;
use dataset_rt_storage::{Error, Result};

use crate::batch::{BatchLoader, Rows};
use crate::batches::{Batches, Cut};
use crate::dataset::{Dataset, mean_payload_bytes};
use crate::progress::Progress;
use crate::projection::Projection;
use crate::snapshot::Snapshot;
use crate::stream::Stream;

impl Dataset {
    /// Claims the next window of the stream.
    ///
    /// # Errors
    /// `InvalidInput` at the end of the stream.
    pub fn claim(&self) -> Result<(Stream, Arc<Progress>)> {
        let (snapshot, share, progress) = self.moving(|state| {
            let window = state.cursor.claim().map_err(cursor_error)?;
            let share = self.partition.share(window.positions());
            let progress = Arc::new(Progress::of_samples(window, share));
            state.newest = Some(Arc::clone(&progress));
            Ok((Arc::clone(&state.snapshot), share, progress))
        })?;
        Ok((self.stream(snapshot, share), progress))
    }

    /// Claims the next window of the stream for others, who read it in batches of `batch_rows`
    /// samples and say how many were taken. On error nothing is claimed.
    ///
    /// # Errors
    /// `InvalidInput` for a batch size that does not fit the global batches, or at the end of the
    /// stream.
    pub fn claim_batching(&self, batch_rows: u64) -> Result<(Batching, Arc<Progress>)> {
        self.moving(|state| {
            let batching = self.batching(state.cursor.peek().positions(), batch_rows)?;
            let window = state.cursor.claim().map_err(cursor_error)?;
            let progress = Arc::new(Progress::of_batches(window, batching));
            state.newest = Some(Arc::clone(&progress));
            Ok((batching, progress))
        })
    }

    /// The window that the next iterator would claim.
    ///
    /// # Errors
    /// `Conflict` when the process that this one follows has another table now.
    pub fn next_window(&self) -> Result<Window> {
        Ok(self.look()?.cursor.peek())
    }

    /// Reads this rank's part of any stretch of the stream and claims nothing: of its units of
    /// `unit` consecutive samples those numbered `lane, lane + lanes, ..`.
    ///
    /// # Errors
    /// `Conflict` when the process that this one follows has another table now.
    pub fn lane(&self, stretch: Range<u64>, lane: u64, lanes: u64, unit: u64) -> Result<Stream> {
        let share = self.partition.share(stretch).lane(lane, lanes, unit);
        Ok(self.stream(self.snapshot()?, share))
    }

    /// This rank's batches of `batch_rows` samples of a stretch of the stream.
    ///
    /// # Errors
    /// `InvalidInput` for a batch size that does not fit the global batches.
    pub fn batching(&self, stretch: Range<u64>, batch_rows: u64) -> Result<Batching> {
        self.partition.batches(stretch, batch_rows).map_err(|e| partition_error(&e))
    }

    fn stream(&self, snapshot: Arc<Snapshot>, share: Share) -> Stream {
        Stream::new(snapshot, Arc::clone(&self.pool), self.read_ahead, share)
    }

    /// Claims the next window of the stream, to be read in batches of `batch_rows` samples with
    /// `columns`, or with all. On error nothing is claimed.
    ///
    /// # Errors
    /// `InvalidInput` for unknown or repeated columns, a batch size that does not fit the global
    /// batches, or at the end of the stream.
    pub fn claim_batches(
        &self,
        batch_rows: u64,
        columns: Option<&[String]>,
    ) -> Result<(Batches, Arc<Progress>)> {
        let sample_bytes = self.copied_sample_bytes();
        let (snapshot, projection, batching, progress) = self.moving(|state| {
            let projection = Projection::new(state.snapshot.table(), columns)?;
            let batching = self.batching(state.cursor.peek().positions(), batch_rows)?;
            let window = state.cursor.claim().map_err(cursor_error)?;
            let progress = Arc::new(Progress::of_batches(window, batching));
            state.newest = Some(Arc::clone(&progress));
            Ok((Arc::clone(&state.snapshot), projection, batching, progress))
        })?;
        let Batching { share, rows: batch_rows, batches, .. } = batching;
        let sample_bytes = if projection.has_payload() { sample_bytes } else { 0 };
        let slots = self.read_ahead.batches(batch_rows.min(share.rows()), sample_bytes);
        let rows = Rows::Drawn(share);
        let loader = BatchLoader { snapshot, projection, rows, bytes_max: u64::MAX };
        let cut = Cut { rows: share.rows(), batch_rows, batches };
        Ok((Batches::new(loader, Arc::clone(&self.pool), cut, slots), progress))
    }

    /// Mean size of the payloads that are copied, which take memory while they are read ahead.
    fn copied_sample_bytes(&self) -> u64 {
        let is_mapped = match self.options.io {
            IoMode::Mmap => true,
            IoMode::Pread => false,
            // One cache tells for all where they lie; opening its first shard is soon due anyway.
            IoMode::Auto => self.caches[0].is_mapped().unwrap_or(false),
        };
        let copied = self.caches.iter().filter(|cache| cache.is_compressed() || !is_mapped);
        mean_payload_bytes(copied)
    }

    /// Samples per epoch, of this rank.
    ///
    /// # Errors
    /// `Conflict` when the process that this one follows has another table now.
    pub fn epoch_len(&self) -> Result<u64> {
        Ok(self.next_epoch()?.1.rows())
    }

    /// Number of the next iterator's epoch.
    ///
    /// # Errors
    /// As [`Dataset::epoch_len`].
    pub fn epoch(&self) -> Result<u64> {
        Ok(self.look()?.cursor.epoch)
    }

    /// Makes `epoch` the next iterator's.
    ///
    /// # Errors
    /// `InvalidInput` when the position lies behind the end of the stream.
    pub fn set_epoch(&self, epoch: u64) -> Result<()> {
        self.move_cursor(|cursor| cursor.set_epoch(epoch))
    }

    fn move_cursor(
        &self,
        step: impl FnOnce(&mut Cursor) -> std::result::Result<(), CursorError>,
    ) -> Result<()> {
        self.moving(|state| {
            step(&mut state.cursor).map_err(cursor_error)?;
            // Iterators that run say nothing about the new place.
            state.newest = None;
            Ok(())
        })
    }

    /// Gives later windows `len` samples, of all ranks together.
    ///
    /// # Errors
    /// `InvalidInput` for 0.
    pub fn set_epoch_len(&self, len: u64) -> Result<()> {
        self.move_cursor(|cursor| cursor.set_epoch_len(len))
    }

    /// The snapshot of now, and this rank's share of the epoch that the next iterator would read:
    /// all of it, also where that iterator would go on behind its beginning.
    ///
    /// # Errors
    /// As [`Dataset::epoch_len`].
    pub fn next_epoch(&self) -> Result<(Arc<Snapshot>, Share)> {
        let state = self.look()?;
        let window = state.cursor.peek();
        Ok((Arc::clone(&state.snapshot), self.partition.share(window.start..window.end())))
    }
}

pub(crate) fn cursor_error(error: CursorError) -> Error {
    Error::invalid(error.to_string())
}

pub(crate) fn partition_error(error: &PartitionError) -> Error {
    Error::invalid(error.to_string())
}
