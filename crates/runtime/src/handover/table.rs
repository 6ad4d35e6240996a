//! An active table as an Arrow IPC stream, and back. Knows nothing of memory or files.

use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use dataset_rt_storage::store::guarded_once;
use dataset_rt_storage::{Error, Result};

/// Rows encoded at once: the encoder copies them.
const PIECE_ROWS: usize = 262_144;

/// Writes a table to `out`. Rows come in pieces, which is no part of a table's meaning.
///
/// # Errors
/// What `failed` makes of an error of `out`, or what `attend` returned, which is called before
/// each piece.
pub fn write_table(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    out: &mut dyn Write,
    failed: &dyn Fn(&std::io::Error) -> Error,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let explain = |error: ArrowError| match error {
        ArrowError::IoError(_, error) => failed(&error),
        other => Error::unsupported(format!("the table cannot be written as Arrow IPC: {other}")),
    };
    let mut writer = StreamWriter::try_new(out, schema).map_err(explain)?;
    // Slices of nested arrays may bring all of their children along.
    let is_flat = schema.fields().iter().all(|field| !field.data_type().is_nested());
    for batch in batches {
        let step = if is_flat { PIECE_ROWS } else { batch.num_rows().max(1) };
        for start in (0..batch.num_rows()).step_by(step) {
            attend()?;
            let piece = batch.slice(start, step.min(batch.num_rows() - start));
            // The table may lie in mapped files.
            guarded_once(|_| {
                compact(&piece).and_then(|piece| writer.write(&piece).map_err(explain))
            })?;
        }
    }
    writer.finish().map_err(explain)
}

/// The same rows without the texts that other rows name.
fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|column| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    });
    RecordBatch::try_new(batch.schema(), columns.collect())
        .map_err(|e| Error::internal(format!("cannot take rows of a table: {e}")))
}

/// The table in `bytes`, whose arrays lie there: nothing is copied or looked at per row.
///
/// # Errors
/// `Corrupt` when this is no table.
///
/// # Safety
/// [`write_table`] wrote `bytes` from valid arrays, and nobody can have changed them since.
pub unsafe fn read_table(mut bytes: Buffer) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let damaged = |e: ArrowError| Error::corrupt(format!("a table in shared memory: {e}"));
    // SAFETY: the caller's promise.
    let decoder = unsafe { StreamDecoder::new().with_skip_validation(true) };
    let mut decoder = decoder.with_require_alignment(true);
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        batches.extend(decoder.decode(&mut bytes).map_err(damaged)?);
    }
    let schema = decoder.schema();
    decoder.finish().map_err(damaged)?;
    let schema = schema.ok_or_else(|| Error::corrupt("a table in shared memory has no schema"))?;
    Ok((schema, batches))
}
