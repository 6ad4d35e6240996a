//! What users do with a table on purpose and must be able to.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, UInt32Type};
use arrow_array::{Array, DictionaryArray, Int32Array};
use arrow_cast::cast;
use arrow_schema::DataType;

use super::*;
use crate::table::CacheOrdinals;

#[test]
fn the_default_table_passes_and_leads_back_to_every_sample() {
    let caches = Caches::new();
    let table = whole_table(&schema(), &caches.columns()).unwrap();
    let checked = check_table(
        table.schema(),
        table.batches(),
        &schema(),
        &caches.columns(),
        &[],
        &mut || Ok(()),
    )
    .unwrap();
    assert_eq!(checked.rows(), 340);
    assert_eq!(checked.batches(), table.batches());
    let last = checked.row(339).unwrap();
    assert_eq!((last.cache, last.sample_id, last.weight), (1, 89, 1.0));
    assert_eq!((last.chunk, last.row_in_chunk), (4, 89));
    let first = checked.row(0).unwrap();
    assert_eq!((first.cache, first.sample_id, first.chunk), (0, 0, 0));
    assert_eq!(checked.row(340), None);
    assert_eq!(checked.cache_of(340), None);
    assert!(matches!(checked.caches(), CacheOrdinals::PerRow(caches) if caches.len() == 340));
}

#[test]
fn stored_buffers_are_shared_with_the_cache_and_the_table() {
    let caches = Caches::new();
    let columns = caches.columns();
    let table = whole_table(&schema(), &columns[..1]).unwrap();
    assert_eq!(table.caches(), CacheOrdinals::One(0));
    let checked =
        check_table(table.schema(), table.batches(), &schema(), &columns[..1], &[], &mut || Ok(()))
            .unwrap();
    for (own, mine) in caches.0[0].iter().zip(checked.batches()) {
        let (own, mine) = (own.column(2).as_string::<i64>(), mine.column(4).as_string::<i64>());
        assert_eq!(own.value_data().as_ptr(), mine.value_data().as_ptr());
        assert_eq!(own.value_offsets().as_ptr(), mine.value_offsets().as_ptr());
    }
    let (a, b) = (table.sample_ids()[1].values(), checked.sample_ids()[1].values());
    assert_eq!(a.as_ptr(), b.as_ptr());
    let (a, b) = (table.weights()[1].values(), checked.weights()[1].values());
    assert_eq!(a.as_ptr(), b.as_ptr());
}

#[test]
fn rows_may_be_filtered_repeated_shuffled_and_columns_reordered() {
    let caches = Caches::new();
    let picked = rows_of(&caches.whole(), &[300, 4, 4, 5, 6, 249, 250, 0, 339]);
    let mut columns = named(&picked);
    columns.reverse();
    let reversed = RecordBatch::try_from_iter(columns).unwrap();
    let checked = caches.check(&reversed, &[]).unwrap();
    let names: Vec<_> = checked.schema().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names[..3], ["cache_id", "sample_id", "label"]);
    assert_eq!(names[names.len() - 1], "weight");
    let ids: Vec<_> = (0..9).map(|row| checked.row(row).unwrap().sample_id).collect();
    assert_eq!(ids, [50, 4, 4, 5, 6, 249, 0, 0, 89]);
    let owners: Vec<_> = (0..9).map(|row| checked.cache_of(row).unwrap()).collect();
    assert_eq!(owners, [1, 0, 0, 0, 0, 0, 1, 0, 1]);
}

#[test]
fn every_equal_form_of_a_stored_column_is_accepted() {
    let caches = Caches::new();
    let whole = caches.whole();
    let utf8_codes = DataType::Dictionary(DataType::UInt32.into(), DataType::LargeUtf8.into());
    let int_codes = DataType::Dictionary(DataType::Int16.into(), DataType::Int64.into());
    let bin_codes = DataType::Dictionary(DataType::UInt8.into(), DataType::Binary.into());
    let time = |unit| DataType::Timestamp(unit, Some(Arc::from("UTC")));
    let time_codes =
        DataType::Dictionary(DataType::UInt16.into(), time(TimeUnit::Millisecond).into());
    let forms = [
        ("label", DataType::Int16, DataType::Int64),
        ("label", int_codes, DataType::Int64),
        ("tiny", DataType::Int64, DataType::Int8),
        ("split", DataType::Utf8, DataType::LargeUtf8),
        ("split", DataType::Utf8View, DataType::Utf8View),
        ("split", utf8_codes, DataType::Utf8View),
        ("raw", DataType::Binary, DataType::LargeBinary),
        ("raw", DataType::BinaryView, DataType::BinaryView),
        ("raw", bin_codes, DataType::BinaryView),
        ("cache_id", DataType::Float64, DataType::UInt64),
        ("sample_id", DataType::UInt8, DataType::UInt64),
        ("sample_id", DataType::Int32, DataType::UInt64),
        ("sample_id", DataType::Float32, DataType::UInt64),
        ("weight", DataType::Int8, DataType::Float64),
        ("weight", DataType::Float32, DataType::Float64),
        ("weight", DataType::Decimal128(10, 2), DataType::Float64),
        ("at", time(TimeUnit::Second), time(TimeUnit::Microsecond)),
        ("at", time(TimeUnit::Nanosecond), time(TimeUnit::Microsecond)),
        ("at", time_codes, time(TimeUnit::Microsecond)),
        ("day", DataType::Date64, DataType::Date32),
        ("day", DataType::Timestamp(TimeUnit::Millisecond, None), DataType::Date32),
        ("day", DataType::Timestamp(TimeUnit::Nanosecond, None), DataType::Date32),
        ("nothing", DataType::Utf8, DataType::Null),
        ("nothing", DataType::Float64, DataType::Null),
    ];
    for (name, form, kept) in forms {
        let own = whole.column_by_name(name).unwrap();
        // In two steps: Arrow's cast to a dictionary forgets to convert time units.
        let array = match &form {
            DataType::Dictionary(_, values) => cast(&cast(own, values).unwrap(), &form).unwrap(),
            _ => cast(own, &form).unwrap(),
        };
        let checked = caches.check(&with_column(&whole, name, array), &[]);
        let checked = checked.unwrap_or_else(|e| panic!("{name} as {form}: {e}"));
        let got = checked.batches()[0].column_by_name(name).unwrap();
        assert_eq!(*got.data_type(), kept, "{name} as {form}");
        assert_eq!(
            *cast(got, whole.column_by_name(name).unwrap().data_type()).unwrap(),
            **whole.column_by_name(name).unwrap(),
            "{name} as {form}"
        );
    }
}

