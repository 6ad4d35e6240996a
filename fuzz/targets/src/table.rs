//! Foreign Arrow tables: as the active table of a cache, and as what a source yields.

use std::sync::{Arc, LazyLock};

use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, LargeBinaryArray,
    LargeStringArray, NullArray, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow_schema::{Field, Schema, TimeUnit};
use dataset_rt_storage::Kind;
use dataset_rt_storage::format::codec::Compression;
use dataset_rt_storage::format::schema::{ColumnType, StoredColumn, StoredSchema};
use dataset_rt_storage::write::{GroupLimits, Ingest};
use dataset_rt_validator::table::{CacheColumns, CheckedTable, check_table};

use crate::edits::Input;
use crate::foreign;

const CACHE_ID: u64 = 17;
const ROWS: usize = 8;

static SCHEMA: LazyLock<StoredSchema> = LazyLock::new(|| {
    let columns = [
        ("label", ColumnType::Int64, true),
        ("score", ColumnType::Float64, true),
        ("split", ColumnType::Utf8, true),
        ("raw", ColumnType::Binary, true),
        ("kept", ColumnType::Bool, false),
        ("day", ColumnType::Date32, true),
        ("at", ColumnType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))), true),
        ("nothing", ColumnType::Null, true),
    ];
    let columns = columns.map(|(name, column_type, nullable)| StoredColumn {
        name: name.to_owned(),
        column_type,
        nullable,
    });
    StoredSchema::new(columns.to_vec()).expect("a valid schema")
});

/// The stored columns, made so that untouched foreign arrays of the right type are equal to them.
static STORED: LazyLock<RecordBatch> = LazyLock::new(|| {
    let rows = 0..ROWS as i64;
    let text = |row: i64| format!("t{row}");
    let zone: Option<Arc<str>> = Some(Arc::from("UTC"));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.clone())),
        Arc::new(Float64Array::from_iter_values(
            rows.clone().map(|row| f64::from_bits(row as u64)),
        )),
        Arc::new(LargeStringArray::from_iter_values(rows.clone().map(text))),
        Arc::new(LargeBinaryArray::from_iter_values(rows.clone().map(text))),
        Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(row % 2 == 0)))),
        Arc::new(Date32Array::from_iter_values(rows.clone().map(|row| row as i32))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(rows).with_timezone_opt(zone)),
        Arc::new(NullArray::new(ROWS)),
    ];
    RecordBatch::try_new(SCHEMA.metadata_schema(), columns).expect("columns of the schema")
});

/// Which columns are foreign, then each of them.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let choice = input.byte();
    let len = match choice & 3 {
        0 => ROWS,
        1 => usize::from(input.byte()),
        _ => 1,
    };
    if choice & 4 == 0 { check_active(&mut input, len) } else { check_source(&mut input, len) }
}

/// Names and arrays of a table; our own where `input` gives no other.
fn columns(input: &mut Input<'_>, own: &[(&str, ArrayRef)], len: usize) -> Vec<(String, ArrayRef)> {
    let mut columns: Vec<(String, ArrayRef)> =
        own.iter().map(|(name, array)| ((*name).to_owned(), Arc::clone(array))).collect();
    for _ in 0..4 {
        if input.is_empty() {
            break;
        }
        let at = usize::from(input.byte()) % (columns.len() + 1);
        let Some(array) = foreign::array(input, len) else { continue };
        match columns.get_mut(at) {
            Some(column) => column.1 = array,
            None => columns.push((format!("extra {at}"), array)),
        }
    }
    columns
}

fn batch(columns: Vec<(String, ArrayRef)>, len: usize) -> Option<RecordBatch> {
    let fields =
        columns.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(len));
    RecordBatch::try_new_with_options(schema, arrays, &options).ok()
}

