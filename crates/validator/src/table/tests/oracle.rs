//! The column-wise check against a row-wise one that is too simple to be wrong.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_cast::cast;
use arrow_schema::DataType;
use proptest::prelude::*;

use super::*;

/// What the random table is made of.
#[derive(Clone, Debug)]
struct Plan {
    rows: Vec<usize>,
    chunk: usize,
    forms: [usize; 4],
    change: Option<(usize, usize)>,
    edited: Option<usize>,
}

const CHANGED: [&str; 5] = ["label", "score", "split", "kept", "raw"];

fn plans() -> impl Strategy<Value = Plan> {
    let random = prop::collection::vec(0..340_usize, 1..120);
    let runs = prop::collection::vec((0..300_usize, 1..40_usize), 1..5)
        .prop_map(|runs| runs.into_iter().flat_map(|(start, len)| start..start + len).collect());
    let rows = prop_oneof![random, runs];
    let forms = [0..4_usize, 0..4, 0..3, 0..3];
    let change = prop::option::of((0..10_000_usize, 0..CHANGED.len()));
    let edited = prop::option::of(0..CHANGED.len());
    (rows, 1..130_usize, forms, change, edited).prop_map(|(rows, chunk, forms, change, edited)| {
        Plan { rows, chunk, forms, change, edited }
    })
}

fn build(whole: &RecordBatch, plan: &Plan) -> RecordBatch {
    let mut table = rows_of(whole, &plan.rows);
    if let Some((at, which)) = plan.change {
        let at = at % plan.rows.len();
        let changed = change(table.column_by_name(CHANGED[which]).unwrap(), at);
        table = with_column(&table, CHANGED[which], changed);
    }
    let text = [
        DataType::LargeUtf8,
        DataType::Utf8,
        DataType::Utf8View,
        DataType::Dictionary(DataType::UInt16.into(), DataType::Utf8.into()),
    ];
    let bytes = [
        DataType::LargeBinary,
        DataType::Binary,
        DataType::BinaryView,
        DataType::Dictionary(DataType::Int32.into(), DataType::LargeBinary.into()),
    ];
    let ints = [DataType::Int64, DataType::Int32, DataType::Int16];
    let ids = [DataType::UInt64, DataType::Float64, DataType::Int32];
    let forms = [
        ("split", &text[plan.forms[0]]),
        ("raw", &bytes[plan.forms[1]]),
        ("label", &ints[plan.forms[2]]),
        ("sample_id", &ids[plan.forms[3]]),
    ];
    for (name, form) in forms {
        let array = cast(table.column_by_name(name).unwrap(), form).unwrap();
        table = with_column(&table, name, array);
    }
    table
}

/// The column with the cell at `at` replaced by one that differs or, for nulls, by a value.
fn change(array: &ArrayRef, at: usize) -> ArrayRef {
    let rows = 0..array.len();
    let old = |i: usize| array.is_valid(i);
    match array.data_type() {
        DataType::Int64 => {
            let a = array.as_primitive::<Int64Type>();
            let new = |i| if i == at { Some(31_999) } else { old(i).then(|| a.value(i)) };
            Arc::new(rows.map(new).collect::<Int64Array>())
        }
        DataType::Float64 => {
            let a = array.as_primitive::<Float64Type>();
            // Only the sign of a zero or a NaN changes where there is one: no difference.
            let new = |i| old(i).then(|| if i == at { -a.value(i) } else { a.value(i) });
            Arc::new(rows.map(new).collect::<Float64Array>())
        }
        DataType::LargeUtf8 => {
            let a = array.as_string::<i64>();
            let new = |i| if i == at { Some("") } else { old(i).then(|| a.value(i)) };
            Arc::new(rows.map(new).collect::<LargeStringArray>())
        }
        DataType::Boolean => {
            let a = array.as_boolean();
            let new = |i| old(i).then(|| a.value(i) ^ (i == at));
            Arc::new(rows.map(new).collect::<BooleanArray>())
        }
        _ => {
            let a = array.as_binary::<i64>();
            let new = |i| if i == at { None } else { old(i).then(|| a.value(i)) };
            Arc::new(rows.map(new).collect::<LargeBinaryArray>())
        }
    }
}

/// Row and column of the first difference, cell by cell.
fn naive(whole: &RecordBatch, plan: &Plan) -> Option<(usize, &'static str)> {
    let (at, which) = plan.change?;
    let at = at % plan.rows.len();
    if plan.edited == Some(which) {
        return None;
    }
    let own = rows_of(whole, &plan.rows);
    let own = own.column_by_name(CHANGED[which]).unwrap();
    let mine = change(own, at);
    let is_same = match own.data_type() {
        DataType::Float64 if own.is_valid(at) => {
            let (a, b) = (own.as_primitive::<Float64Type>(), mine.as_primitive::<Float64Type>());
            a.value(at) == b.value(at) || (a.value(at).is_nan() && b.value(at).is_nan())
        }
        _ => own.slice(at, 1) == mine.slice(at, 1),
    };
    (!is_same).then_some((at, CHANGED[which]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_check_agrees_with_a_row_wise_one(plan in plans()) {
        let caches = Caches::new();
        let whole = caches.whole();
        let table = build(&whole, &plan);
        let chunks: Vec<RecordBatch> = (0..table.num_rows())
            .step_by(plan.chunk)
            .map(|start| table.slice(start, plan.chunk.min(table.num_rows() - start)))
            .collect();
        let edited: Vec<&str> = plan.edited.iter().map(|&which| CHANGED[which]).collect();
        let result = caches.check_chunks(table.schema_ref(), &chunks, &edited);
        match (naive(&whole, &plan), result) {
            (None, Ok(checked)) => {
                prop_assert_eq!(checked.rows(), plan.rows.len());
                for (row, &from) in plan.rows.iter().enumerate() {
                    let found = checked.row(row).unwrap();
                    let expected = if from < 250 { (0, from) } else { (1, from - 250) };
                    prop_assert_eq!(found.cache, expected.0);
                    prop_assert_eq!(found.sample_id, expected.1 as u64);
                    prop_assert_eq!(found.chunk, row / plan.chunk);
                    prop_assert_eq!(found.row_in_chunk, row % plan.chunk);
                }
            }
            (Some((row, column)), Err(error)) => {
                let place = format!("column {column:?}, row {row}:");
                prop_assert!(error.message().starts_with(&place), "{} against {}", place, error);
            }
            (expected, found) => {
                prop_assert!(false, "expected {:?}, found {:?}", expected, found.map(|t| t.rows()));
            }
        }
    }
}
