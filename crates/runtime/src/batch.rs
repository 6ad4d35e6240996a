//! Rows of a table as one record batch, payload column included. Knows no queue and no Python.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::ScalarBuffer;
use dataset_rt_sampler::Share;
use dataset_rt_storage::read::{Cache, PayloadPlace, PayloadViews};
use dataset_rt_storage::store::guarded;
use dataset_rt_storage::{Error, Kind, Result};

use crate::active::{SampleRef, name_sample};
use crate::apart::{Check, run_apart};
use crate::block::locate;
use crate::lookahead::Load;
use crate::projection::{Projection, converted, unfit};
use crate::snapshot::Snapshot;

/// Payload bytes fetched between two looks for signals; copied ones share an arena.
const PIECE_BYTES: u64 = 8 * 1024 * 1024;
/// Gathering the columns of more rows takes tenths of a second.
const LONG_ROWS: u64 = 32_768;
/// A piece of more is one payload that takes long.
const APART_BYTES: u64 = 32 * 1024 * 1024;
/// Memory that a row of a batch takes while it is made, strings and payloads aside.
const ROW_BYTES: usize = 128;

/// Which rows of the table a range means.
pub enum Rows {
    /// Those that the order draws at the positions of a share.
    Drawn(Share),
    /// These themselves.
    Table,
    /// Those at these places of a list.
    Listed(Arc<[u64]>),
}

/// Makes batches of one table.
pub struct BatchLoader {
    /// Table and order.
    pub snapshot: Arc<Snapshot>,
    /// Columns.
    pub projection: Projection,
    /// What ranges mean.
    pub rows: Rows,
    /// Payload bytes after which a batch ends early; one larger payload is alone.
    pub bytes_max: u64,
}

/// A batch of the first rows of a range.
pub struct Batch {
    /// The rows.
    pub columns: RecordBatch,
    /// End of these rows in the range that was asked for.
    pub until: u64,
}

impl Load for BatchLoader {
    type Item = Batch;

    fn is_long(&self, range: &Range<u64>) -> bool {
        range.end - range.start > LONG_ROWS
    }

    fn load(&self, range: Range<u64>, mut attended: Option<Check<'_>>) -> Result<Batch> {
        let rows = self.rows(&range)?;
        let outcome = guarded(|_| self.read(&rows, &mut attended));
        match outcome {
            Ok(columns) => Ok(Batch { until: range.start + columns.num_rows() as u64, columns }),
            Err(error) => match rows.as_slice() {
                [row] => Err(self.naming(error, *row)),
                _ => Err(error),
            },
        }
    }
}

impl BatchLoader {
    fn rows(&self, range: &Range<u64>) -> Result<Vec<u64>> {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        check_memory(len)?;
        match &self.rows {
            Rows::Table => Ok(range.clone().collect()),
            Rows::Drawn(share) => {
                let mut rows = vec![0; len];
                self.snapshot.plan()?.share_rows_into(share, range.start, &mut rows)?;
                Ok(rows)
            }
            Rows::Listed(list) => list
                .get(range.start as usize..range.end as usize)
                .map(<[u64]>::to_vec)
                .ok_or_else(|| Error::internal("a range outside the list of rows")),
        }
    }

    fn naming(&self, error: Error, row: u64) -> Error {
        let table = self.snapshot.table();
        let Ok(sample) = guarded(|_| table.sample_at(row)) else { return error };
        name_sample(table.caches(), sample, error)
    }

