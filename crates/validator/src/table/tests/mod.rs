//! Two small caches with every stored type, and tables made from them.

mod accepts;
mod oracle;
mod refuses;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int8Array, Int64Array, LargeBinaryArray,
    LargeStringArray, NullArray, RecordBatch, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{Schema, SchemaRef, TimeUnit};
use arrow_select::concat::concat_batches;
use dataset_rt_storage::format::schema::{ColumnType, StoredColumn, StoredSchema};
use dataset_rt_storage::{Error, Result};

use super::{CacheColumns, CheckedTable, check_table, whole_table};

pub(super) const IDS: [u64; 2] = [17, 9_000_000_000];
pub(super) const ROWS: [usize; 2] = [250, 90];

pub(super) fn schema() -> StoredSchema {
    let utc = Some(Arc::from("UTC"));
    let columns = [
        ("label", ColumnType::Int64, true),
        ("score", ColumnType::Float64, true),
        ("split", ColumnType::Utf8, true),
        ("kept", ColumnType::Bool, true),
        ("tiny", ColumnType::Int8, false),
        ("raw", ColumnType::Binary, true),
        ("at", ColumnType::Timestamp(TimeUnit::Microsecond, utc), true),
        ("day", ColumnType::Date32, true),
        ("nothing", ColumnType::Null, true),
    ];
    let columns = columns.map(|(name, column_type, nullable)| StoredColumn {
        name: name.into(),
        column_type,
        nullable,
    });
    StoredSchema::new(columns.to_vec()).unwrap()
}

/// Stored columns of one cache; row `i` of cache `c` is a function of both.
pub(super) fn cache_batch(cache: usize) -> RecordBatch {
    let rows = ROWS[cache] as i64;
    let salt = 1000 * cache as i64;
    let some = |i: i64, every: i64| i % every != 0;
    let columns: Vec<ArrayRef> = vec![
        Arc::new((0..rows).map(|i| some(i, 7).then_some(i + salt)).collect::<Int64Array>()),
        Arc::new(
            (0..rows)
                .map(|i| match i % 5 {
                    0 => None,
                    1 => Some(f64::NAN),
                    2 => Some(-0.0),
                    _ => Some((i + salt) as f64 / 3.0),
                })
                .collect::<Float64Array>(),
        ),
        Arc::new(
            (0..rows)
                .map(|i| {
                    some(i, 6).then(|| match i % 3 {
                        0 => format!("s{}", i % 4),
                        1 => String::new(),
                        _ => format!("a longer text than a view holds inline {}", i + salt),
                    })
                })
                .collect::<LargeStringArray>(),
        ),
        Arc::new((0..rows).map(|i| some(i, 4).then_some(i % 2 == 0)).collect::<BooleanArray>()),
        Arc::new((0..rows).map(|i| Some((i % 100 - 50) as i8)).collect::<Int8Array>()),
        Arc::new(
            (0..rows)
                .map(|i| some(i, 9).then(|| vec![i as u8; (i % 20) as usize]))
                .collect::<LargeBinaryArray>(),
        ),
        Arc::new(
            (0..rows)
                .map(|i| some(i, 8).then_some(i * 1_000_000))
                .collect::<TimestampMicrosecondArray>()
                .with_timezone("UTC"),
        ),
        Arc::new((0..rows).map(|i| some(i, 3).then_some(i as i32)).collect::<Date32Array>()),
        Arc::new(NullArray::new(rows as usize)),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(schema().to_fields())), columns).unwrap()
}

/// The caches in chunks of uneven size.
pub(super) struct Caches(pub(super) [Vec<RecordBatch>; 2]);

impl Caches {
    pub(super) fn new() -> Self {
        let cut = |batch: RecordBatch, piece: usize| {
            let rows = batch.num_rows();
            let starts = (0..rows).step_by(piece);
            starts.map(|start| batch.slice(start, piece.min(rows - start))).collect()
        };
        Self([cut(cache_batch(0), 77), cut(cache_batch(1), 90)])
    }

    pub(super) fn columns(&self) -> Vec<CacheColumns<'_>> {
        let parts = IDS.iter().zip(&ROWS).zip(&self.0);
        parts
            .map(|((&cache_id, &rows), batches)| CacheColumns {
                cache_id,
                rows: rows as u64,
                batches,
            })
            .collect()
    }

    pub(super) fn check(&self, table: &RecordBatch, edited: &[&str]) -> Result<CheckedTable> {
        self.check_chunks(table.schema_ref(), std::slice::from_ref(table), edited)
    }

    pub(super) fn check_chunks(
        &self,
        schema_of_table: &SchemaRef,
        table: &[RecordBatch],
        edited: &[&str],
    ) -> Result<CheckedTable> {
        let edited: Vec<String> = edited.iter().map(|&name| name.to_owned()).collect();
        check_table(schema_of_table, table, &schema(), &self.columns(), &edited, &mut || Ok(()))
    }

    /// The whole default table in one batch.
    pub(super) fn whole(&self) -> RecordBatch {
        let table = whole_table(&schema(), &self.columns()).unwrap();
        concat_batches(table.schema(), table.batches()).unwrap()
    }

    pub(super) fn refuse(&self, table: &RecordBatch, edited: &[&str]) -> Error {
        self.check(table, edited).expect_err("the table must be refused")
    }
}

/// The table with column `name` replaced, or added at the end.
pub(super) fn with_column(table: &RecordBatch, name: &str, array: ArrayRef) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = named(table);
    match columns.iter_mut().find(|(own, _)| own == name) {
        Some(column) => column.1 = array,
        None => columns.push((name.to_owned(), array)),
    }
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

pub(super) fn without_column(table: &RecordBatch, name: &str) -> RecordBatch {
    RecordBatch::try_from_iter(named(table).into_iter().filter(|(own, _)| own != name)).unwrap()
}

pub(super) fn named(table: &RecordBatch) -> Vec<(String, ArrayRef)> {
    let fields = table.schema_ref().fields().iter();
    fields.zip(table.columns()).map(|(f, c)| (f.name().clone(), Arc::clone(c))).collect()
}

pub(super) fn rows_of(table: &RecordBatch, rows: &[usize]) -> RecordBatch {
    let rows = UInt64Array::from_iter_values(rows.iter().map(|&row| row as u64));
    arrow_select::take::take_record_batch(table, &rows).unwrap()
}
