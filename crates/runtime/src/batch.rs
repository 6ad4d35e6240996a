//! Rows of a table as one record batch, payload column included. Knows no queue and no Python.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::ScalarBuffer;
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use dataset_rt_storage::read::{Cache, PayloadPlace, PayloadViews};
use dataset_rt_storage::store::guarded;
use dataset_rt_storage::{Error, Kind, Result};

use crate::active::{ActiveTable, SampleRef};
use crate::apart::{Check, run_apart};
use crate::block::locate;
use crate::lookahead::Load;
use crate::snapshot::Snapshot;

/// Payload bytes fetched between two looks for signals; copied ones share an arena.
const PIECE_BYTES: u64 = 8 * 1024 * 1024;
/// Gathering the columns of more rows takes tenths of a second.
const LONG_ROWS: u64 = 32_768;
/// A piece of more is one payload that takes long.
const APART_BYTES: u64 = 32 * 1024 * 1024;
/// Memory that a row of a batch takes while it is made, strings and payloads aside.
const ROW_BYTES: usize = 128;

/// Columns of the batches of one table, in the order they are wanted.
#[derive(Clone, Debug)]
pub struct Projection {
    schema: SchemaRef,
    /// Positions in [`face_schema`].
    columns: Vec<usize>,
    /// Position of the payload there.
    payload: usize,
}

/// All columns of a batch: those of the table, and `payload` behind them.
pub fn face_schema(table: &ActiveTable) -> Schema {
    let mut fields: Vec<FieldRef> = table.frame_schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("payload", DataType::BinaryView, false)));
    Schema::new(fields)
}

impl Projection {
    /// The columns called `names`, or all.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no column has, or that comes twice.
    pub fn new(table: &ActiveTable, names: Option<&[String]>) -> Result<Self> {
        let all = face_schema(table);
        let payload = all.fields().len() - 1;
        let Some(names) = names else {
            return Ok(Self { columns: (0..=payload).collect(), schema: Arc::new(all), payload });
        };
        let had: Vec<String> = all.fields().iter().map(|field| field.name().clone()).collect();
        check_names(names, &had)?;
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let Some(at) = had.iter().position(|had| had == name) else { continue };
            if columns.contains(&at) {
                return Err(Error::invalid(format!(
                    "column {name:?} is asked for twice; expected each name once"
                )));
            }
            columns.push(at);
        }
        let fields: Vec<FieldRef> =
            columns.iter().map(|&at| Arc::clone(&all.fields()[at])).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), columns, payload })
    }

    /// The columns of `wanted`, by name and in its order, text and bytes in its forms.
    ///
    /// # Errors
    /// As [`Projection::new`], and `InvalidInput` for any other difference of types.
    pub fn like(table: &ActiveTable, allowed: Option<&[String]>, wanted: &Schema) -> Result<Self> {
        let names: Vec<String> = wanted.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(allowed) = allowed {
            check_names(&names, allowed)?;
        }
        let mut found = Self::new(table, Some(&names))?;
        let fields = found.schema.fields().iter().zip(wanted.fields());
        let fields: Vec<Field> =
            fields.map(|(ours, wanted)| in_form(ours, wanted)).collect::<Result<_>>()?;
        found.schema = Arc::new(Schema::new(fields));
        Ok(found)
    }

    /// Whether no column is in another form than the table has it.
    pub fn is_unchanged(&self, table: &ActiveTable) -> bool {
        let all = face_schema(table);
        let ours = self.columns.iter().map(|&at| all.field(at).data_type());
        ours.eq(self.schema.fields().iter().map(|field| field.data_type()))
    }

    /// The columns of a batch of the whole table, which has no payload.
    ///
    /// # Errors
    /// `Internal` when the payload is among the columns.
    pub fn of_frame(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let projected = batch.project(&self.columns).map_err(|e| unfit(&e))?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = projected.columns().to_vec();
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| unfit(&e))
    }

    /// Schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether payloads are among the columns.
    pub fn has_payload(&self) -> bool {
        self.columns.contains(&self.payload)
    }
}

/// Refuses names that are not among those `had`.
///
/// # Errors
/// `InvalidInput` for the first such name.
pub fn check_names(names: &[String], had: &[String]) -> Result<()> {
    match names.iter().find(|name| !had.contains(name)) {
        None => Ok(()),
        Some(name) => {
            Err(Error::invalid(format!("there is no column {name:?}; expected some of {had:?}")))
        }
    }
}

/// `ours` as `wanted` has it, if that is another form of the same values.
fn in_form(ours: &Field, wanted: &Field) -> Result<Field> {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let (had, wanted) = (ours.data_type(), wanted.data_type());
    let forms: &[DataType] = match had {
        Utf8 | LargeUtf8 | Utf8View => &[Utf8, LargeUtf8, Utf8View],
        Binary | LargeBinary | BinaryView => &[Binary, LargeBinary, BinaryView],
        other => std::slice::from_ref(other),
    };
    if forms.contains(wanted) {
        return Ok(ours.clone().with_data_type(wanted.clone()));
    }
    Err(Error::invalid(format!(
        "column {:?} was asked for as {wanted}; it can be had as one of {forms:?}; cast it afterwards",
        ours.name()
    )))
}

/// Brings a column into another form of its type.
fn converted(name: &str, column: ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    if column.data_type() == wanted {
        return Ok(column);
    }
    if matches!(wanted, DataType::Binary | DataType::Utf8) {
        let bytes = value_bytes(&column);
        if bytes > i32::MAX as u64 {
            return Err(Error::invalid(format!(
                "the {bytes} bytes of column {name:?} in {} rows are too many for {wanted}, which \
                 counts to 2^31 - 1; ask for a large or view form",
                column.len()
            )));
        }
    }
    cast(&column, wanted).map_err(|e| unfit(&e))
}

/// Bytes of all values of a column of text or bytes.
fn value_bytes(column: &ArrayRef) -> u64 {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view().lengths().map(u64::from).sum(),
        DataType::BinaryView => column.as_binary_view().lengths().map(u64::from).sum(),
        _ => column.to_data().buffers().last().map_or(0, |values| values.len() as u64),
    }
}

/// Which rows of the table a range means.
pub enum Rows {
    /// Those that the order draws at these positions.
    Drawn,
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
            Rows::Drawn => {
                let mut rows = vec![0; len];
                self.snapshot.plan()?.rows_into(range.start, &mut rows);
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
        let Some(cache) = table.caches().get(sample.cache as usize) else { return error };
        error.within(format!("sample_id {} of cache_id {}", sample.sample_id, cache.cache_id()))
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
            .columns
            .iter()
            .copied()
            .filter(|&at| at != self.projection.payload)
            .collect();
        look(attended)?;
        let gathered = table.gather_frame(&rows[..samples.len()], &samples, &of_table)?;
        let mut gathered = gathered.into_iter();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.projection.columns.len());
        let mut views = PayloadViews::default();
        for (&at, field) in self.projection.columns.iter().zip(self.projection.schema.fields()) {
            let column = match at == self.projection.payload {
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
        let schema = Arc::clone(&self.projection.schema);
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

fn unfit(error: &ArrowError) -> Error {
    Error::internal(format!("cannot make a record batch: {error}"))
}
