//! What ingest promises: no row lost, groups by the rows alone, errors that name their place.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, FixedSizeBinaryArray,
    Int64Array, LargeBinaryArray, LargeStringArray, NullArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow_schema::DataType;
use proptest::prelude::*;

use super::{Cell, Ingest};
use crate::format::codec::{Algo, Compression, Scope};
use crate::format::schema::{ColumnType, StoredColumn, StoredSchema};
use crate::write::{GroupLimits, RowGroup};
use crate::{Kind, Result};

const WIDE: GroupLimits =
    GroupLimits { batch_bytes: 1 << 20, batch_rows: 1 << 16, hold_bytes: 1 << 20 };

fn push(ingest: &mut Ingest, payload: &[u8], cells: &[(&str, Cell<'_>)]) -> Result<()> {
    ingest.push_payload(payload)?;
    for (ordinal, (key, cell)) in cells.iter().enumerate() {
        ingest.cell(ordinal, key, *cell)?;
    }
    ingest.end_row()
}

fn undeclared(limits: GroupLimits) -> Ingest {
    Ingest::new("train", None, limits)
}

fn declared(columns: &[(&str, ColumnType, bool)], limits: GroupLimits) -> Ingest {
    let columns = columns.iter().map(|(name, column_type, nullable)| StoredColumn {
        name: (*name).to_owned(),
        column_type: column_type.clone(),
        nullable: *nullable,
    });
    Ingest::new("train", Some(StoredSchema::new(columns.collect()).unwrap()), limits)
}

fn group_rows(groups: &[RowGroup]) -> Vec<u64> {
    groups.iter().map(RowGroup::rows).collect()
}

/// Pushes rows until one fails and gives the text of that error.
fn refusal(mut ingest: Ingest, rows: &[&[(&str, Cell<'_>)]]) -> String {
    for row in rows {
        if let Err(error) = push(&mut ingest, b"x", row) {
            assert_eq!(error.kind(), Kind::InvalidInput, "{error}");
            return error.to_string();
        }
    }
    panic!("nothing was refused");
}

fn assert_names(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn columns_are_in_the_order_of_the_first_sample_whatever_the_later_order() {
    let mut ingest = undeclared(WIDE);
    push(&mut ingest, b"a", &[("b", Cell::Int(1)), ("a", Cell::Str("x"))]).unwrap();
    push(&mut ingest, b"b", &[("a", Cell::Str("y")), ("b", Cell::Int(2))]).unwrap();
    let (schema, groups) = ingest.finish().unwrap();
    let names: Vec<&str> = schema.columns().iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    assert!(schema.columns().iter().all(|c| c.nullable));
    let expected: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    assert_eq!(&groups[0].columns()[0], &expected);
    assert_eq!(groups[0].payload(), &LargeBinaryArray::from_vec(vec![b"a", b"b"]));
}

#[test]
fn a_change_of_type_names_source_sample_key_and_both_types() {
    let rows: [&[(&str, Cell<'_>)]; 2] = [&[("label", Cell::Int(1))], &[("label", Cell::Str("1"))]];
    let text = refusal(undeclared(WIDE), &rows);
    assert_names(&text, &["\"train\"", "sample 1", "\"label\"", "int64", "str"]);
}

#[test]
fn a_change_of_zone_is_refused() {
    let at = |zone| Cell::Timestamp { micros: 0, zone };
    let rows: [&[(&str, Cell<'_>)]; 2] = [&[("t", at(Some("UTC")))], &[("t", at(None))]];
    let text = refusal(undeclared(WIDE), &rows);
    assert_names(&text, &["sample 1", "\"t\"", "timestamp[us, UTC]", "without a time zone"]);
}

#[test]
fn missing_unknown_and_repeated_keys_are_named() {
    let two: &[(&str, Cell<'_>)] = &[("a", Cell::Int(1)), ("b", Cell::Int(1))];
    let text = refusal(undeclared(WIDE), &[two, &two[..1]]);
    assert_names(&text, &["\"train\"", "sample 1", "\"b\"", "missing"]);
    let three = [two[0], two[1], ("c", Cell::Null)];
    let text = refusal(undeclared(WIDE), &[two, &three]);
    assert_names(&text, &["\"train\"", "sample 1", "\"c\"", "unknown"]);
    let text = refusal(undeclared(WIDE), &[&[two[0], two[0]]]);
    assert_names(&text, &["\"train\"", "sample 0", "\"a\"", "twice"]);
}

#[test]
fn reserved_and_empty_keys_are_refused() {
    for name in ["", "weight", "payload", "sample_id", "cache_id"] {
        let text = refusal(undeclared(WIDE), &[&[(name, Cell::Int(1))]]);
        assert_names(&text, &["\"train\"", "sample 0", &format!("{name:?}")]);
    }
}

#[test]
fn a_column_declared_without_nulls_refuses_none() {
    let ingest = declared(&[("a", ColumnType::Int8, false)], WIDE);
    let text = refusal(ingest, &[&[("a", Cell::Int(1))], &[("a", Cell::Null)]]);
    assert_names(&text, &["\"train\"", "sample 1", "\"a\"", "None"]);
}

#[test]
fn a_payload_past_the_limit_is_refused_before_it_is_copied() {
    let mut ingest = undeclared(WIDE);
    push(&mut ingest, b"x", &[]).unwrap();
    let zeros = vec![0; 1 << 31];
    let error = ingest.push_payload(&zeros).unwrap_err();
    assert_names(error.message(), &["\"train\"", "sample 1", "2147483648", "2147483647"]);
}

#[test]
fn a_source_without_samples_is_an_error() {
    let error = undeclared(WIDE).finish().unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_names(error.message(), &["\"train\"", "no samples"]);
}

#[test]
fn groups_close_at_rows_and_bytes_and_a_large_payload_stands_alone() {
    let limits = GroupLimits { batch_bytes: 100, batch_rows: 3, hold_bytes: 1 << 20 };
    let lens = [10, 10, 10, 10, 250, 10, 60, 60, 100, 1];
    let mut ingest = undeclared(limits);
    lens.iter().for_each(|&len| push(&mut ingest, &vec![7; len], &[]).unwrap());
    assert_eq!((ingest.rows(), ingest.payload_bytes()), (10, 521));
    let (_, groups) = ingest.finish().unwrap();
    assert_eq!(group_rows(&groups), [3, 1, 1, 2, 1, 1, 1]);
    let firsts: Vec<u64> = groups.iter().map(RowGroup::first_row).collect();
    assert_eq!(firsts, [0, 3, 4, 5, 7, 8, 9]);
}

#[test]
fn groups_wait_for_the_type_of_every_column() {
    let limits = GroupLimits { batch_rows: 2, ..WIDE };
    let mut ingest = undeclared(limits);
    for _ in 0..5 {
        push(&mut ingest, b"x", &[("late", Cell::Null), ("never", Cell::Null)]).unwrap();
        assert!(ingest.take_group().is_none());
    }
    push(&mut ingest, b"x", &[("late", Cell::Float(2.5)), ("never", Cell::Null)]).unwrap();
    let (schema, groups) = ingest.finish().unwrap();
    assert_eq!(schema.columns()[0].column_type, ColumnType::Float64);
    assert_eq!(schema.columns()[1].column_type, ColumnType::Null);
    assert_eq!(group_rows(&groups), [2, 2, 2]);
    assert_eq!(groups[0].columns()[0].null_count(), 2);
    assert_eq!(groups[2].columns()[0].as_primitive::<Float64Type>().value(1), 2.5);
    assert!(groups.iter().all(|g| *g.columns()[1].data_type() == DataType::Null));
}

#[test]
fn holding_too_much_for_a_type_asks_for_a_schema_and_names_the_columns() {
    let limits = GroupLimits { batch_bytes: 100, batch_rows: 10, hold_bytes: 300 };
    let mut ingest = undeclared(limits);
    let row = [("known", Cell::Int(1)), ("blank", Cell::Null)];
    let error = (0..100).find_map(|_| push(&mut ingest, &[0; 40], &row).err()).unwrap();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_names(error.message(), &["\"train\"", "\"blank\"", "schema"]);
    assert!(!error.message().contains("known"), "{error}");
}

#[test]
fn limits_follow_scope_and_shard_size() {
    let none = Compression::default();
    let buffer = Compression { algo: Algo::Lz4, scope: Scope::Buffer, ..none };
    let payload = Compression { algo: Algo::Zstd, ..none };
    assert_eq!(GroupLimits::new(1 << 30, &none).batch_bytes, 8 << 20);
    assert_eq!(GroupLimits::new(1 << 30, &payload).batch_bytes, 8 << 20);
    assert_eq!(GroupLimits::new(1 << 30, &buffer).batch_bytes, 1 << 20);
    assert_eq!(GroupLimits::new(1 << 30, &none).hold_bytes, 128 << 20);
    assert_eq!(
        GroupLimits::new(5000, &none),
        GroupLimits { batch_bytes: 5000, batch_rows: 65_536, hold_bytes: 5000 }
    );
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true)))
        .unwrap()
}

#[test]
fn every_arrow_form_of_text_and_payload_is_stored_alike() {
    let expected: ArrayRef = Arc::new(LargeStringArray::from(vec![Some("é"), None, Some("é")]));
    let dictionary: DictionaryArray<Int32Type> = [Some("é"), None, Some("é")].into_iter().collect();
    let texts: [ArrayRef; 4] = [
        expected.clone(),
        Arc::new(StringArray::from(vec![Some("é"), None, Some("é")])),
        Arc::new(StringViewArray::from(vec![Some("é"), None, Some("é")])),
        Arc::new(dictionary),
    ];
    let bytes: [&[u8]; 3] = [b"aa", b"bb", b"cc"];
    let payloads: [ArrayRef; 4] = [
        Arc::new(LargeBinaryArray::from_vec(bytes.to_vec())),
        Arc::new(BinaryArray::from_vec(bytes.to_vec())),
        Arc::new(BinaryViewArray::from_iter_values(bytes)),
        Arc::new(FixedSizeBinaryArray::try_from_iter(bytes.iter()).unwrap()),
    ];
    for text in &texts {
        for payload in &payloads {
            let mut ingest = undeclared(WIDE);
            let whole = batch(vec![("payload", payload.clone()), ("t", text.clone())]);
            ingest.push_batch(&whole).unwrap();
            ingest.push_batch(&whole.slice(1, 2)).unwrap();
            let (schema, groups) = ingest.finish().unwrap();
            assert_eq!(schema.columns()[0].column_type, ColumnType::Utf8);
            assert_eq!(&groups[0].columns()[0].slice(0, 3), &expected);
            assert_eq!(&groups[0].columns()[0].slice(3, 2), &expected.slice(1, 2));
            let all: Vec<&[u8]> = groups[0].payload().iter().flatten().collect();
            assert_eq!(all, [&b"aa"[..], b"bb", b"cc", b"bb", b"cc"]);
        }
    }
}

#[test]
fn a_large_batch_is_taken_in_pieces_of_about_a_group() {
    let limits = GroupLimits { batch_bytes: 100, batch_rows: 1 << 16, hold_bytes: 1 << 20 };
    let forty = [b'x'; 40];
    let codes = DictionaryArray::new(
        Int64Array::from(vec![0; 9]),
        Arc::new(LargeBinaryArray::from_vec(vec![&forty[..]])),
    );
    let payloads: [ArrayRef; 5] = [
        Arc::new(LargeBinaryArray::from_vec(vec![&forty[..]; 9])),
        Arc::new(BinaryArray::from_vec(vec![&forty[..]; 9])),
        Arc::new(BinaryViewArray::from_iter_values(vec![forty; 9])),
        Arc::new(FixedSizeBinaryArray::try_from_iter(vec![forty; 9].iter()).unwrap()),
        Arc::new(codes),
    ];
    for payload in payloads {
        let rows = batch(vec![("payload", payload)]);
        let mut ingest = undeclared(limits);
        let (mut taken, mut pieces) = (0, Vec::new());
        while taken < 9 {
            pieces.push(ingest.push_piece(&rows, taken).unwrap());
            taken += pieces.last().unwrap();
        }
        assert_eq!(pieces, [2, 2, 2, 2, 1]);
        assert_eq!(ingest.push_piece(&rows, 10).unwrap_err().kind(), Kind::Internal);
        let (_, groups) = ingest.finish().unwrap();
        assert_eq!(group_rows(&groups), pieces.iter().map(|&rows| rows as u64).collect::<Vec<_>>());
    }
}

#[test]
fn bad_batches_are_refused_naming_the_place() {
    let payload: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]));
    let label: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let good = batch(vec![("label", label.clone()), ("payload", payload.clone())]);
    let holes: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(b"a"), None]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let cases = [
        (vec![("label", label.clone()), ("payload", holes)], vec!["sample 3", "payload", "null"]),
        (vec![("label", label.clone()), ("payload", text.clone())], vec!["payload", "Utf8"]),
        (vec![("label", label.clone())], vec!["payload"]),
        (vec![("payload", payload.clone())], vec!["\"label\"", "missing"]),
        (
            vec![("label", label.clone()), ("more", label.clone()), ("payload", payload.clone())],
            vec!["\"more\"", "unknown"],
        ),
        (vec![("label", text), ("payload", payload.clone())], vec!["\"label\"", "int64"]),
    ];
    for (columns, parts) in cases {
        let mut ingest = undeclared(WIDE);
        ingest.push_batch(&good).unwrap();
        let error = ingest.push_batch(&batch(columns)).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput, "{error}");
        assert_names(error.message(), &["\"train\"", "sample"]);
        assert_names(error.message(), &parts);
    }
}

#[test]
fn a_column_of_arrow_type_null_takes_its_type_from_a_later_batch() {
    let payload: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]));
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    let label: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let mut ingest = undeclared(WIDE);
    for column in [&nulls, &label, &nulls] {
        let rows = batch(vec![("label", column.clone()), ("payload", payload.clone())]);
        ingest.push_batch(&rows).unwrap();
    }
    let (schema, groups) = ingest.finish().unwrap();
    assert_eq!(schema.columns()[0].column_type, ColumnType::Int64);
    let expected: ArrayRef =
        Arc::new(Int64Array::from(vec![None, None, Some(1), Some(2), None, None]));
    assert_eq!(&groups[0].columns()[0], &expected);
}

#[test]
fn a_refused_row_leaves_nothing_behind() {
    let good = |i| [("a", Cell::Int(i)), ("b", Cell::Null)];
    let mut ingest = undeclared(WIDE);
    assert!(push(&mut ingest, b"xyz", &[("other", Cell::Int(1)), ("weight", Cell::Null)]).is_err());
    push(&mut ingest, b"1", &good(1)).unwrap();
    // The first value of "b" comes in a row that fails after it: "b" has no type again.
    let bad = [("b", Cell::Str("t")), ("a", Cell::Float(0.5))];
    assert!(push(&mut ingest, b"xyz", &bad).is_err());
    assert!(push(&mut ingest, b"xyz", &good(2)[..1]).is_err());
    push(&mut ingest, b"22", &[("a", Cell::Int(2)), ("b", Cell::Float(2.5))]).unwrap();
    assert_eq!((ingest.rows(), ingest.payload_bytes()), (2, 3));
    let (schema, groups) = ingest.finish().unwrap();
    assert_eq!(schema.columns()[1].column_type, ColumnType::Float64);
    let expected: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    assert_eq!(&groups[0].columns()[0], &expected);
    assert_eq!(groups[0].payload(), &LargeBinaryArray::from_vec(vec![b"1", b"22"]));
    let mut alone = undeclared(WIDE);
    push(&mut alone, b"1", &good(1)).unwrap();
    push(&mut alone, b"22", &[("a", Cell::Int(2)), ("b", Cell::Float(2.5))]).unwrap();
    assert_eq!(groups[0].raw_bytes(), alone.finish().unwrap().1[0].raw_bytes());
}

#[test]
fn a_refused_batch_leaves_nothing_behind() {
    let payload: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]));
    let label: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let mut ingest = undeclared(WIDE);
    let reserved =
        vec![("x", label.clone()), ("weight", label.clone()), ("payload", payload.clone())];
    assert!(ingest.push_batch(&batch(reserved)).is_err());
    ingest.push_batch(&batch(vec![("label", label), ("payload", payload)])).unwrap();
    let (schema, groups) = ingest.finish().unwrap();
    assert_eq!(schema.columns()[0].name, "label");
    assert_eq!(group_rows(&groups), [2]);
}

