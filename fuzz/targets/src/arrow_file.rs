//! Footers, batch headers and buffers of `metadata.arrow` and shards.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, FieldRef, Schema};
use dataset_rt_storage::format::ipc::{
    BatchLayout, BodyCompression, BodyKind, FOOTER_TAIL_BYTES, Validation, build_array, cell_range,
    decode_batch_header, decode_footer, decode_head, decompress_buffer, encode_batch, file_head,
    file_tail, footer_range,
};
use dataset_rt_storage::{Error, Kind, Result};

use crate::bases::BASES;
use crate::edits::{Input, edit_all};

const EDITS_MAX: usize = 16;
/// Most raw bytes of a compressed buffer.
const RAW_BYTES_MAX: u64 = 1 << 20;

/// Any bytes, or a file of one of the bases with changes.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let bytes = match input.byte() % 8 {
        0 => input.rest().to_vec(),
        _ => {
            let files = &input.pick(&BASES).files;
            let names: Vec<&String> =
                files.keys().filter(|name| name.ends_with(".arrow")).collect();
            let mut bytes = files[*input.pick(&names)].clone();
            edit_all(&mut input, &mut bytes, EDITS_MAX);
            bytes
        }
    };
    if let Err(error) = check(&Buffer::from_vec(bytes)) {
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{error}");
    }
}

fn check(file: &Buffer) -> Result<()> {
    let size = file.len() as u64;
    let tail = file.len().saturating_sub(FOOTER_TAIL_BYTES);
    let range = footer_range(size, &file[tail..])?;
    let layout = decode_footer(&file[inside(&range, file)], size)?;
    let _ = decode_head(&file[inside(&layout.head_range(), file)], &layout.schema);
    let _ = layout.is_contiguous();
    check_schema(&layout.schema)?;
    let mut end = 0;
    for place in &layout.batches {
        assert!(place.offset >= end && place.end() <= layout.footer.start);
        end = place.end();
        let message = &file[inside(&place.message_range(), file)];
        let Ok(batch) = decode_batch_header(message, place, &layout.schema) else { continue };
        let body = place.body_range();
        assert!(batch.buffers.iter().all(|b| body.start <= b.start && b.end <= body.end));
        check_batch(file, &layout.schema, &batch)?;
    }
    Ok(())
}

/// `range` as positions, which must lie in the file.
fn inside(range: &Range<u64>, file: &Buffer) -> Range<usize> {
    assert!(range.start <= range.end && range.end <= file.len() as u64, "{range:?}");
    range.start as usize..range.end as usize
}

/// A schema that was read can be written, and is then read as the same; but for marks of columns
/// and empty zones, which no cache has.
fn check_schema(schema: &Schema) -> Result<()> {
    let is_storable = |field: &FieldRef| {
        let zone = match field.data_type() {
            DataType::Timestamp(_, zone) => zone.as_deref(),
            _ => None,
        };
        field.metadata().is_empty() && zone != Some("")
    };
    if !schema.fields().iter().all(is_storable) {
        return Ok(());
    }
    let head = file_head(schema)?;
    decode_head(&head, schema).expect("our own head");
    let tail = file_tail(schema, &[])?;
    let file = [head, tail].concat();
    let range = footer_range(file.len() as u64, &file[file.len() - FOOTER_TAIL_BYTES..])?;
    let footer = &file[range.start as usize..range.end as usize];
    let layout = decode_footer(footer, file.len() as u64).expect("our own footer");
    assert_eq!(layout.schema, *schema);
    Ok(())
}

fn check_batch(file: &Buffer, schema: &Schema, batch: &BatchLayout) -> Result<()> {
    let mut columns = Vec::new();
    for (column, field) in schema.fields().iter().enumerate() {
        let ranges = batch.column_buffers(schema, column);
        let buffers = ranges.iter().map(|range| read(file, range, batch.compression));
        let Ok(buffers) = buffers.collect::<Result<Vec<_>>>() else { continue };
        if let [_, offsets, values] = buffers.as_slice() {
            check_cells(offsets, values, batch.rows);
        }
        let build = |validation| {
            let nulls = batch.nulls[column];
            build_array(field.data_type(), batch.rows, nulls, buffers.clone(), validation)
        };
        let loose = build(Validation::Offsets);
        let Ok(array) = build(Validation::Full) else { continue };
        assert!(loose.is_ok(), "the stricter check accepts more");
        array.to_data().validate_full().expect("what was checked is valid");
        assert_eq!(array.len() as u64, batch.rows);
        assert_eq!(array.logical_null_count() as u64, batch.nulls[column]);
        if batch.compression == BodyKind::None {
            assert_within(&array, file);
        }
        columns.push(array);
    }
    if columns.len() == schema.fields().len() && batch.rows <= 1 << 16 {
        encode_batch(schema, &columns, BodyCompression::None)
            .expect("what was read can be written");
    }
    Ok(())
}

fn read(file: &Buffer, range: &Range<u64>, kind: BodyKind) -> Result<Buffer> {
    let place = inside(range, file);
    match kind {
        BodyKind::None => Ok(file.slice_with_length(place.start, place.len())),
        kind => decompress_buffer(&file[place], kind, RAW_BYTES_MAX).map(Buffer::from_vec),
    }
}

/// Single cells are found where a naive reading finds them, or not at all.
fn check_cells(offsets: &Buffer, values: &Buffer, rows: u64) {
    for row in 0..(rows as usize).min(1000) {
        let naive = || {
            let at = |i: usize| Some(i64::from_le_bytes(*offsets.get(i * 8..)?.first_chunk()?));
            let (start, end) = (at(row)?, at(row + 1)?);
            (0 <= start && start <= end && end <= values.len() as i64)
                .then_some(start as usize..end as usize)
        };
        let found = cell_range(offsets, row, values.len());
        assert_eq!(found.map_err(|e: Error| e.kind()).ok(), naive());
    }
}

/// Values that were not copied lie in the file.
fn assert_within(array: &ArrayRef, file: &Buffer) {
    let bounds = file.as_ptr_range();
    let data = array.to_data();
    let validity = data.nulls().map(|nulls| nulls.buffer());
    for buffer in data.buffers().iter().chain(validity) {
        let range = buffer.as_ptr_range();
        let is_copy = range.end <= bounds.start || bounds.end <= range.start;
        assert!(
            is_copy || (bounds.start <= range.start && range.end <= bounds.end),
            "values beside the file"
        );
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, base) in BASES.iter().enumerate() {
        let files = base.files.iter().filter(|(name, _)| name.ends_with(".arrow"));
        for (file, (_, bytes)) in files.enumerate() {
            seeds.push(vec![1, number as u8, file as u8]);
            if number == 0 && bytes.len() < 8000 {
                seeds.push([&[0], bytes.as_slice()].concat());
            }
        }
    }
    seeds
}
