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
use dataset_rt_storage::format::limits::ALIGNMENT;
use dataset_rt_storage::format::manifest::{METADATA_FILE, Manifest, ShardEntry};
use dataset_rt_storage::store::{IoMode, ReadFile};
use dataset_rt_storage::{Error, Kind, Result};

use super::report::Report;

/// An Arrow file whose structure is right.
pub(super) struct ArrowFile {
    file: ReadFile,
    pub(super) name: String,
    pub(super) layout: FileLayout,
    pub(super) batches: Vec<BatchLayout>,
}

/// The Arrow files of a cache, opened one at a time: thousands of shards need one descriptor.
pub(super) struct ArrowFiles<'a> {
    path: &'a Path,
    manifest: &'a Manifest,
    shard_schema: SchemaRef,
    metadata_schema: SchemaRef,
    shard_body: BodyKind,
}

/// What the manifest asks of an Arrow file.
struct Expected<'a> {
    schema: &'a SchemaRef,
    rows: u64,
    body: BodyKind,
}

impl<'a> ArrowFiles<'a> {
    pub(super) fn new(path: &'a Path, manifest: &'a Manifest) -> Result<Self> {
        let stored = manifest.schema()?;
        let dictionary = manifest.dictionary.as_ref().map(|file| file.blake3.as_str());
        let shard_body = match manifest.compression.algo {
            _ if !manifest.compression.is_per_buffer() => BodyKind::None,
            Algo::None => BodyKind::None,
            Algo::Lz4 => BodyKind::Lz4Frame,
            Algo::Zstd => BodyKind::Zstd,
        };
        Ok(Self {
            path,
            manifest,
            shard_schema: stored.shard_schema(&schema_marks(&manifest.compression, dictionary)),
            metadata_schema: stored.metadata_schema(),
            shard_body,
        })
    }

    /// Checks all of them; whether their rows are worth decoding.
    pub(super) fn check(
        &self,
        report: &mut Report,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let mut is_right = true;
        for shard in &self.manifest.shards {
            is_right &= self.open_shard(shard, report, attend)?.is_some();
        }
        is_right &= self.open_metadata(report, attend)?.is_some();
        Ok(is_right)
    }