#[test]
fn a_row_that_is_never_ended_is_a_bug_and_not_a_cache() {
    let mut ingest = undeclared(WIDE);
    ingest.push_payload(b"a").unwrap();
    assert_eq!(ingest.push_payload(b"b").unwrap_err().kind(), Kind::Internal);
    let mut ingest = undeclared(WIDE);
    assert_eq!(ingest.end_row().unwrap_err().kind(), Kind::Internal);
    assert_eq!(ingest.cell(0, "a", Cell::Null).unwrap_err().kind(), Kind::Internal);
    push(&mut ingest, b"a", &[]).unwrap();
    ingest.push_payload(b"b").unwrap();
    assert_eq!(ingest.finish().unwrap_err().kind(), Kind::Internal);
}

#[test]
fn two_payload_columns_are_refused() {
    let payload: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]));
    let twice = batch(vec![("payload", payload.clone()), ("payload", payload)]);
    let error = undeclared(WIDE).push_batch(&twice).unwrap_err();
    assert_names(error.message(), &["\"train\"", "payload", "twice"]);
}

type Row = (Option<i64>, Option<String>, Vec<u8>);

fn by_rows(rows: &[Row], limits: GroupLimits) -> Vec<RowGroup> {
    let columns = [("n", ColumnType::Int64, true), ("t", ColumnType::Utf8, true)];
    let mut ingest = declared(&columns, limits);
    for (n, t, payload) in rows {
        let n = n.map_or(Cell::Null, Cell::Int);
        let t = t.as_deref().map_or(Cell::Null, Cell::Str);
        push(&mut ingest, payload, &[("n", n), ("t", t)]).unwrap();
    }
    ingest.finish().unwrap().1
}

