//! The active table: which samples an epoch may read, with what weight, and what metadata goes
//! with them. Replaced as a whole, never changed. Knows no order and no payload.

use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use dataset_rt_storage::read::Cache;
use dataset_rt_storage::{Error, Result};
use dataset_rt_validator::table::{CacheOrdinals, CheckedTable};

/// One sample of one of the dataset's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRef {
    /// Position of the cache in the dataset.
    pub cache: u32,
    /// Row in that cache.
    pub sample_id: u64,
}

/// Rows that sampling may deliver.
pub struct ActiveTable {
    caches: Arc<[Arc<Cache>]>,
    rows: u64,
    /// Stored and extra columns, in the order samples deliver them.
    delivered: Vec<FieldRef>,
    kind: Kind,
}

enum Kind {
    /// Every sample of every cache once, weight 1: costs no memory per row.
    Whole { starts: Vec<u64>, frame: OnceLock<Vec<RecordBatch>> },
    /// What a user handed in and the validator passed.
    Checked { table: CheckedTable, delivered_at: Vec<usize> },
}

impl ActiveTable {
    /// All samples of `caches`, in the order of the list.
    pub fn whole(caches: Arc<[Arc<Cache>]>) -> Self {
        let mut rows = 0_u64;
        let mut starts = Vec::with_capacity(caches.len());
        for cache in caches.iter() {
            starts.push(rows);
            rows = rows.saturating_add(cache.rows());
        }
        let fields = caches.first().map(|c| c.schema().to_fields()).unwrap_or_default();
        Self {
            delivered: fields.into_iter().map(Arc::new).collect(),
            caches,
            rows,
            kind: Kind::Whole { starts, frame: OnceLock::new() },
        }
    }

