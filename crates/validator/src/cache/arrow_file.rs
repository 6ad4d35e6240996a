//! The structure of the Arrow files: footers, schemas, batch headers. Looks at no value.

use std::path::Path;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use dataset_rt_storage::format::codec::{Algo, schema_marks};
use dataset_rt_storage::format::ipc::{
    BatchLayout, BatchPlace, BodyKind, FOOTER_TAIL_BYTES, FileLayout, Validation, build_array,
    decode_batch_header, decode_footer, decode_head, decompress_buffer, footer_range,
};
use dataset_rt_storage::format::limits::{ALIGNMENT, PAYLOAD_BYTES_MAX};
use dataset_rt_storage::format::manifest::{METADATA_FILE, Manifest};
use dataset_rt_storage::store::{IoMode, ReadFile};
use dataset_rt_storage::{Error, Result};

use super::report::Report;

/// An Arrow file whose structure is right.
pub(super) struct ArrowFile {
    file: ReadFile,
    pub(super) name: String,
    pub(super) layout: FileLayout,
    pub(super) batches: Vec<BatchLayout>,
}

/// The Arrow files of a cache whose structure is right.
pub(super) struct ArrowFiles {
    pub(super) shards: Vec<ArrowFile>,
    pub(super) metadata: ArrowFile,
}

/// Checks all Arrow files; `None` when one is not worth decoding.
pub(super) fn check_structure(
    path: &Path,
    manifest: &Manifest,
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<ArrowFiles>> {
    let stored = manifest.schema()?;
    let dictionary = manifest.dictionary.as_ref().map(|file| file.blake3.as_str());
    let shard_schema = stored.shard_schema(&schema_marks(&manifest.compression, dictionary));
    let body = match manifest.compression.algo {
        _ if !manifest.compression.is_per_buffer() => BodyKind::None,
        Algo::None => BodyKind::None,
        Algo::Lz4 => BodyKind::Lz4Frame,
        Algo::Zstd => BodyKind::Zstd,
    };
    let mut shards = Vec::new();
    for shard in &manifest.shards {
        let expected = Expected { schema: &shard_schema, rows: shard.rows, body };
        shards.push(open(path, &shard.path, &expected, report, attend)?);
    }
    let rows = if stored.columns().is_empty() { 0 } else { manifest.samples_total };
    let schema = stored.metadata_schema();
    let expected = Expected { schema: &schema, rows, body: BodyKind::None };
    let metadata = open(path, METADATA_FILE, &expected, report, attend)?;
    let shards: Option<Vec<ArrowFile>> = shards.into_iter().collect();
    Ok(shards.zip(metadata).map(|(shards, metadata)| ArrowFiles { shards, metadata }))
}

/// What the manifest asks of an Arrow file.
struct Expected<'a> {
    schema: &'a SchemaRef,
    rows: u64,
    body: BodyKind,
}

fn open(
    path: &Path,
    name: &str,
    expected: &Expected<'_>,
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<ArrowFile>> {
    let file = ReadFile::open(&path.join(name), IoMode::Pread)?;
    let layout = match footer(&file) {
        Ok(layout) => layout,
        Err(error) => {
            report.broken("A01", name, "footer", "a well-formed Arrow footer", error.message());
            return Ok(None);
        }
    };
    let mut is_right = true;
    if let Err(error) =
        read(&file, layout.head_range()).and_then(|head| decode_head(&head, &layout.schema))
    {
        report.broken("A02", name, "head", "the footer's schema", error.message());
        is_right = false;
    }
    if layout.schema != **expected.schema {
        let (expected, found) = (expected.schema.to_string(), layout.schema.to_string());
        report.broken("A03", name, "schema", expected, found);
        is_right = false;
    }
    if !layout.is_contiguous() {
        report.broken("A04", name, "", "batches side by side", "a gap between them");
    }
    let mut batches = Vec::new();
    for (number, place) in layout.batches.iter().enumerate() {
        attend()?;
        match batch(&file, place, &layout, number, name, expected.body, report) {
            Some(batch) => batches.push(batch),
            None => is_right = false,
        }
    }
    let rows: u64 = batches.iter().map(|batch| batch.rows).sum();
    if is_right && rows != expected.rows {
        report.broken("A05", name, "", format!("{} rows", expected.rows), format!("{rows} rows"));
        is_right = false;
    }
    Ok(is_right.then_some(ArrowFile { file, name: name.to_owned(), layout, batches }))
}

fn batch(
    file: &ReadFile,
    place: &BatchPlace,
    layout: &FileLayout,
    number: usize,
    name: &str,
    body: BodyKind,
    report: &mut Report,
) -> Option<BatchLayout> {
    let at = format!("batch {number}");
    let decoded = read(file, place.message_range())
        .and_then(|message| decode_batch_header(&message, place, &layout.schema));
    let batch = match decoded {
        Ok(batch) => batch,
        Err(error) => {
            report.broken("A04", name, at, "a well-formed record batch", error.message());
            return None;
        }
    };
    if let Some(buffer) = batch.buffers.iter().find(|b| b.start % ALIGNMENT as u64 != 0) {
        let found = format!("a buffer at byte {}", buffer.start);
        report.broken("A04", name, at.as_str(), "buffers at multiples of 64 bytes", found);
    }
    if batch.compression != body {
        let (expected, found) = (format!("{body:?}"), format!("{:?}", batch.compression));
        report.broken("A06", name, at, expected, found);
        return None;
    }
    Some(batch)
}

fn footer(file: &ReadFile) -> Result<FileLayout> {
    let size = file.size_bytes();
    let tail_start = size
        .checked_sub(FOOTER_TAIL_BYTES as u64)
        .ok_or_else(|| Error::corrupt(format!("the file has only {size} bytes")))?;
    let range = footer_range(size, &read(file, tail_start..size)?)?;
    decode_footer(&read(file, range)?, size)
}

/// Bytes of a range that was checked against the file's size.
fn read(file: &ReadFile, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
    let len = range
        .end
        .checked_sub(range.start)
        .filter(|_| range.end <= file.size_bytes())
        .ok_or_else(|| Error::corrupt(format!("bytes {range:?} lie outside the file")))?;
    let mut bytes = vec![0; len as usize];
    file.read_at(range.start, &mut bytes)?;
    Ok(bytes)
}

impl ArrowFile {
    /// The arrays of batch `number`, fully validated, and the bytes read for them.
    pub(super) fn arrays(&self, number: usize) -> Result<(Vec<ArrayRef>, u64)> {
        let batch = self
            .batches
            .get(number)
            .ok_or_else(|| Error::internal(format!("there is no batch {number}")))?;
        let mut bytes_read = 0;
        let fields = self.layout.schema.fields();
        let arrays = (0..fields.len())
            .map(|column| {
                let ranges = batch.column_buffers(&self.layout.schema, column);
                let buffers = ranges
                    .iter()
                    .map(|range| {
                        bytes_read += range.end - range.start;
                        let bytes = read(&self.file, range.clone())?;
                        Ok(match batch.compression {
                            BodyKind::None => Buffer::from_vec(bytes),
                            kind => Buffer::from_vec(decompress_buffer(
                                &bytes,
                                kind,
                                PAYLOAD_BYTES_MAX,
                            )?),
                        })
                    })
                    .collect::<Result<Vec<_>>>()?;
                let field = &fields[column];
                let nulls = batch.nulls.get(column).copied().unwrap_or(0);
                build_array(field.data_type(), batch.rows, nulls, buffers, Validation::Full)
                    .map_err(|e| e.within(format!("column {:?}", field.name())))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((arrays, bytes_read))
    }
}