fn by_batches(rows: &[Row], limits: GroupLimits, piece: usize) -> Vec<RowGroup> {
    let columns = [("n", ColumnType::Int64, true), ("t", ColumnType::Utf8, true)];
    let mut ingest = declared(&columns, limits);
    for rows in rows.chunks(piece) {
        let n: ArrayRef = Arc::new(rows.iter().map(|r| r.0).collect::<Int64Array>());
        let t: ArrayRef = Arc::new(rows.iter().map(|r| r.1.clone()).collect::<StringViewArray>());
        let payload = BinaryArray::from_iter_values(rows.iter().map(|r| &r.2));
        let payload: ArrayRef = Arc::new(payload);
        ingest.push_batch(&batch(vec![("t", t), ("payload", payload), ("n", n)])).unwrap();
    }
    ingest.finish().unwrap().1
}

proptest! {
    #[test]
    fn rows_and_batches_of_any_size_make_the_same_groups(
        rows in prop::collection::vec(
            (
                any::<Option<i64>>(),
                any::<Option<String>>(),
                prop::collection::vec(any::<u8>(), 0..90),
            ),
            1..40,
        ),
        batch_bytes in 1_u64..400,
        batch_rows in 1_usize..9,
        piece in 1_usize..50,
    ) {
        let limits = GroupLimits { batch_bytes, batch_rows, hold_bytes: 1 << 20 };
        let groups = by_rows(&rows, limits);
        let others = by_batches(&rows, limits, piece);
        prop_assert_eq!(group_rows(&groups), group_rows(&others));
        let mut taken = rows.iter();
        for (group, other) in groups.iter().zip(&others) {
            prop_assert!(group.rows() <= batch_rows as u64);
            prop_assert_eq!(group.raw_bytes(), other.raw_bytes());
            prop_assert_eq!(group.columns(), other.columns());
            prop_assert_eq!(group.payload(), other.payload());
            for i in 0..group.rows() as usize {
                let row = taken.next().unwrap();
                prop_assert_eq!(group.payload().value(i), row.2.as_slice());
                let text = group.columns()[1].as_string::<i64>();
                prop_assert_eq!(text.is_valid(i).then(|| text.value(i)), row.1.as_deref());
            }
        }
        prop_assert!(taken.next().is_none());
    }
}
