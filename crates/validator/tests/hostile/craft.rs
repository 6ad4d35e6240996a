//! Good small caches, taken apart and put together again with right digests around wrong bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_schema::Schema;
use dataset_rt_storage::format::codec::{Algo, Compression, Scope, train_dictionary};
use dataset_rt_storage::format::digest::{Digest, FileHasher, encode_digests_header, to_hex};
use dataset_rt_storage::format::index::{INDEX_RECORD_BYTES, IndexRecord, record_offset};
use dataset_rt_storage::format::ipc::{
    BodyCompression, Validation, build_array, decode_batch_header, decode_footer,
    decompress_buffer, encode_batch, file_head, file_tail, footer_range,
};
use dataset_rt_storage::format::manifest::{DIGESTS_FILE, INDEX_FILE, MANIFEST_FILE, Manifest};
use dataset_rt_storage::store::LocalStore;
use dataset_rt_storage::write::{
    CacheWriter, Cell, Encoder, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use dataset_rt_storage::{Error, Result};
use dataset_rt_validator::{Level, Report, verify_cache};
use tempfile::TempDir;

pub const ROWS: usize = 40;
/// Small enough for several shards with every codec.
const MAX_SHARD_BYTES: u64 = 6000;

/// A cache on disk and its manifest, both to be tampered with.
pub struct Crafted {
    _dir: TempDir,
    pub path: PathBuf,
    pub manifest: Manifest,
}

/// An Arrow file as its parts.
pub struct ArrowParts {
    pub schema: Schema,
    pub batches: Vec<Vec<ArrayRef>>,
}

pub fn codec(algo: Algo, scope: Scope, dictionary_bytes: u32) -> Compression {
    Compression { algo, scope, dictionary_bytes, level: None }
}

pub fn codecs() -> [Compression; 6] {
    [
        Compression::default(),
        codec(Algo::Lz4, Scope::Payload, 0),
        codec(Algo::Zstd, Scope::Payload, 0),
        codec(Algo::Zstd, Scope::Payload, 1024),
        codec(Algo::Lz4, Scope::Buffer, 0),
        codec(Algo::Zstd, Scope::Buffer, 0),
    ]
}

/// Payloads of many lengths, one past a block, one empty.
fn payload(row: usize, long: usize) -> Vec<u8> {
    let len = match row {
        3 => long,
        4 => 0,
        _ => 20 + row % 7,
    };
    (0..len).map(|i| (i * 31 + row * 7 + i / 251) as u8).collect()
}

fn fill(ingest: &mut Ingest, rows: usize, long: usize) -> Result<()> {
    for row in 0..rows {
        ingest.push_payload(&payload(row, long))?;
        let text = format!("text {row}");
        ingest.cell(0, "label", Cell::Int(row as i64 * 3))?;
        ingest.cell(1, "split", if row % 5 == 0 { Cell::Null } else { Cell::Str(&text) })?;
        ingest.cell(2, "score", Cell::Float(row as f64 / 3.0))?;
        ingest.end_row()?;
    }
    Ok(())
}

impl Crafted {
    /// A cache of several shards and batches; one file has more than one block.
    pub fn new(compression: Compression) -> Self {
        Self::with_rows(compression, ROWS, 70_000)
    }

    /// A few rows in one batch: small enough to try every byte.
    pub fn small(compression: Compression) -> Self {
        Self::with_rows(compression, 6, 40)
    }

    fn with_rows(compression: Compression, rows: usize, long: usize) -> Self {
        let dir = TempDir::new().unwrap();
        let options = WriteOptions { max_shard_bytes: MAX_SHARD_BYTES, compression };
        let mut busy = |path: &Path| Err(Error::conflict(path.display().to_string()));
        let mut writer = CacheWriter::begin(
            Arc::new(LocalStore),
            dir.path(),
            "train",
            options,
            WriteMode::New,
            &mut busy,
        )
        .unwrap();
        let limits =
            GroupLimits { batch_rows: 8, ..GroupLimits::new(MAX_SHARD_BYTES, &compression) };
        let mut ingest = Ingest::new("train", None, limits);
        fill(&mut ingest, rows, long).unwrap();
        let (schema, groups) = ingest.finish().unwrap();
        let dictionary = (compression.dictionary_bytes > 0).then(|| {
            let samples: Vec<Vec<u8>> = (0..ROWS).map(|row| payload(row, 200)).collect();
            let lengths: Vec<usize> = samples.iter().map(Vec::len).collect();
            train_dictionary(&samples.concat(), &lengths, 1024).unwrap()
        });
        let dictionary = dictionary.flatten();
        writer.start(schema.clone(), dictionary.clone()).unwrap();
        let mut encoder = Encoder::new(&schema, &compression, dictionary.map(Arc::from)).unwrap();
        for group in groups {
            writer.commit(encoder.encode(group).unwrap()).unwrap();
        }
        let path = writer.publish(Identity::default()).unwrap().path;
        let manifest = Manifest::decode(&fs::read(path.join(MANIFEST_FILE)).unwrap()).unwrap();
        Self { _dir: dir, path, manifest }
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path.join(name), bytes).unwrap();
    }

    /// Changes the bytes of one file.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(name);
        change(&mut bytes);
        self.write(name, &bytes);
    }

    /// Writes the manifest as it stands, with its own digest right.
    pub fn write_manifest(&mut self) {
        let bytes = self.manifest.encode().unwrap();
        self.write(MANIFEST_FILE, &bytes);
    }

    /// Makes every size and digest right again.
    pub fn seal(&mut self) {
        let names: Vec<String> =
            self.manifest.verified_files().map(|file| file.path.to_owned()).collect();
        let mut leaves: Vec<Digest> = Vec::new();
        let mut found = BTreeMap::new();
        for name in &names {
            let digest = digest_of(&self.read(name));
            leaves.extend_from_slice(&digest.1);
            found.insert(name.clone(), digest.0);
        }
        let mut digests = encode_digests_header().to_vec();
        digests.extend(leaves.iter().flatten());
        self.write(DIGESTS_FILE, &digests);
        found.insert(DIGESTS_FILE.to_owned(), digest_of(&digests).0);
        let manifest = &mut self.manifest;
        for shard in &mut manifest.shards {
            (shard.size_bytes, shard.blake3) = found[&shard.path].clone();
        }
        let others = [&mut manifest.metadata, &mut manifest.index, &mut manifest.digests];
        for file in others.into_iter().chain(manifest.dictionary.as_mut()) {
            (file.size_bytes, file.blake3) = found[&file.path].clone();
        }
        self.write_manifest();
    }

    /// Takes an Arrow file apart.
    pub fn arrow(&self, name: &str) -> ArrowParts {
        let bytes = self.read(name);
        let size = bytes.len() as u64;
        let range = footer_range(size, &bytes[bytes.len() - 10..]).unwrap();
        let at = |range: std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
        let layout = decode_footer(at(range), size).unwrap();
        let array = |place, column: usize| {
            let batch = decode_batch_header(at(place_range(place)), place, &layout.schema).unwrap();
            let ranges = batch.column_buffers(&layout.schema, column);
            let buffers = ranges.iter().map(|range| {
                let raw = decompress_buffer(at(range.clone()), batch.compression, u64::MAX);
                Buffer::from_vec(raw.unwrap())
            });
            let data_type = layout.schema.field(column).data_type();
            let nulls = batch.nulls[column];
            build_array(data_type, batch.rows, nulls, buffers.collect(), Validation::Full).unwrap()
        };
        let batches = layout.batches.iter();
        let columns = layout.schema.fields().len();
        let batches = batches.map(|place| (0..columns).map(|c| array(place, c)).collect());
        ArrowParts { batches: batches.collect(), schema: layout.schema.clone() }
    }

    /// Writes an Arrow file whose head, batches and footer may disagree.
    pub fn put_arrow(&self, name: &str, head: &Schema, parts: &ArrowParts, how: Layout) {
        let mut bytes = file_head(head).unwrap();
        let mut places = Vec::new();
        for columns in &parts.batches {
            let schema = how.batch_schema.as_ref().unwrap_or(&parts.schema);
            let batch = encode_batch(schema, columns, how.body).unwrap();
            places.push(batch.place_at(bytes.len() as u64));
            batch.pieces().for_each(|piece| bytes.extend_from_slice(piece));
            bytes.resize(bytes.len() + how.gap, 0);
        }
        bytes.extend(file_tail(&parts.schema, &places).unwrap());
        self.write(name, &bytes);
    }

    pub fn record(&self, row: u64) -> IndexRecord {
        let bytes = self.read(INDEX_FILE);
        let start = record_offset(row) as usize;
        let record = &bytes[start..start + INDEX_RECORD_BYTES as usize];
        IndexRecord::decode(self.manifest.index_kind(), record.try_into().unwrap()).unwrap()
    }

    pub fn put_record(&self, row: u64, record: IndexRecord) {
        let start = record_offset(row) as usize;
        self.change(INDEX_FILE, |bytes| bytes[start..start + 16].copy_from_slice(&record.encode()));
    }

    pub fn verify(&self, level: Level) -> Report {
        verify_cache(&self.path, level).unwrap()
    }
}

/// How [`Crafted::put_arrow`] lays out a file.
pub struct Layout {
    pub batch_schema: Option<Schema>,
    pub body: BodyCompression,
    pub gap: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self { batch_schema: None, body: BodyCompression::None, gap: 0 }
    }
}

fn place_range(place: &dataset_rt_storage::format::ipc::BatchPlace) -> std::ops::Range<u64> {
    place.message_range()
}

fn digest_of(bytes: &[u8]) -> ((u64, String), Vec<Digest>) {
    let mut hasher = FileHasher::default();
    hasher.update(bytes);
    let digest = hasher.finish();
    ((digest.size_bytes, to_hex(&digest.root)), digest.leaves)
}