    fn read(&self, rows: &[u64], attended: Attended<'_, '_>) -> Result<RecordBatch> {
        let table = self.snapshot.table();
        let mut samples: Vec<SampleRef> =
            rows.iter().map(|&row| table.sample_at(row)).collect::<Result<_>>()?;
        let mut places = Vec::new();
        if self.projection.has_payload() {
            places = locate(table.caches(), &samples)?;
            places.truncate(self.fitting(&places));
            samples.truncate(places.len());
        }
        let of_table: Vec<usize> = self
            .projection
            .columns()
            .iter()
            .copied()
            .filter(|&at| at != self.projection.payload())
            .collect();
        look(attended)?;
        let gathered = table.gather_frame(&rows[..samples.len()], &samples, &of_table)?;
        let mut gathered = gathered.into_iter();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.projection.columns().len());
        let mut views = PayloadViews::default();
        for (&at, field) in self.projection.columns().iter().zip(self.projection.schema().fields())
        {
            let column = match at == self.projection.payload() {
                true => Some(self.payloads(&samples, &places, &mut views, attended)?),
                false => gathered.next(),
            };
            let column = column.ok_or_else(|| Error::internal("a column was not gathered"))?;
            columns.push(converted(field.name(), column, field.data_type())?);
        }
        // The last look at the files: whatever was read of them is in the columns now.
        let runs = samples.chunk_by(|a, b| a.cache == b.cache);
        let touched: BTreeSet<u32> = runs.map(|run| run[0].cache).collect();
        for &cache in &touched {
            let cache = &table.caches()[cache as usize];
            cache.check_tables_unchanged()?;
            cache.check_views_unchanged(&views)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(samples.len()));
        let schema = Arc::clone(self.projection.schema());
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(|e| unfit(&e))
    }

    /// How many payloads, at least one, fit the bytes of a batch.
    fn fitting(&self, places: &[PayloadPlace]) -> usize {
        let mut bytes = 0_u64;
        let fits = |place: &&PayloadPlace| {
            bytes = bytes.saturating_add(u64::from(place.record.raw_len()));
            bytes <= self.bytes_max
        };
        places.iter().take_while(fits).count().max(1).min(places.len())
    }

    fn payloads(
        &self,
        samples: &[SampleRef],
        places: &[PayloadPlace],
        views: &mut PayloadViews,
        attended: Attended<'_, '_>,
    ) -> Result<ArrayRef> {
        let mut order: Vec<usize> = Vec::new();
        let first = samples.first().map_or(0, |sample| sample.cache);
        if samples.iter().all(|sample| sample.cache == first) {
            self.fetch(first, places, views, attended)?;
        } else {
            let mut by_cache: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            for (at, sample) in samples.iter().enumerate() {
                by_cache.entry(sample.cache).or_default().push(at);
            }
            for (cache, members) in by_cache {
                let wanted: Vec<PayloadPlace> = members.iter().map(|&at| places[at]).collect();
                self.fetch(cache, &wanted, views, attended)?;
                order.extend(members);
            }
        }
        let (mut in_order, buffers) = views.take();
        if !order.is_empty() {
            let mut placed = vec![0; in_order.len()];
            for (at, view) in order.into_iter().zip(in_order) {
                placed[at] = view;
            }
            in_order = placed;
        }
        // Arrow looks at every view once more; its bytes were just touched.
        let array = BinaryViewArray::try_new(ScalarBuffer::from(in_order), buffers, None);
        Ok(Arc::new(array.map_err(|e| unfit(&e))?))
    }

    fn fetch(
        &self,
        cache: u32,
        places: &[PayloadPlace],
        views: &mut PayloadViews,
        attended: Attended<'_, '_>,
    ) -> Result<()> {
        let cache = &self.snapshot.table().caches()[cache as usize];
        let mut bytes = 0;
        let mut start = 0;
        for (at, place) in places.iter().enumerate() {
            bytes += u64::from(place.record.raw_len());
            if bytes >= PIECE_BYTES || at + 1 == places.len() {
                look(attended)?;
                let piece = &places[start..=at];
                match attended {
                    Some(check) if bytes > APART_BYTES => {
                        *views = self.fetch_apart(cache, piece, std::mem::take(views), check)?;
                    }
                    _ => {
                        let fetchers = self.snapshot.fetchers();
                        fetchers.with(|fetcher| cache.fetch_views(piece, fetcher, views))?;
                    }
                }
                (start, bytes) = (at + 1, 0);
            }
        }
        Ok(())
    }

    /// A payload so large that the consumer must not wait for it alone.
    fn fetch_apart(
        &self,
        cache: &Arc<Cache>,
        places: &[PayloadPlace],
        views: PayloadViews,
        check: Check<'_>,
    ) -> Result<PayloadViews> {
        let (cache, fetchers) = (Arc::clone(cache), Arc::clone(self.snapshot.fetchers()));
        let (places, views) = (places.to_vec(), Mutex::new(views));
        run_apart(check, move |_| {
            let mut views =
                std::mem::take(&mut *views.lock().unwrap_or_else(PoisonError::into_inner));
            fetchers.with(|fetcher| cache.fetch_views(&places, fetcher, &mut views))?;
            Ok(views)
        })
    }
}

/// How the consumer is attended while it loads a batch itself.
type Attended<'a, 'b> = &'a mut Option<Check<'b>>;

fn look(attended: Attended<'_, '_>) -> Result<()> {
    attended.as_mut().map_or(Ok(()), |check| check())
}

/// Asks for the memory of a batch at once and gives it back: what follows is many small pieces.
fn check_memory(rows: usize) -> Result<()> {
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(rows.saturating_mul(ROW_BYTES)).map_err(|_| {
        Error::new(Kind::Exhausted, format!("no memory for a batch of {rows} rows; ask for fewer"))
    })
}
