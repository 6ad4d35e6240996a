//! Every way a table can be wrong, and the words the user reads then.

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{
    Date64Array, Float32Array, Int32Array, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow_cast::cast;
use arrow_schema::DataType;
use dataset_rt_storage::Kind;

use super::*;

fn assert_says(error: &Error, parts: &[&str]) {
    assert_eq!(error.kind(), Kind::InvalidInput, "{error}");
    for part in parts {
        assert!(error.message().contains(part), "{part:?} is not in: {error}");
    }
}

/// `whole()` with one value of an integer-like column replaced by an arbitrary array.
fn put(name: &str, array: ArrayRef) -> RecordBatch {
    with_column(&Caches::new().whole(), name, array)
}

#[test]
fn a_shifted_column_names_row_both_values_and_both_ways_out() {
    let caches = Caches::new();
    let picked = rows_of(&caches.whole(), &(0..250).collect::<Vec<_>>());
    let label = picked.column_by_name("label").unwrap();
    let shifted = arrow_select::concat::concat(&[&*label.slice(1, 249), &*label.slice(0, 1)]);
    let table = with_column(&picked, "label", shifted.unwrap());
    let error = caches.refuse(&table, &[]);
    assert_says(
        &error,
        &[
            "column \"label\", row 0",
            "found 1",
            "expected null",
            "cache_id 17",
            "sample_id 0",
            "edited=[\"label\"]",
            "new column",
        ],
    );
    caches.check(&table, &["label"]).unwrap();
}

#[test]
fn a_change_deep_in_a_long_run_of_a_later_chunk_is_found() {
    let caches = Caches::new();
    let split: LargeStringArray = (0..340)
        .map(|i| {
            let own = caches.whole();
            let text = own.column_by_name("split").unwrap();
            let text = arrow_array::cast::as_largestring_array(text);
            (i == 333 || arrow_array::Array::is_valid(text, i))
                .then(|| if i == 333 { "other".to_owned() } else { text.value(i).to_owned() })
        })
        .collect();
    for form in [DataType::LargeUtf8, DataType::Utf8, DataType::Utf8View] {
        let table = put("split", cast(&split, &form).unwrap());
        let chunks = [table.slice(0, 200), table.slice(200, 140)];
        let error = caches.check_chunks(table.schema_ref(), &chunks, &[]).unwrap_err();
        assert_says(&error, &["\"split\", row 333", "found \"other\"", "sample_id 83"]);
    }
}

#[test]
fn missing_repeated_and_reserved_columns() {
    let caches = Caches::new();
    let whole = caches.whole();
    for name in ["cache_id", "sample_id", "label", "nothing", "weight"] {
        let error = caches.refuse(&without_column(&whole, name), &[]);
        assert_says(&error, &[&format!("lacks {name:?}"), "get_metadata()"]);
    }
    let error = caches.refuse(&put("payload", Arc::new(Int32Array::from_value(0, 340))), &[]);
    assert_says(&error, &["\"payload\"", "drop the column"]);
    let mut columns = named(&whole);
    columns.push(columns[3].clone());
    let twice = RecordBatch::try_from_iter(columns).unwrap();
    assert_says(&caches.refuse(&twice, &[]), &["\"score\" appears twice", "rename"]);
}

#[test]
fn identities_that_name_no_sample() {
    let caches = Caches::new();
    let ids = |at: usize, value: i64| -> ArrayRef {
        let ids = (0..340).map(|i| if i == at { value } else { (i % 90) as i64 });
        Arc::new(Int64Array::from_iter_values(ids))
    };
    let refuse = |name: &str, array: ArrayRef| caches.refuse(&put(name, array), &[]);
    assert_says(&refuse("sample_id", ids(4, -1)), &["\"sample_id\", row 4", "found -1", "whole"]);
    let error = refuse("cache_id", ids(0, 5));
    assert_says(&error, &["\"cache_id\", row 0", "found 5", "17, 9000000000", "load"]);
    let past = rows_of(&caches.whole(), &[3, 4]);
    let past = with_column(&past, "sample_id", Arc::new(UInt64Array::from(vec![3, 250])));
    let error = caches.refuse(&past, &[]);
    assert_says(&error, &["\"sample_id\", row 1", "found 250", "less than 250", "cache 17"]);
    let none = (0..340).map(|i| (i != 9).then_some(17_u64)).collect::<UInt64Array>();
    assert_says(&refuse("cache_id", Arc::new(none)), &["\"cache_id\", row 9", "null", "join"]);
    let text = LargeStringArray::from_iter_values((0..340).map(|i| i.to_string()));
    assert_says(&refuse("sample_id", Arc::new(text)), &["type LargeUtf8", "integer"]);
}

#[test]
fn floats_that_are_no_exact_identity() {
    let caches = Caches::new();
    for bad in [0.5, -1.0, f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0] {
        let ids = Float64Array::from_iter_values((0..340).map(|i| if i == 2 { bad } else { 0.0 }));
        let error = caches.refuse(&put("sample_id", Arc::new(ids)), &[]);
        assert_says(&error, &["\"sample_id\", row 2", "below 2**53"]);
    }
    let rounded = Float32Array::from_iter_values((0..340).map(|_| 9e9_f32));
    let error = caches.refuse(&put("cache_id", Arc::new(rounded)), &[]);
    assert_says(&error, &["\"cache_id\", row 0", "below 2**24"]);
}

#[test]
fn weights_that_cannot_be_drawn_by() {
    let caches = Caches::new();
    let with = |bad: Option<f64>| -> ArrayRef {
        Arc::new((0..340).map(|i| if i == 7 { bad } else { Some(1.0) }).collect::<Float64Array>())
    };
    let refuse = |array: ArrayRef| caches.refuse(&put("weight", array), &[]);
    assert_says(&refuse(with(Some(0.0))), &["\"weight\", row 7", "found 0", "filter the row out"]);
    assert_says(&refuse(with(Some(-0.0))), &["row 7", "filter the row out"]);
    for bad in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_says(&refuse(with(Some(bad))), &["\"weight\", row 7", "finite", "above 0"]);
    }
    assert_says(&refuse(with(None)), &["\"weight\", row 7", "null", "fill it"]);
    let text = LargeStringArray::from_iter_values((0..340).map(|_| "1"));
    assert_says(&refuse(Arc::new(text)), &["\"weight\" has type LargeUtf8", "cast"]);
    let flags = BooleanArray::from(vec![true; 340]);
    assert_says(&refuse(Arc::new(flags)), &["type Boolean"]);
    let subnormal = caches.check(&put("weight", with(Some(5e-324))), &[]);
    assert_eq!(subnormal.unwrap().row(7).unwrap().weight, 5e-324);
}