fn check_active(input: &mut Input<'_>, len: usize) {
    let edited: Vec<String> = match input.byte() % 4 {
        0 => SCHEMA.columns().iter().map(|column| column.name.clone()).collect(),
        _ => Vec::new(),
    };
    let rows = (0..len as u64).map(|row| row % ROWS as u64);
    let mut own: Vec<(&str, ArrayRef)> = vec![
        ("cache_id", Arc::new(UInt64Array::from_value(CACHE_ID, len))),
        ("sample_id", Arc::new(UInt64Array::from_iter_values(rows))),
        ("weight", Arc::new(Float64Array::from_value(1.0, len))),
    ];
    for (column, array) in SCHEMA.columns().iter().zip(STORED.columns()) {
        own.push((&column.name, array.slice(0, len.min(ROWS))));
    }
    let Some(table) = batch(columns(input, &own, len), len) else { return };
    let cache = CacheColumns {
        cache_id: CACHE_ID,
        rows: ROWS as u64,
        batches: std::slice::from_ref(&STORED),
    };
    let schema = table.schema();
    match check_table(
        &schema,
        std::slice::from_ref(&table),
        &SCHEMA,
        &[cache],
        &edited,
        &mut || Ok(()),
    ) {
        Ok(checked) => check_accepted(&checked, len, edited.is_empty()),
        Err(error) => {
            assert!(matches!(error.kind(), Kind::InvalidInput | Kind::Unsupported), "{error}");
        }
    }
}

/// Every row is a sample of the cache, with a usable weight and the cache's own values.
fn check_accepted(checked: &CheckedTable, len: usize, is_own: bool) {
    assert_eq!(checked.rows(), len);
    let batch = checked.batches().first().expect("a table has rows");
    for column in batch.columns() {
        column.to_data().validate_full().expect("what is kept is valid");
    }
    for number in 0..len {
        let row = checked.row(number).expect("a row below the count");
        assert!(row.sample_id < ROWS as u64 && row.cache == 0);
        assert!(row.weight.is_finite() && row.weight > 0.0);
        let names = ["label", "day"];
        for name in names.iter().filter(|_| is_own) {
            let found = batch.column_by_name(name).expect("a stored column").slice(number, 1);
            let own = STORED.column_by_name(name).expect("a stored column");
            assert_eq!(*found, *own.slice(row.sample_id as usize, 1), "{name}");
        }
    }
}

fn check_source(input: &mut Input<'_>, len: usize) {
    let declared = (input.byte() & 1 == 0).then(|| SCHEMA.clone());
    let payloads = LargeBinaryArray::from_iter_values((0..len).map(|row| vec![7; row]));
    let mut own: Vec<(&str, ArrayRef)> = vec![("payload", Arc::new(payloads))];
    for (column, array) in SCHEMA.columns().iter().zip(STORED.columns()) {
        own.push((&column.name, array.slice(0, len.min(ROWS))));
    }
    let Some(table) = batch(columns(input, &own, len), len) else { return };
    let limits = GroupLimits::new(3000, &Compression::default());
    let mut ingest = Ingest::new("foreign", declared, limits);
    let outcome = ingest.push_batch(&table).and_then(|()| ingest.push_batch(&table));
    let kinds = [Kind::InvalidInput, Kind::Unsupported];
    match outcome.and_then(|()| ingest.finish()) {
        Ok((_, groups)) => {
            let rows: u64 = groups.iter().map(|group| group.rows()).sum();
            assert_eq!(rows, 2 * len as u64);
            for array in groups.iter().flat_map(|group| group.columns()) {
                array.to_data().validate_full().expect("what is stored is valid");
            }
        }
        Err(error) => assert!(kinds.contains(&error.kind()), "{error}"),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![0, 4], vec![4], vec![1, 200]];
    for choice in [0, 4] {
        for column in 0..12 {
            // Every plain type in every column, then the others.
            for data_type in (0..21).chain([128, 150, 155, 160, 165, 170, 173, 200, 215, 225]) {
                seeds.push(vec![choice, 1, column, data_type]);
            }
        }
        for data_type in [173, 200, 215, 225, 235, 250] {
            seeds.push(vec![choice, 1, 11, data_type, 1, 13, 0, 0, 0, 0, 0, 0]);
        }
    }
    seeds
}
