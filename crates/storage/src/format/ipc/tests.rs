//! Files give back what went in, to us and to other readers, and no bytes make us panic.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use arrow_array::builder::{LargeBinaryBuilder, LargeStringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, LargeBinaryArray, NullArray, PrimitiveArray,
    RecordBatch,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;

use super::layout::{HEAD_MAGIC, buffer_count};
use super::*;
use crate::{Kind, Result};

const FORMS: [BodyCompression; 3] =
    [BodyCompression::None, BodyCompression::Lz4Frame, BodyCompression::Zstd { level: 3 }];

/// One column of every type, whose nulls hide leftovers.
fn columns(cells: &[Option<u64>]) -> Vec<ArrayRef> {
    let nulls = NullBuffer::from_iter(cells.iter().map(Option::is_some));
    let bits = |row: usize| cells[row].unwrap_or(0xdead_beef_dead_beef);
    let bools: Vec<bool> = (0..cells.len()).map(|row| bits(row) % 2 == 1).collect();
    let micros = primitive::<TimestampMicrosecondType>(cells, &nulls, |v| v as i64);
    let nanos = primitive::<TimestampNanosecondType>(cells, &nulls, |v| v as i64);
    vec![
        Arc::new(NullArray::new(cells.len())),
        Arc::new(BooleanArray::new(bools.into(), Some(nulls.clone()))),
        Arc::new(primitive::<Int8Type>(cells, &nulls, |v| v as i8)),
        Arc::new(primitive::<Int16Type>(cells, &nulls, |v| v as i16)),
        Arc::new(primitive::<Int32Type>(cells, &nulls, |v| v as i32)),
        Arc::new(primitive::<Int64Type>(cells, &nulls, |v| v as i64)),
        Arc::new(primitive::<UInt8Type>(cells, &nulls, |v| v as u8)),
        Arc::new(primitive::<UInt16Type>(cells, &nulls, |v| v as u16)),
        Arc::new(primitive::<UInt32Type>(cells, &nulls, |v| v as u32)),
        Arc::new(primitive::<UInt64Type>(cells, &nulls, |v| v)),
        Arc::new(primitive::<Float32Type>(cells, &nulls, |v| v as f32)),
        Arc::new(primitive::<Float64Type>(cells, &nulls, |v| v as f64)),
        Arc::new(primitive::<Date32Type>(cells, &nulls, |v| v as i32)),
        Arc::new(micros),
        Arc::new(nanos.with_timezone("Europe/Berlin")),
        Arc::new(texts(cells).finish()),
        Arc::new(bytes_with_leftovers(cells, nulls)),
    ]
}

fn primitive<T: ArrowPrimitiveType>(
    cells: &[Option<u64>],
    nulls: &NullBuffer,
    cast: impl Fn(u64) -> T::Native,
) -> PrimitiveArray<T> {
    let values: Vec<T::Native> =
        cells.iter().map(|cell| cast(cell.unwrap_or(0xdead_beef_dead_beef))).collect();
    PrimitiveArray::new(ScalarBuffer::from(values), Some(nulls.clone()))
}

fn texts(cells: &[Option<u64>]) -> LargeStringBuilder {
    let mut builder = LargeStringBuilder::new();
    cells.iter().for_each(|cell| builder.append_option(cell.map(|v| "ä€".repeat(v as usize % 5))));
    builder
}

fn bytes_with_leftovers(cells: &[Option<u64>], nulls: NullBuffer) -> LargeBinaryArray {
    let values: Vec<Vec<u8>> =
        cells.iter().map(|cell| vec![9; cell.map_or(3, |v| v as usize % 7)]).collect();
    let offsets = OffsetBuffer::<i64>::from_lengths(values.iter().map(Vec::len));
    LargeBinaryArray::new(offsets, Buffer::from_vec(values.concat()), Some(nulls))
}

fn schema_of(columns: &[ArrayRef]) -> Schema {
    let fields: Vec<Field> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| Field::new(format!("c{i}"), column.data_type().clone(), true))
        .collect();
    let marks = ["b", "a", "z", "dataset_rt.kind"].map(|key| (key.to_owned(), "ü".to_owned()));
    Schema::new_with_metadata(fields, HashMap::from(marks))
}

fn slice(columns: &[ArrayRef], start: usize, len: usize) -> Vec<ArrayRef> {
    columns.iter().map(|column| column.slice(start, len)).collect()
}