#[test]
fn stored_types_may_not_change() {
    let caches = Caches::new();
    let whole = caches.whole();
    let forms = [
        ("label", DataType::Float64, "int64"),
        ("label", DataType::LargeUtf8, "int64"),
        ("score", DataType::Float32, "float64"),
        ("split", DataType::LargeBinary, "large_utf8"),
        ("kept", DataType::Int8, "bool"),
        ("at", DataType::Timestamp(TimeUnit::Microsecond, None), "timestamp[us, UTC]"),
        ("at", DataType::Int64, "timestamp[us, UTC]"),
        ("day", DataType::Int32, "date32"),
    ];
    for (name, form, expected) in forms {
        let array = cast(whole.column_by_name(name).unwrap(), &form).unwrap();
        for edited in [&[][..], &[name]] {
            let error = caches.refuse(&with_column(&whole, name, Arc::clone(&array)), edited);
            assert_says(&error, &[&format!("{name:?} has type {form}"), expected, "cast it back"]);
        }
    }
    let zone = TimestampMillisecondArray::from(vec![0; 340]).with_timezone("Europe/Berlin");
    assert_says(&caches.refuse(&put("at", Arc::new(zone)), &[]), &["Europe/Berlin"]);
    let zone = TimestampMillisecondArray::from(vec![0; 340]).with_timezone("UTC");
    assert_says(&caches.refuse(&put("day", Arc::new(zone)), &[]), &["UTC", "date32"]);
}

#[test]
fn times_of_day_in_a_column_of_dates() {
    let caches = Caches::new();
    let whole = caches.whole();
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let midnights = cast(whole.column_by_name("day").unwrap(), &seconds).unwrap();
    let midnights = midnights.as_primitive::<TimestampSecondType>();
    let times: TimestampSecondArray = midnights
        .iter()
        .enumerate()
        .map(|(i, time)| time.map(|t| t + i64::from(i == 22)))
        .collect();
    let table = put("day", Arc::new(times));
    let error = caches.refuse(&table, &[]);
    assert_says(&error, &["\"day\", row 22", "00:00:01", "expected", "edited="]);
    assert_says(&caches.refuse(&table, &["day"]), &["\"day\", row 22", "fits date32"]);
}