    /// One shard; `None` when it is not worth decoding.
    pub(super) fn open_shard(
        &self,
        shard: &ShardEntry,
        report: &mut Report,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<ArrowFile>> {
        let (schema, body) = (&self.shard_schema, self.shard_body);
        self.open(&shard.path, &Expected { schema, rows: shard.rows, body }, report, attend)
    }

    /// `metadata.arrow`; `None` when it is not worth decoding.
    pub(super) fn open_metadata(
        &self,
        report: &mut Report,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<ArrowFile>> {
        let schema = &self.metadata_schema;
        let rows = if schema.fields().is_empty() { 0 } else { self.manifest.samples_total };
        self.open(METADATA_FILE, &Expected { schema, rows, body: BodyKind::None }, report, attend)
    }

    fn open(
        &self,
        name: &str,
        expected: &Expected<'_>,
        report: &mut Report,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<ArrowFile>> {
        match ReadFile::open(&self.path.join(name), IoMode::Pread) {
            Ok(file) => check_file(file, name, expected, report, attend),
            Err(error) => report.unreadable(name, error).map(|()| None),
        }
    }
}

fn check_file(
    file: ReadFile,
    name: &str,
    expected: &Expected<'_>,
    report: &mut Report,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Option<ArrowFile>> {
    let layout = match footer(&file) {
        Ok(layout) => layout,
        Err(error) => {
            let expected = "a well-formed Arrow footer";
            return report.broken_by(error, "A01", name, "footer", expected).map(|()| None);
        }
    };
    let mut is_right = true;
    if let Err(error) =
        read(&file, layout.head_range()).and_then(|head| decode_head(&head, &layout.schema))
    {
        report.broken_by(error, "A02", name, "head", "the footer's schema")?;
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
        match batch(&file, place, &layout, number, name, expected.body, report)? {
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
) -> Result<Option<BatchLayout>> {
    let at = format!("batch {number}");
    let decoded = read(file, place.message_range())
        .and_then(|message| decode_batch_header(&message, place, &layout.schema));
    let batch = match decoded {
        Ok(batch) => batch,
        Err(error) => {
            let expected = "a well-formed record batch";
            return report.broken_by(error, "A04", name, at, expected).map(|()| None);
        }
    };
    if let Some(buffer) = batch.buffers.iter().find(|b| b.start % ALIGNMENT as u64 != 0) {
        let found = format!("a buffer at byte {}", buffer.start);
        report.broken("A04", name, at.as_str(), "buffers at multiples of 64 bytes", found);
    }
    if batch.compression != body {
        let (expected, found) = (format!("{body:?}"), format!("{:?}", batch.compression));
        report.broken("A06", name, at, expected, found);
        return Ok(None);
    }
    Ok(Some(batch))
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
    let mut bytes = reserved(len)?;
    bytes.resize(len as usize, 0);
    file.read_at(range.start, &mut bytes)?;
    Ok(bytes)
}

/// An empty vector with room for `len` bytes. A file may be larger than memory: refused, not
/// ended by an abort.
pub(super) fn reserved(len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let room = usize::try_from(len).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(room).map_err(|_| {
        Error::new(Kind::Exhausted, format!("no memory for {len} bytes; free some and retry"))
    })?;
    Ok(bytes)
}

/// Most bytes that the compressed buffers of one batch may stand for: what other recorded sizes
/// justify. It counts down as columns are read.
pub(super) struct RawBytesLeft {
    /// All stored columns together: their cells stand uncompressed in `metadata.arrow`.
    pub(super) columns: u64,
    /// The payloads.
    pub(super) payload: u64,
}

impl RawBytesLeft {
    /// Most bytes of buffer `role` of column `column` of `columns_count`.
    fn of(&self, column: usize, last: usize, role: usize, rows: u64) -> u64 {
        // Other writers pad buffers to 64 bytes before they compress them.
        let most = match (column, role) {
            _ if role == 0 => rows.div_ceil(8),
            (0, _) => rows.saturating_mul(8),
            (column, 1) if column == last => rows.saturating_add(1).saturating_mul(8),
            (column, _) if column == last => self.payload,
            _ => self.columns,
        };
        most.saturating_add(64)
    }

    fn take(&mut self, column: usize, last: usize, role: usize, bytes: u64) {
        if column > 0 && column < last && role > 0 {
            self.columns = self.columns.saturating_sub(bytes);
        }
    }
}

impl ArrowFile {
    /// The arrays of batch `number`, fully validated, and the bytes read for them. Compressed
    /// buffers that claim more than is `left` are refused before memory is taken for them.
    pub(super) fn arrays(
        &self,
        number: usize,
        mut left: RawBytesLeft,
    ) -> Result<(Vec<ArrayRef>, u64)> {
        let batch = self
            .batches
            .get(number)
            .ok_or_else(|| Error::internal(format!("there is no batch {number}")))?;
        let mut bytes_read = 0;
        let fields = self.layout.schema.fields();
        let last = fields.len().saturating_sub(1);
        let mut arrays = Vec::with_capacity(fields.len());
        for (column, field) in fields.iter().enumerate() {
            let ranges = batch.column_buffers(&self.layout.schema, column);
            let mut buffers = Vec::with_capacity(ranges.len());
            for (role, range) in ranges.iter().enumerate() {
                let stored = range.end - range.start;
                bytes_read += stored;
                let bytes = read(&self.file, range.clone())?;
                let raw = match batch.compression {
                    BodyKind::None => bytes,
                    kind => {
                        let most = left.of(column, last, role, batch.rows);
                        let most = most.min(kind.algo().raw_bytes_max(stored));
                        decompress_buffer(&bytes, kind, most)
                            .map_err(|e| e.within(format!("column {:?}", field.name())))?
                    }
                };
                left.take(column, last, role, raw.len() as u64);
                buffers.push(Buffer::from_vec(raw));
            }
            let nulls = batch.nulls.get(column).copied().unwrap_or(0);
            let array =
                build_array(field.data_type(), batch.rows, nulls, buffers, Validation::Full)
                    .map_err(|e| e.within(format!("column {:?}", field.name())))?;
            arrays.push(array);
        }
        Ok((arrays, bytes_read))
    }
}