    /// A table that passed the validator against these same caches.
    pub fn checked(caches: Arc<[Arc<Cache>]>, table: CheckedTable) -> Self {
        let fields = table.schema().fields();
        let delivered_at: Vec<usize> = (0..fields.len())
            .filter(|&i| !matches!(fields[i].name().as_str(), "cache_id" | "sample_id" | "weight"))
            .collect();
        Self {
            rows: table.rows() as u64,
            delivered: delivered_at.iter().map(|&i| Arc::clone(&fields[i])).collect(),
            caches,
            kind: Kind::Checked { table, delivered_at },
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The caches rows refer to.
    pub fn caches(&self) -> &Arc<[Arc<Cache>]> {
        &self.caches
    }

    /// Stored and extra columns that samples carry, weight and identity excluded.
    pub fn delivered(&self) -> &[FieldRef] {
        &self.delivered
    }

    /// The user's table, or `None` while it is the whole of the caches.
    pub fn as_checked(&self) -> Option<&CheckedTable> {
        match &self.kind {
            Kind::Whole { .. } => None,
            Kind::Checked { table, .. } => Some(table),
        }
    }

    /// The sample that table row `row` names.
    ///
    /// # Errors
    /// `Internal` when `row` is not in the table.
    pub fn sample_at(&self, row: u64) -> Result<SampleRef> {
        let found = match &self.kind {
            Kind::Whole { starts, .. } => (row < self.rows).then(|| {
                let cache = starts.partition_point(|&start| start <= row) - 1;
                SampleRef { cache: cache as u32, sample_id: row - starts[cache] }
            }),
            Kind::Checked { table, .. } => sample_of(table, row as usize),
        };
        found.ok_or_else(|| {
            Error::internal(format!("row {row} is not in the table of {} rows", self.rows))
        })
    }

    /// The array that holds delivered column `column` of row `row` of a user's table, and the row
    /// in it.
    pub fn delivered_cell(&self, column: usize, row: u64) -> Option<(&dyn Array, usize)> {
        let Kind::Checked { table, delivered_at } = &self.kind else { return None };
        let (chunk, row) = table.place_of(row as usize)?;
        let array = table.batches().get(chunk)?.columns().get(*delivered_at.get(column)?)?;
        Some((array.as_ref(), row))
    }

    /// The delivered columns for `rows` of the table, whose samples are `samples`.
    ///
    /// # Errors
    /// `Corrupt` when metadata that these rows touch is damaged.
    pub fn gather(&self, rows: &[u64], samples: &[SampleRef]) -> Result<Vec<ArrayRef>> {
        match &self.kind {
            Kind::Whole { .. } => gather_stored(&self.caches, samples, 0..self.delivered.len()),
            Kind::Checked { table, delivered_at } => gather_checked(table, delivered_at, rows),
        }
    }

    /// Columns `wanted` of [`ActiveTable::frame_schema`] for `rows` of the table, whose samples
    /// are `samples`: copies, whose memory is theirs alone.
    ///
    /// # Errors
    /// `Corrupt` when metadata that these rows touch is damaged.
    pub fn gather_frame(
        &self,
        rows: &[u64],
        samples: &[SampleRef],
        wanted: &[usize],
    ) -> Result<Vec<ArrayRef>> {
        if let Kind::Checked { table, .. } = &self.kind {
            return gather_checked(table, wanted, rows);
        }
        // Identity first, weight last.
        let stored = 2..2 + self.delivered.len();
        let at = wanted.iter().filter(|&at| stored.contains(at)).map(|at| at - stored.start);
        let mut gathered = gather_stored(&self.caches, samples, at)?.into_iter();
        let column = |&at: &usize| -> Result<ArrayRef> {
            Ok(match at {
                0 => {
                    let ids = samples.iter().map(|s| cache_at(&self.caches, s.cache));
                    let ids = ids.map(|cache| cache.map(|cache| cache.cache_id()));
                    Arc::new(UInt64Array::from(ids.collect::<Result<Vec<_>>>()?))
                }
                1 => Arc::new(UInt64Array::from_iter_values(samples.iter().map(|s| s.sample_id))),
                at if stored.contains(&at) => gathered
                    .next()
                    .ok_or_else(|| Error::internal(format!("column {at} was not gathered")))?,
                _ => Arc::new(Float64Array::from_value(1.0, samples.len())),
            })
        };
        wanted.iter().map(column).collect()
    }

    /// Schema of [`ActiveTable::frame`]: identity, stored, weight, extras.
    pub fn frame_schema(&self) -> SchemaRef {
        match &self.kind {
            Kind::Checked { table, .. } => Arc::clone(table.schema()),
            Kind::Whole { .. } => {
                let mut fields: Vec<FieldRef> = vec![
                    Arc::new(Field::new("cache_id", DataType::UInt64, false)),
                    Arc::new(Field::new("sample_id", DataType::UInt64, false)),
                ];
                fields.extend(self.delivered.iter().cloned());
                fields.push(Arc::new(Field::new("weight", DataType::Float64, false)));
                Arc::new(Schema::new(fields))
            }
        }
    }

    /// The whole table as record batches; stored columns share the caches' own buffers.
    /// Identity and weight are built at the first call and kept.
    ///
    /// # Errors
    /// `Corrupt` when metadata is damaged, or what `attend` returned, which is called before
    /// every batch.
    pub fn frame(&self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Vec<RecordBatch>> {
        match &self.kind {
            Kind::Checked { table, .. } => Ok(table.batches().to_vec()),
            Kind::Whole { frame, .. } => {
                if let Some(batches) = frame.get() {
                    return Ok(batches.clone());
                }
                let batches = whole_frame(&self.caches, &self.frame_schema(), attend)?;
                let _ = frame.set(batches.clone());
                Ok(batches)
            }
        }
    }

    /// Position of the cache of every row; `None` while the table is the whole of the caches.
    pub fn ordinals(&self) -> Option<CacheOrdinals<'_>> {
        self.as_checked().map(CheckedTable::caches)
    }
}

/// Without a look at the weight, which would cost a miss of its own.
fn sample_of(table: &CheckedTable, row: usize) -> Option<SampleRef> {
    let (chunk, row_in_chunk) = table.place_of(row)?;
    let sample_id = *table.sample_ids().get(chunk)?.values().get(row_in_chunk)?;
    Some(SampleRef { cache: table.cache_of(row)?, sample_id })
}

/// Stored columns `columns` of samples from any of the caches, in the order asked for.
///
/// # Errors
/// `Corrupt` when metadata that these rows touch is damaged.
pub fn gather_stored(
    caches: &[Arc<Cache>],
    samples: &[SampleRef],
    columns: impl IntoIterator<Item = usize>,
) -> Result<Vec<ArrayRef>> {
    let mut columns = columns.into_iter().peekable();
    if columns.peek().is_none() {
        return Ok(Vec::new());
    }
    let first = samples.first().map_or(0, |s| s.cache);
    if samples.iter().all(|s| s.cache == first) {
        let rows: Vec<u64> = samples.iter().map(|s| s.sample_id).collect();
        let cache = cache_at(caches, first)?;
        return columns.map(|column| cache.gather(column, &rows)).collect();
    }
    // Group the rows by cache, gather each group, and weave the groups back together.
    let mut touched: Vec<u32> = samples.iter().map(|s| s.cache).collect();
    touched.sort_unstable();
    touched.dedup();
    let mut rows: Vec<Vec<u64>> = vec![Vec::new(); touched.len()];
    let mut weave = Vec::with_capacity(samples.len());
    for sample in samples {
        let group = touched.partition_point(|&cache| cache < sample.cache);
        weave.push((group, rows[group].len()));
        rows[group].push(sample.sample_id);
    }
    columns
        .map(|column| {
            let parts: Vec<ArrayRef> = touched
                .iter()
                .zip(&rows)
                .map(|(&cache, rows)| cache_at(caches, cache)?.gather(column, rows))
                .collect::<Result<_>>()?;
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            interleave(&parts, &weave).map_err(|e| arrow_failure(&e))
        })
        .collect()
}

/// The error with the sample in front that it is about.
pub fn name_sample(caches: &[Arc<Cache>], sample: SampleRef, error: Error) -> Error {
    let Ok(cache) = cache_at(caches, sample.cache) else { return error };
    let (row, id) = (sample.sample_id, cache.cache_id());
    error.within(format!("sample_id {row} of cache_id {id} in {}", cache.path().display()))
}

/// The whole metadata of a cache, whose path errors name.
///
/// # Errors
/// As [`Cache::metadata_batches_attended`].
pub fn metadata_of(
    cache: &Cache,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<RecordBatch>> {
    let mut interrupted = false;
    let mut attend = || attend().inspect_err(|_| interrupted = true);
    let batches = cache.metadata_batches_attended(&mut attend);
    batches.map_err(|e| if interrupted { e } else { e.within(cache.path().display()) })
}

fn cache_at(caches: &[Arc<Cache>], ordinal: u32) -> Result<&Arc<Cache>> {
    caches
        .get(ordinal as usize)
        .ok_or_else(|| Error::internal(format!("cache number {ordinal} is not in the dataset")))
}

fn gather_checked(table: &CheckedTable, columns: &[usize], rows: &[u64]) -> Result<Vec<ArrayRef>> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |e: ArrowError| arrow_failure(&e);
    if let [only] = table.batches() {
        return match u32::try_from(only.num_rows()) {
            Ok(_) => {
                let rows: UInt32Array = rows.iter().map(|&row| row as u32).collect();
                take_all(only, columns, &rows)
            }
            Err(_) => take_all(only, columns, &UInt64Array::from(rows.to_vec())),
        };
    }
    let weave: Vec<(usize, usize)> =
        rows.iter().filter_map(|&row| table.place_of(row as usize)).collect();
    columns
        .iter()
        .map(|&at| {
            let chunks: Vec<&dyn Array> =
                table.batches().iter().map(|b| b.column(at).as_ref()).collect();
            interleave(&chunks, &weave).map(unshared).map_err(failed)
        })
        .collect()
}

fn take_all(batch: &RecordBatch, columns: &[usize], rows: &dyn Array) -> Result<Vec<ArrayRef>> {
    columns
        .iter()
        .map(|&at| take(batch.column(at), rows, None).map(unshared).map_err(|e| arrow_failure(&e)))
        .collect()
}

/// The same values in memory of their own: long texts that were picked by their views still lie
/// in the table, and with it perhaps in a mapped file, which may change.
fn unshared(picked: ArrayRef) -> ArrayRef {
    match picked.data_type() {
        DataType::Utf8View => Arc::new(picked.as_string_view().gc()),
        DataType::BinaryView => Arc::new(picked.as_binary_view().gc()),
        _ => picked,
    }
}

fn arrow_failure(error: &ArrowError) -> Error {
    Error::internal(format!("cannot gather metadata columns: {error}"))
}

fn whole_frame(
    caches: &[Arc<Cache>],
    schema: &SchemaRef,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<RecordBatch>> {
    let tables: Vec<Vec<RecordBatch>> =
        caches.iter().map(|cache| metadata_of(cache, attend)).collect::<Result<_>>()?;
    let longest = tables.iter().flatten().map(RecordBatch::num_rows).max().unwrap_or(0);
    // One buffer of ones serves every batch.
    let ones = Float64Array::from(vec![1.0; longest]);
    let mut batches = Vec::new();
    for (cache, table) in caches.iter().zip(&tables) {
        let longest = table.iter().map(RecordBatch::num_rows).max().unwrap_or(0);
        let cache_ids = UInt64Array::from(vec![cache.cache_id(); longest]);
        let mut first = 0_u64;
        for batch in table {
            attend()?;
            let rows = batch.num_rows();
            let last = first + rows as u64;
            let mut columns: Vec<ArrayRef> = vec![
                Arc::new(cache_ids.slice(0, rows)),
                Arc::new(UInt64Array::from_iter_values(first..last)),
            ];
            columns.extend(batch.columns().iter().cloned());
            columns.push(Arc::new(ones.slice(0, rows)));
            let joined = RecordBatch::try_new(Arc::clone(schema), columns)
                .map_err(|e| Error::internal(format!("cannot join the table: {e}")))?;
            batches.push(joined);
            first = last;
        }
    }
    Ok(batches)
}
