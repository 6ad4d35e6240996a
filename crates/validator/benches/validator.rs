//! What the checks of a table handed in cost a row: `make bench-micro`.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::sync::Arc;

use arrow_array::{Float64Array, Int64Array, LargeStringArray, RecordBatch, UInt64Array};
use arrow_schema::Schema;
use arrow_select::take::take_record_batch;
use dataset_rt_storage::format::schema::{ColumnType, StoredColumn, StoredSchema};
use dataset_rt_validator::table::{CacheColumns, check_table, whole_table};
use divan::Bencher;
use divan::counter::ItemsCount;

/// Few rows where nothing is measured but that it runs.
const ROWS: u64 = if cfg!(debug_assertions) { 1_000 } else { 1_000_000 };

fn main() {
    divan::main();
}

fn schema() -> StoredSchema {
    let columns =
        [("label", ColumnType::Int64), ("score", ColumnType::Float64), ("split", ColumnType::Utf8)];
    let columns = columns.map(|(name, column_type)| StoredColumn {
        name: name.into(),
        column_type,
        nullable: false,
    });
    StoredSchema::new(columns.to_vec()).unwrap()
}

fn stored() -> RecordBatch {
    let splits = (0..ROWS).map(|row| if row % 10 == 0 { "valid" } else { "train" });
    RecordBatch::try_new(
        Arc::new(Schema::new(schema().to_fields())),
        vec![
            Arc::new((0..ROWS as i64).collect::<Int64Array>()),
            Arc::new((0..ROWS).map(|row| row as f64).collect::<Float64Array>()),
            Arc::new(LargeStringArray::from_iter_values(splits)),
        ],
    )
    .unwrap()
}

/// Checks the table of one cache with its rows as `order` says.
fn check(bencher: Bencher<'_, '_>, order: Option<UInt64Array>) {
    let (schema, batches) = (schema(), [stored()]);
    let caches = [CacheColumns { cache_id: 7, rows: ROWS, batches: &batches }];
    let whole = whole_table(&schema, &caches).unwrap();
    let [table] = whole.batches() else { return };
    let table = order.map_or_else(|| table.clone(), |o| take_record_batch(table, &o).unwrap());
    let check = || {
        let batches = std::slice::from_ref(&table);
        check_table(whole.schema(), batches, &schema, &caches, &[], &mut || Ok(())).unwrap()
    };
    bencher.counter(ItemsCount::new(ROWS)).bench_local(check);
}

#[divan::bench]
fn table_with_shared_columns(bencher: Bencher<'_, '_>) {
    check(bencher, None);
}

#[divan::bench]
fn table_with_copied_columns(bencher: Bencher<'_, '_>) {
    check(bencher, Some((0..ROWS).collect()));
}

#[divan::bench]
fn table_in_reverse(bencher: Bencher<'_, '_>) {
    check(bencher, Some((0..ROWS).rev().collect()));
}