fn write(schema: &Schema, batches: &[Vec<ArrayRef>], form: BodyCompression) -> Vec<u8> {
    let mut file = file_head(schema).unwrap();
    let mut places = Vec::new();
    for columns in batches {
        let batch = encode_batch(schema, columns, form).unwrap();
        let (start, size) = (file.len(), batch.size_bytes());
        places.push(batch.place_at(start as u64));
        batch.pieces().for_each(|piece| file.extend_from_slice(piece));
        assert_eq!((file.len() - start) as u64, size);
        assert_eq!(start % 64, 0);
    }
    file.extend_from_slice(&file_tail(schema, &places).unwrap());
    file
}

fn part(file: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &file[range.start as usize..range.end as usize]
}

fn layout(file: &[u8]) -> Result<FileLayout> {
    let size = file.len() as u64;
    let tail = &file[file.len().saturating_sub(FOOTER_TAIL_BYTES)..];
    decode_footer(part(file, footer_range(size, tail)?), size)
}

/// Reads a whole file as a cautious reader does.
fn read(file: &[u8]) -> Result<Vec<Vec<ArrayRef>>> {
    let layout = layout(file)?;
    decode_head(part(file, layout.head_range()), &layout.schema)?;
    layout.batches.iter().map(|place| read_batch(file, place, &layout.schema)).collect()
}

fn read_batch(file: &[u8], place: &BatchPlace, schema: &Schema) -> Result<Vec<ArrayRef>> {
    let batch = decode_batch_header(part(file, place.message_range()), place, schema)?;
    let build = |(i, field): (usize, &arrow_schema::FieldRef)| {
        let ranges = batch.column_buffers(schema, i);
        let buffers = ranges.iter().map(|range| {
            let raw = decompress_buffer(part(file, range.clone()), batch.compression, 1 << 20)?;
            Ok(Buffer::from_vec(raw))
        });
        let buffers = buffers.collect::<Result<_>>()?;
        build_array(field.data_type(), batch.rows, batch.nulls[i], buffers, Validation::Full)
    };
    schema.fields().iter().enumerate().map(build).collect()
}

fn cells() -> impl Strategy<Value = (Vec<Option<u64>>, usize, usize)> {
    proptest::collection::vec(any::<Option<u64>>(), 0..70).prop_flat_map(|cells| {
        let len = cells.len();
        (Just(cells), 0..=len)
            .prop_flat_map(move |(cells, start)| (Just(cells), Just(start), 0..=len - start))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_type_survives_sliced_or_not((cells, start, len) in cells()) {
        let whole = columns(&cells);
        let schema = schema_of(&whole);
        let batches = vec![slice(&whole, start, len), whole.clone()];
        for form in FORMS {
            let file = write(&schema, &batches, form);
            prop_assert_eq!(&read(&file).unwrap(), &batches);
            let found = layout(&file).unwrap();
            prop_assert_eq!(&found.schema, &schema);
            prop_assert!(found.is_contiguous());
            let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(&file), None).unwrap();
            let theirs: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
            prop_assert_eq!(theirs.len(), 2);
            for (batch, expected) in theirs.iter().zip(&batches) {
                prop_assert_eq!(batch.columns(), expected.as_slice());
                prop_assert!(batch.schema().metadata() == schema.metadata());
            }
        }
    }

    #[test]
    fn equal_rows_give_equal_bytes((cells, start, len) in cells()) {
        let sliced = slice(&columns(&cells), start, len);
        let fresh = columns(&cells[start..start + len]);
        let schema = schema_of(&fresh);
        for form in FORMS {
            let file = write(&schema, std::slice::from_ref(&sliced), form);
            prop_assert!(file == write(&schema, std::slice::from_ref(&fresh), form));
        }
    }

    #[test]
    fn what_lies_under_nulls_never_reaches_a_file(cells in cells().prop_map(|(c, _, _)| c)) {
        let clean: Vec<Option<i64>> = cells.iter().map(|c| c.map(|v| v as i64)).collect();
        let clean: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from(clean));
        let mut builder = LargeBinaryBuilder::new();
        cells.iter().for_each(|c| builder.append_option(c.map(|v| vec![9; v as usize % 7])));
        let all = columns(&cells);
        let same = [clean, Arc::new(builder.finish()) as ArrayRef];
        let dirty = [all[5].clone(), all[16].clone()];
        let schema = schema_of(&same);
        let write_one = |c: &[ArrayRef]| write(&schema, &[c.to_vec()], BodyCompression::None);
        prop_assert!(write_one(&same) == write_one(&dirty));
    }

    #[test]
    fn any_buffers_are_safe_to_build_from(
        kind in 0..17_usize,
        rows in 0..40_u64,
        nulls in 0..10_u64,
        bytes in proptest::collection::vec(proptest::collection::vec(0..9_u8, 0..400), 3),
        shift in 0..8_usize,
    ) {
        let data_type = columns(&[])[kind].data_type().clone();
        let shifted = bytes.into_iter().map(Buffer::from_vec);
        let shifted = shifted.map(|b| b.slice(shift.min(b.len())));
        let buffers = shifted.take(buffer_count(&data_type)).collect();
        for validation in [Validation::Full, Validation::Offsets] {
            let buffers: Vec<Buffer> = Vec::clone(&buffers);
            if let Ok(array) = build_array(&data_type, rows, nulls, buffers, validation) {
                prop_assert_eq!(array.len() as u64, rows);
                // Touches every value: out-of-range offsets would show.
                let _ = format!("{array:?}");
            }
        }
    }

    #[test]
    fn any_bytes_are_safe_to_decode(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let place = BatchPlace { offset: 64, message_len: bytes.len() as u32, body_len: 64 };
        let _ = decode_footer(&bytes, 10_000);
        let _ = decode_batch_header(&bytes, &place, &schema_of(&columns(&[])));
        let _ = decode_head(&bytes, &Schema::empty());
        let _ = footer_range(bytes.len() as u64, &bytes[bytes.len().saturating_sub(10)..]);
        for kind in [BodyKind::Lz4Frame, BodyKind::Zstd] {
            let _ = decompress_buffer(&bytes, kind, 1000);
        }
    }
}

