//! From identities to places in the caches' own columns, as runs of consecutive rows.
//! Knows no column type.

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use dataset_rt_storage::format::schema::StoredSchema;
use dataset_rt_storage::{Error, Result};

use super::check::CacheColumns;

/// The caches' own columns, findable by identity.
pub(super) struct Sources<'a> {
    caches: Vec<Source<'a>>,
    /// `(cache_id, ordinal)`, sorted.
    by_id: Vec<(u64, usize)>,
}

struct Source<'a> {
    cache_id: u64,
    rows: u64,
    batches: &'a [RecordBatch],
    /// First row of each batch, and the row count at the end.
    starts: Vec<u64>,
}

/// Consecutive table rows that are consecutive rows of one cache batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First row in the chunk.
    pub(super) row: usize,
    /// Rows.
    pub(super) len: usize,
    /// Position of the cache.
    pub(super) cache: usize,
    /// Batch of the cache.
    pub(super) batch: usize,
    /// First row in that batch.
    pub(super) start: usize,
}

impl<'a> Sources<'a> {
    /// Indexes the caches.
    ///
    /// # Errors
    /// `Internal` when columns, types or row counts are not those of the schema, or two caches
    /// have one id: the caller has opened them and knows better.
    pub(super) fn new(caches: &[CacheColumns<'a>], schema: &StoredSchema) -> Result<Self> {
        let mut by_id: Vec<(u64, usize)> =
            caches.iter().enumerate().map(|(ordinal, cache)| (cache.cache_id, ordinal)).collect();
        by_id.sort_unstable();
        if by_id.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
            return Err(Error::internal("two caches have the same cache_id"));
        }
        if u32::try_from(caches.len()).is_err() {
            return Err(Error::unsupported("more than 2**32 - 1 caches in one dataset"));
        }
        let caches =
            caches.iter().map(|cache| Source::new(cache, schema)).collect::<Result<_>>()?;
        Ok(Self { caches, by_id })
    }

    /// Column `column` of a run's batch.
    pub(super) fn column(&self, run: &Run, column: usize) -> Option<&'a ArrayRef> {
        self.caches.get(run.cache)?.batches.get(run.batch)?.columns().get(column)
    }

    /// The identity a run's row `offset` stands for.
    pub(super) fn identity(&self, run: &Run, offset: usize) -> Option<(u64, u64)> {
        let source = self.caches.get(run.cache)?;
        let first = source.starts.get(run.batch)?;
        Some((source.cache_id, first + (run.start + offset) as u64))
    }

    /// Places of the rows `rows` of a chunk; `ordinals` gains one cache position per row.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown identity; `first_row` is the table row of the chunk's first.
    pub(super) fn runs(
        &self,
        cache_ids: &UInt64Array,
        sample_ids: &UInt64Array,
        rows: std::ops::Range<usize>,
        first_row: usize,
        ordinals: &mut Vec<u32>,
    ) -> Result<Vec<Run>> {
        let (cache_ids, sample_ids) = (cache_ids.values(), sample_ids.values());
        let mut runs: Vec<Run> = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let (cache_id, sample_id) = (cache_ids[row], sample_ids[row]);
            let (cache, source) =
                self.find(cache_id).ok_or_else(|| self.unknown_cache(cache_id, first_row + row))?;
            let (batch, start, end) = source
                .find(sample_id)
                .ok_or_else(|| source.unknown_sample(sample_id, first_row + row))?;
            let until = rows.end.min(row.saturating_add((end - sample_id) as usize));
            let found = cache_ids[row..until].iter().zip(&sample_ids[row..until]);
            let len = found
                .zip(sample_id..)
                .take_while(|&((&cache, &sample), next)| cache == cache_id && sample == next)
                .count();
            ordinals.resize(ordinals.len() + len, cache as u32);
            runs.push(Run { row, len, cache, batch, start });
            row += len;
        }
        Ok(runs)
    }

    fn find(&self, cache_id: u64) -> Option<(usize, &Source<'a>)> {
        let at = self.by_id.binary_search_by_key(&cache_id, |&(id, _)| id).ok()?;
        let (_, ordinal) = *self.by_id.get(at)?;
        Some((ordinal, self.caches.get(ordinal)?))
    }

    fn unknown_cache(&self, cache_id: u64, row: usize) -> Error {
        let known: Vec<String> =
            self.caches.iter().take(5).map(|source| source.cache_id.to_string()).collect();
        let more = if self.caches.len() > 5 { ", ..." } else { "" };
        Error::invalid(format!(
            "column \"cache_id\", row {row}: found {cache_id}; expected the id of a loaded cache \
             ({}{more}); a table belongs to the caches it was made from: load those, or start \
             from get_metadata()",
            known.join(", ")
        ))
    }
}

impl<'a> Source<'a> {
    fn new(cache: &CacheColumns<'a>, schema: &StoredSchema) -> Result<Self> {
        let mut starts = vec![0];
        let mut rows = 0_u64;
        for batch in cache.batches {
            let fits = batch.num_columns() == schema.columns().len()
                && batch
                    .columns()
                    .iter()
                    .zip(schema.columns())
                    .all(|(array, column)| *array.data_type() == column.column_type.to_arrow());
            if !fits {
                return Err(Error::internal(format!(
                    "columns of cache {} are not those of its schema",
                    cache.cache_id
                )));
            }
            rows += batch.num_rows() as u64;
            starts.push(rows);
        }
        if rows != cache.rows {
            return Err(Error::internal(format!(
                "cache {} has {} rows; its columns have {rows}",
                cache.cache_id, cache.rows
            )));
        }
        Ok(Self { cache_id: cache.cache_id, rows, batches: cache.batches, starts })
    }

    /// Batch of `sample_id`, its row there, and the first row past that batch.
    fn find(&self, sample_id: u64) -> Option<(usize, usize, u64)> {
        if sample_id >= self.rows {
            return None;
        }
        let batch = self.starts.partition_point(|&start| start <= sample_id).checked_sub(1)?;
        let start = sample_id - self.starts.get(batch)?;
        Some((batch, usize::try_from(start).ok()?, *self.starts.get(batch + 1)?))
    }

    fn unknown_sample(&self, sample_id: u64, row: usize) -> Error {
        Error::invalid(format!(
            "column \"sample_id\", row {row}: found {sample_id}; expected less than {}, the \
             samples of cache {}; keep identities as get_metadata() gives them",
            self.rows, self.cache_id
        ))
    }
}