#[test]
fn instants_that_no_calendar_and_no_coarser_unit_has() {
    let caches = Caches::new();
    let last = |i: usize, far: i64| if i == 22 { far } else { 0 };
    for far in [i64::MIN, -8_319_119_876_378_817_396, i64::MAX] {
        let far = || (0..340).map(|i| last(i, far));
        let seconds = TimestampSecondArray::from_iter_values(far());
        let forms: [(&str, &str, ArrayRef); 3] = [
            ("day", "date32", Arc::new(seconds.clone())),
            ("day", "date32", Arc::new(Date64Array::from_iter_values(far()))),
            ("at", "timestamp[us, UTC]", Arc::new(seconds.with_timezone("UTC"))),
        ];
        for (name, stored, array) in forms {
            let error = caches.refuse(&put(name, array), &[name]);
            assert_says(&error, &[&format!("{name:?}, row 22"), &format!("fits {stored}")]);
        }
    }
    let whole_days = (0..340).map(|i| last(i, i64::from(i32::MAX) * 86_400 + 86_400));
    let table = put("day", Arc::new(TimestampSecondArray::from_iter_values(whole_days)));
    assert_says(&caches.refuse(&table, &["day"]), &["\"day\", row 22", "fits date32"]);
}

#[test]
fn times_finer_than_the_stored_unit() {
    let caches = Caches::new();
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::from("UTC")));
    let whole = caches.whole();
    let fine = cast(whole.column_by_name("at").unwrap(), &nanoseconds).unwrap();
    let fine = fine.as_primitive::<TimestampNanosecondType>();
    let fine: TimestampNanosecondArray =
        fine.iter().enumerate().map(|(i, time)| time.map(|t| t + i64::from(i == 21))).collect();
    let plain: ArrayRef = Arc::new(fine.with_timezone("UTC"));
    let codes = DataType::Dictionary(DataType::UInt16.into(), nanoseconds.into());
    let coded = cast(&plain, &codes).unwrap();
    for array in [plain, coded] {
        let table = put("at", array);
        let error = caches.refuse(&table, &[]);
        assert_says(&error, &["\"at\", row 21", "21.000000001", "expected", "edited="]);
        let error = caches.refuse(&table, &["at"]);
        assert_says(&error, &["\"at\", row 21", "fits timestamp[us, UTC]"]);
    }
}

#[test]
fn values_that_do_not_fit_the_stored_type() {
    let caches = Caches::new();
    let wide = (0..340).map(|i| if i == 20 { 300 } else { (i % 250 % 100 - 50) as i64 });
    let table = put("tiny", Arc::new(Int64Array::from_iter_values(wide)));
    let error = caches.refuse(&table, &[]);
    assert_says(&error, &["\"tiny\", row 20", "found 300", "expected -30", "edited="]);
    let error = caches.refuse(&table, &["tiny"]);
    assert_says(&error, &["\"tiny\", row 20", "found 300", "fits int8", "new column"]);
    let words = LargeStringArray::from_iter_values((0..340).map(|_| "x"));
    let table = put("nothing", Arc::new(words));
    assert_says(&caches.refuse(&table, &[]), &["\"nothing\", row 0", "expected null"]);
    assert_says(&caches.refuse(&table, &["nothing"]), &["fits null"]);
}

#[test]
fn edits_that_are_no_edits() {
    let caches = Caches::new();
    let whole = caches.whole();
    assert_says(&caches.refuse(&whole, &["weight"]), &["\"weight\"", "leave the name out"]);
    assert_says(&caches.refuse(&whole, &["sample_id"]), &["identity cannot be edited"]);
    assert_says(&caches.refuse(&whole, &["lable"]), &["\"lable\"", "\"label\"", "\"nothing\""]);
    let nulls = (0..340).map(|i| (i != 11).then_some(1_i8)).collect::<Int8Array>();
    let error = caches.refuse(&put("tiny", Arc::new(nulls)), &["tiny"]);
    assert_says(&error, &["\"tiny\", row 11", "null", "without nulls"]);
}

#[test]
fn an_empty_table_and_mixed_batches() {
    let caches = Caches::new();
    let whole = caches.whole();
    assert_says(&caches.refuse(&whole.slice(0, 0), &[]), &["no rows", "filter"]);
    let none = caches.check_chunks(whole.schema_ref(), &[], &[]).unwrap_err();
    assert_says(&none, &["no rows"]);
    let other = put("label", Arc::new(Int32Array::from_value(1, 340)));
    let error = caches.check_chunks(whole.schema_ref(), &[whole.clone(), other], &[]).unwrap_err();
    assert_says(&error, &["one schema"]);
}

#[test]
fn caches_that_are_not_what_the_schema_says_are_our_own_fault() {
    let caches = Caches::new();
    let whole = caches.whole();
    let mut columns = caches.columns();
    columns[1].cache_id = 17;
    let twice =
        check_table(whole.schema_ref(), &[], &schema(), &columns, &[], &mut || Ok(())).unwrap_err();
    assert_eq!(twice.kind(), Kind::Internal);
    let mut columns = caches.columns();
    columns[0].rows = 251;
    assert_eq!(whole_table(&schema(), &columns).unwrap_err().kind(), Kind::Internal);
}