#[test]
fn files_without_batches_or_without_columns_are_files() {
    for schema in [schema_of(&columns(&[])), Schema::empty()] {
        let file = write(&schema, &[], BodyCompression::None);
        assert!(read(&file).unwrap().is_empty());
        assert!(layout(&file).unwrap().is_contiguous());
        let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(&file), None).unwrap();
        assert_eq!(reader.count(), 0);
    }
}

#[test]
fn every_buffer_begins_at_a_multiple_of_64_and_padding_is_zero() {
    let whole = columns(&[Some(1), None, Some(u64::MAX)]);
    let schema = schema_of(&whole);
    for form in FORMS {
        let file = write(&schema, &[whole.clone(), slice(&whole, 1, 2)], form);
        for place in layout(&file).unwrap().batches {
            let message = part(&file, place.message_range());
            let batch = decode_batch_header(message, &place, &schema).unwrap();
            assert!(batch.buffers.iter().all(|range| range.start % 64 == 0));
            let mut covered = place.body_start();
            for range in &batch.buffers {
                assert!(part(&file, covered..range.start).iter().all(|byte| *byte == 0));
                covered = range.end;
            }
            assert!(part(&file, covered..place.end()).iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn payload_bytes_are_neither_copied_on_the_way_in_nor_out() {
    let payload = LargeBinaryArray::from(vec![&[1_u8; 100][..], &[2; 50]]);
    let (source, columns): (_, [ArrayRef; 1]) = (payload.values().as_ptr(), [Arc::new(payload)]);
    let schema = Schema::new(vec![Field::new("payload", DataType::LargeBinary, false)]);
    let batch = encode_batch(&schema, &columns, BodyCompression::None).unwrap();
    assert_eq!(batch.body[2].as_ptr(), source);
    let built = build_array(&DataType::LargeBinary, 2, 0, batch.body.clone(), Validation::Full);
    assert_eq!(built.unwrap().as_binary::<i64>().values().as_ptr(), source);
}

/// Every byte of the file outside of bodies, changed in turn to a few other values.
#[test]
fn damaged_headers_give_errors_or_data_but_never_a_panic() {
    let whole = columns(&[Some(1), None, Some(3)]);
    let schema = schema_of(&whole);
    let file = write(&schema, &[whole.clone(), whole], BodyCompression::None);
    let bodies: Vec<_> =
        layout(&file).unwrap().batches.iter().map(BatchPlace::body_range).collect();
    let mut refused = 0;
    for i in 0..file.len() {
        if bodies.iter().any(|body| body.contains(&(i as u64))) {
            continue;
        }
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[i] ^= mask;
            refused += usize::from(read(&damaged).is_err());
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn truncated_files_are_refused() {
    let whole = columns(&[Some(1)]);
    let file = write(&schema_of(&whole), &[whole], BodyCompression::Lz4Frame);
    for len in 0..file.len() {
        let error = read(&file[..len]).err().or_else(|| panic!("{len}")).unwrap();
        assert_eq!(error.kind(), Kind::Corrupt);
    }
}

#[test]
fn blocks_outside_the_file_or_over_each_other_are_refused() {
    let schema = schema_of(&columns(&[]));
    let size = 4096;
    let good = BatchPlace { offset: 512, message_len: 64, body_len: 64 };
    let decode = |places: &[BatchPlace]| {
        let tail = file_tail(&schema, places).unwrap();
        let footer = &tail[8..tail.len() - FOOTER_TAIL_BYTES];
        decode_footer(footer, size + footer.len() as u64)
    };
    assert!(decode(&[good]).is_ok());
    let bad = [
        vec![good, good],
        vec![BatchPlace { offset: 1024, ..good }, good],
        vec![BatchPlace { offset: 0, ..good }],
        vec![BatchPlace { offset: 4, ..good }],
        vec![BatchPlace { offset: size, ..good }],
        vec![BatchPlace { offset: i64::MAX as u64 - 7, ..good }],
        vec![BatchPlace { body_len: i64::MAX as u64 - 7, ..good }],
        vec![BatchPlace { body_len: 65, ..good }],
        vec![BatchPlace { message_len: 8, ..good }],
    ];
    for places in bad {
        assert_eq!(decode(&places).unwrap_err().kind(), Kind::Corrupt, "{places:?}");
    }
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let whole = columns(&[Some(1), None]);
    let schema = schema_of(&whole);
    let batch = encode_batch(&schema, &whole, BodyCompression::None).unwrap();
    let place = batch.place_at(64);
    assert!(decode_batch_header(&batch.message, &place, &schema).is_ok());
    let swap = |i: usize, field: Field| {
        let mut fields: Vec<_> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        fields[i] = field;
        Schema::new(fields)
    };
    let fewer = Schema::new(schema.fields()[1..].to_vec());
    let wider = swap(2, Field::new("c2", DataType::LargeUtf8, true));
    let never_null = swap(5, Field::new("c5", DataType::Int64, false));
    for other in [fewer, wider, never_null] {
        let error = decode_batch_header(&batch.message, &place, &other).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
    }
}

#[test]
fn schemas_of_other_types_are_refused_both_ways() {
    let item = Arc::new(Field::new("item", DataType::Int8, true));
    for data_type in [
        DataType::Utf8,
        DataType::BinaryView,
        DataType::List(item),
        DataType::Decimal128(10, 2),
        DataType::Duration(TimeUnit::Second),
    ] {
        let schema = Schema::new(vec![Field::new("x", data_type, true)]);
        assert_eq!(file_head(&schema).unwrap_err().kind(), Kind::Unsupported);
        let mut theirs = Vec::new();
        arrow_ipc::writer::FileWriter::try_new(&mut theirs, &schema).unwrap().finish().unwrap();
        assert_eq!(read(&theirs).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn files_of_another_writer_with_our_types_are_read() {
    let whole = columns(&[Some(1), None, Some(3)]);
    let schema = Arc::new(schema_of(&whole));
    let batch = RecordBatch::try_new(schema.clone(), whole.clone()).unwrap();
    let mut file = Vec::new();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut file, &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let found = layout(&file).unwrap();
    assert_eq!(read_batch(&file, &found.batches[0], &found.schema).unwrap(), whole);
}

#[test]
fn text_that_is_none_is_refused_or_comes_back_as_bytes() {
    let buffers = || {
        vec![Buffer::default(), Buffer::from_vec(vec![0_i64, 1]), Buffer::from_vec(vec![0xff_u8])]
    };
    let text = DataType::LargeUtf8;
    let error = build_array(&text, 1, 0, buffers(), Validation::Full).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    let bytes = build_array(&text, 1, 0, buffers(), Validation::Offsets).unwrap();
    assert_eq!(bytes.as_binary::<i64>().value(0), [0xff]);
}

#[test]
fn offsets_and_null_counts_that_lie_are_refused() {
    for offsets in [[0_i64, 9], [1, 0], [-1, 1], [0, i64::MAX]] {
        let values = Buffer::from_vec(vec![0_u8; 4]);
        let buffers = vec![Buffer::default(), Buffer::from_vec(offsets.to_vec()), values];
        let built = build_array(&DataType::LargeBinary, 1, 0, buffers, Validation::Offsets);
        assert_eq!(built.unwrap_err().kind(), Kind::Corrupt, "{offsets:?}");
        let bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        assert!(cell_range(&bytes, 0, 4).is_err(), "{offsets:?}");
    }
    let good: Vec<u8> = [0_i64, 1, 4].iter().flat_map(|offset| offset.to_le_bytes()).collect();
    assert_eq!(cell_range(&good, 1, 4).unwrap(), 1..4);
    assert!(cell_range(&good, 2, 4).is_err() && cell_range(&good, usize::MAX, 4).is_err());
    let buffers = || vec![Buffer::from_vec(vec![0b101_u8]), Buffer::from_vec(vec![0_u8; 3])];
    assert!(build_array(&DataType::Int8, 3, 1, buffers(), Validation::Full).is_ok());
    assert!(build_array(&DataType::Int8, 3, 2, buffers(), Validation::Full).is_err());
    assert!(build_array(&DataType::Int8, u64::MAX, 1, buffers(), Validation::Full).is_err());
}

#[test]
fn buffers_longer_than_their_rows_by_any_number_of_bytes_are_cut() {
    let whole = columns(&[Some(1), None, Some(3)]);
    let schema = schema_of(&whole);
    let batch = encode_batch(&schema, &whole, BodyCompression::None).unwrap();
    let mut body = batch.body.iter();
    for column in &whole {
        let data_type = column.data_type();
        let own: Vec<_> = body.by_ref().take(buffer_count(data_type)).collect();
        for extra in 0..17 {
            let longer =
                own.iter().map(|b| Buffer::from([b.as_slice(), &[7; 17][..extra]].concat()));
            let nulls = if *data_type == DataType::Null { 3 } else { 1 };
            let built = build_array(data_type, 3, nulls, longer.collect(), Validation::Full);
            assert_eq!(&built.unwrap(), column, "{extra}");
        }
    }
}

#[test]
fn a_compressed_buffer_never_outgrows_what_the_caller_allows() {
    let zeros: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from(vec![0_i64; 1000]));
    let schema = schema_of(std::slice::from_ref(&zeros));
    for form in &FORMS[1..] {
        let batch = encode_batch(&schema, std::slice::from_ref(&zeros), *form).unwrap();
        let buffer = batch.body[1].as_slice();
        assert_eq!(decompress_buffer(buffer, form.kind(), 8000).unwrap(), vec![0; 8000]);
        for raw_len in [7999, 8001, i64::MAX, -2, i64::MIN] {
            let mut lie = buffer.to_vec();
            lie[..8].copy_from_slice(&raw_len.to_le_bytes());
            let error = decompress_buffer(&lie, form.kind(), u64::MAX).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{raw_len}");
        }
        assert!(decompress_buffer(buffer, form.kind(), 7999).is_err());
        assert!(decompress_buffer(&buffer[..7], form.kind(), 8000).is_err());
    }
}

#[test]
fn columns_that_do_not_fit_the_schema_are_refused() {
    let one: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from(vec![Some(1), None]));
    let field = |data_type, nullable| Schema::new(vec![Field::new("x", data_type, nullable)]);
    let encode = |schema: Schema, columns: &[ArrayRef]| {
        encode_batch(&schema, columns, BodyCompression::None).map(|batch| batch.rows)
    };
    let only = std::slice::from_ref(&one);
    assert_eq!(encode(field(DataType::Int64, true), only), Ok(2));
    assert!(encode(field(DataType::Int64, false), only).is_err());
    assert!(encode(field(DataType::Int32, true), only).is_err());
    assert!(encode(field(DataType::Int64, true), &[]).is_err());
    let two = Schema::new(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("y", DataType::Int64, true),
    ]);
    assert!(encode(two, &[one.clone(), one.slice(0, 1)]).is_err());
}

#[test]
fn the_head_must_repeat_the_footers_schema() {
    let schema = schema_of(&columns(&[]));
    let head = file_head(&schema).unwrap();
    assert_eq!(head.len() % 64, 0);
    assert!(head.starts_with(&HEAD_MAGIC));
    decode_head(&head, &schema).unwrap();
    let other = Schema::new(schema.fields().clone());
    assert!(decode_head(&head, &other).is_err(), "other metadata");
    assert!(decode_head(&head[8..], &schema).is_err());
}

#[test]
fn the_largest_schema_a_cache_allows_is_read_back() {
    let limit = crate::format::limits::COLUMNS_MAX;
    let fields = |count| (0..count).map(|i| Field::new(format!("{i}"), DataType::Int8, true));
    let schema = Schema::new(fields(limit + 2).collect::<Vec<_>>());
    let file = write(&schema, &[], BodyCompression::None);
    assert!(layout(&file).unwrap().schema == schema);
    let wider = Schema::new(fields(limit + 3).collect::<Vec<_>>());
    assert_eq!(file_head(&wider).unwrap_err().kind(), Kind::Unsupported);
}