#[test]
fn nan_equals_nan_and_minus_zero_equals_zero() {
    let caches = Caches::new();
    let whole = caches.whole();
    let score =
        whole.column_by_name("score").unwrap().as_primitive::<arrow_array::types::Float64Type>();
    let other: Float64Array =
        score.iter().map(|v| v.map(|v| if v.is_nan() { -f64::NAN } else { v + 0.0 })).collect();
    assert!(other.value(2).is_sign_positive(), "-0.0 + 0.0 is 0.0");
    caches.check(&with_column(&whole, "score", Arc::new(other)), &[]).unwrap();
}

#[test]
fn an_all_null_column_of_null_type_stands_for_stored_nulls() {
    let caches = Caches::new();
    let nulls = rows_of(&caches.whole(), &[0, 7, 14]);
    let table = with_column(&nulls, "label", Arc::new(NullArray::new(3)));
    let checked = caches.check(&table, &[]).unwrap();
    assert_eq!(checked.batches()[0].column(2).data_type(), &DataType::Int64);
    assert_eq!(checked.batches()[0].column(2).null_count(), 3);
}

#[test]
fn edited_columns_take_new_values_of_the_stored_type() {
    let caches = Caches::new();
    let table = with_column(&caches.whole(), "label", Arc::new(Int32Array::from_value(5, 340)));
    let table = with_column(&table, "tiny", Arc::new(Int64Array::from_value(-128, 340)));
    let checked = caches.check(&table, &["label", "tiny"]).unwrap();
    assert_eq!(checked.edited(), ["label", "tiny"]);
    let batch = &checked.batches()[0];
    assert_eq!(**batch.column_by_name("label").unwrap(), Int64Array::from_value(5, 340));
    let tiny = batch.column_by_name("tiny").unwrap().as_primitive::<Int8Type>();
    assert!(tiny.values().iter().all(|&v| v == -128));
}

#[test]
fn extras_of_any_type_are_kept_with_their_fields() {
    let caches = Caches::new();
    let codes = DictionaryArray::<UInt32Type>::from_iter((0..340).map(|i| Some(["a", "b"][i % 2])));
    let list = arrow_array::ListArray::from_iter_primitive::<Int8Type, _, _>(
        (0..340).map(|i| Some(vec![Some(i as i8)])),
    );
    let table = with_column(&caches.whole(), "fold", Arc::new(codes.clone()));
    let table = with_column(&table, "boxes", Arc::new(list.clone()));
    let checked = caches.check(&table, &[]).unwrap();
    let batch = &checked.batches()[0];
    assert_eq!(**batch.column(batch.num_columns() - 2), codes);
    assert_eq!(**batch.column(batch.num_columns() - 1), list);
}

#[test]
fn bytes_under_nulls_and_empty_chunks_mean_nothing() {
    let caches = Caches::new();
    let whole = caches.whole();
    let label = whole.column_by_name("label").unwrap();
    let values: Vec<i64> = (0..340)
        .map(|row| {
            let ints = label.as_primitive::<arrow_array::types::Int64Type>();
            if label.is_null(row) { 777 } else { ints.value(row) }
        })
        .collect();
    let dirty = Int64Array::new(values.into(), label.nulls().cloned());
    let table = with_column(&whole, "label", Arc::new(dirty));
    let chunks =
        [table.slice(0, 0), table.slice(0, 100), table.slice(100, 0), table.slice(100, 240)];
    let checked = caches.check_chunks(table.schema_ref(), &chunks, &[]).unwrap();
    assert_eq!(checked.chunk_starts(), [0, 100, 340]);
}

#[test]
fn caches_without_stored_columns_work() {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(3));
    let empty = StoredSchema::default();
    let batch =
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let caches = [CacheColumns { cache_id: 1, rows: 3, batches: &[batch] }];
    let table = whole_table(&empty, &caches).unwrap();
    let checked =
        check_table(table.schema(), table.batches(), &empty, &caches, &[], &mut || Ok(())).unwrap();
    assert_eq!((checked.rows(), checked.schema().fields().len()), (3, 3));
}
