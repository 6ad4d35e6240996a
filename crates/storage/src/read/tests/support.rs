//! Caches to read: written by the writer, or forged with matching digests.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int64Array, LargeBinaryArray, LargeStringArray, NullArray, RecordBatch,
    TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow_schema::Schema;
use tempfile::TempDir;

use crate::Result;
use crate::format::codec::{Algo, Compression, Scope};
use crate::format::digest::{FileHasher, encode_digests_header, to_hex};
use crate::format::manifest::{DIGESTS_FILE, MANIFEST_FILE, Manifest};
use crate::format::schema::StoredSchema;
use crate::read::{Cache, Fetcher, OpenOptions, PayloadPlace};
use crate::store::{IoMode, LocalStore};
use crate::write::{CacheWriter, Encoder, GroupLimits, Identity, Ingest, WriteMode, WriteOptions};

pub const MAPPED: OpenOptions = OpenOptions { verify: true, io: IoMode::Mmap };
pub const COPIED: OpenOptions = OpenOptions { verify: true, io: IoMode::Pread };

/// What a cache must give back.
pub struct Written {
    pub directory: TempDir,
    pub columns: RecordBatch,
    pub payloads: Vec<Vec<u8>>,
    pub dictionary: Option<Vec<u8>>,
}

/// How to write it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rows: usize,
    pub payload_bytes: usize,
    pub batch_rows: usize,
    pub shard_bytes: u64,
    pub compression: Compression,
    pub dictionary: bool,
    /// Three columns in place of one of every type, for tests that visit every byte.
    pub narrow: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rows: 40,
            payload_bytes: 30,
            batch_rows: 7,
            shard_bytes: 1 << 20,
            compression: Compression::default(),
            dictionary: false,
            narrow: false,
        }
    }
}

pub fn compression(algo: Algo, scope: Scope) -> Compression {
    Compression { algo, scope, ..Compression::default() }
}

impl Written {
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("train")
    }

    pub fn open(&self, options: &OpenOptions) -> Cache {
        Cache::open(self.path(), options).unwrap()
    }

    /// Reads everything by every way and compares it; an error is the reader's.
    pub fn check(&self, cache: &Cache) -> Result<()> {
        self.check_payloads(cache)?;
        self.check_gathered(cache)?;
        let batches = cache.metadata_batches()?;
        let found = arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap();
        assert_eq!(found.columns(), self.columns.columns());
        self.check_shards(cache)
    }

    pub fn check_payloads(&self, cache: &Cache) -> Result<()> {
        let mut fetcher = Fetcher::new();
        // Every row twice, in an order that jumps between shards and batches.
        let rows: Vec<u64> = (0..2 * self.payloads.len() as u64)
            .map(|i| i * 13 % self.payloads.len() as u64)
            .collect();
        let (mut places, mut found) = (Vec::new(), Vec::new());
        cache.locate_many(&rows, &mut places)?;
        cache.fetch(&places, &mut fetcher, &mut found)?;
        check_unchanged(cache, &places)?;
        assert_eq!(found.len(), rows.len());
        for (payload, &row) in found.iter().zip(&rows) {
            assert_eq!(payload.as_view(), self.payloads[row as usize], "row {row}");
        }
        for row in 0..self.payloads.len() as u64 {
            let payload = cache.payload(&cache.locate(row)?, &mut fetcher)?;
            assert_eq!(payload.as_view(), self.payloads[row as usize]);
        }
        Ok(())
    }

    pub fn check_gathered(&self, cache: &Cache) -> Result<()> {
        let total = self.payloads.len() as u64;
        let scattered: Vec<u64> = (0..total + 5).map(|i| i * 7 % total).collect();
        let in_order: Vec<u64> = (0..total).collect();
        let short_runs: Vec<u64> = (0..total + 5).map(|i| (i / 5 * 3 + i % 5) % total).collect();
        for rows in [scattered, in_order, short_runs] {
            let picks = UInt64Array::from(rows.clone());
            for (column, expected) in self.columns.columns().iter().enumerate() {
                let expected = arrow_select::take::take(expected, &picks, None).unwrap();
                assert_eq!(&cache.gather(column, &rows)?, &expected, "column {column}");
            }
        }
        Ok(())
    }

    fn check_shards(&self, cache: &Cache) -> Result<()> {
        let mut start = 0;
        for shard in 0..cache.shard_count() {
            let (schema, batches) = cache.shard_batches(shard)?;
            let found = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
            let rows = found.num_rows();
            let ids = UInt64Array::from_iter_values(start as u64..(start + rows) as u64);
            assert_eq!(found.column(0).as_ref(), &ids as &dyn arrow_array::Array);
            let stored = self.columns.slice(start, rows);
            assert_eq!(&found.columns()[1..=stored.num_columns()], stored.columns());
            if !cache.manifest().compression.is_per_payload() {
                let payloads =
                    LargeBinaryArray::from_iter_values(self.payloads[start..start + rows].iter());
                assert_eq!(found.columns().last().unwrap().to_data(), payloads.into());
            }
            start += rows;
        }
        assert_eq!(start, self.payloads.len());
        Ok(())
    }
}

/// What readers ask before they hand anything on.
pub fn check_unchanged(cache: &Cache, places: &[PayloadPlace]) -> Result<()> {
    cache.check_tables_unchanged()?;
    places.iter().try_for_each(|place| cache.check_shard_unchanged(place.shard))
}

/// One column of every stored type, nulls in most of them.
fn columns(rows: usize) -> RecordBatch {
    let some = |i: &usize, step: usize| i % step != 1;
    let ints = |step| (0..rows).map(move |i| some(&i, step).then_some(i as i64 - 5));
    let texts = (0..rows).map(|i| some(&i, 4).then(|| "ä".repeat(i % 6)));
    let bytes = (0..rows).map(|i| some(&i, 5).then(|| vec![i as u8 ^ 0xf0; i % 9]));
    let named: Vec<(&str, ArrayRef)> = vec![
        ("label", Arc::new(ints(3).collect::<Int64Array>())),
        ("whole", Arc::new(ints(usize::MAX).map(|v| v.unwrap_or(0)).collect::<Int64Array>())),
        ("nothing", Arc::new(NullArray::new(rows))),
        (
            "flag",
            Arc::new(
                (0..rows).map(|i| some(&i, 4).then_some(i % 3 == 0)).collect::<BooleanArray>(),
            ),
        ),
        ("tiny", Arc::new(ints(4).map(|v| v.map(|v| v as i8)).collect::<Int8Array>())),
        ("short", Arc::new(ints(5).map(|v| v.map(|v| v as i16)).collect::<Int16Array>())),
        ("count", Arc::new(ints(6).map(|v| v.map(|v| v as u32)).collect::<UInt32Array>())),
        ("huge", Arc::new(ints(6).map(|v| v.map(|v| v as u64)).collect::<UInt64Array>())),
        ("single", Arc::new(ints(7).map(|v| v.map(|v| v as f32)).collect::<Float32Array>())),
        ("score", Arc::new(ints(7).map(|v| v.map(|v| v as f64 / 7.0)).collect::<Float64Array>())),
        ("day", Arc::new(ints(8).map(|v| v.map(|v| v as i32)).collect::<Date32Array>())),
        ("split", Arc::new(texts.collect::<LargeStringArray>())),
        ("raw", Arc::new(bytes.collect::<LargeBinaryArray>())),
        (
            "at",
            Arc::new(ints(9).collect::<TimestampMicrosecondArray>().with_timezone("Europe/Berlin")),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(named.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

/// Payloads of different lengths, empty ones among them, that compress a little.
fn payloads(plan: &Plan) -> Vec<Vec<u8>> {
    let bytes = plan.payload_bytes;
    let len = |i: usize| if i.is_multiple_of(11) { 0 } else { bytes / 2 + i * 7 % bytes.max(1) };
    let byte =
        |i: usize, j: usize| (i as u32 * 31 + (j / 3) as u32).wrapping_mul(2_654_435_761) >> 27;
    (0..plan.rows).map(|i| (0..len(i)).map(|j| byte(i, j) as u8).collect()).collect()
}

/// Writes a cache as `plan` says.
pub fn write(plan: &Plan) -> Written {
    let (mut columns, payloads) = (columns(plan.rows), payloads(plan));
    if plan.narrow {
        let named = ["label", "flag", "split"].map(|name| columns.schema().index_of(name).unwrap());
        columns = columns.project(&named).unwrap();
    }
    let directory = TempDir::new().unwrap();
    let dictionary = plan.dictionary.then(|| {
        let lengths: Vec<_> = payloads.iter().map(Vec::len).collect();
        crate::format::codec::train_dictionary(&payloads.concat(), &lengths, 4096).unwrap().unwrap()
    });
    let written = Written { directory, columns, payloads, dictionary };
    write_into(&written, plan, WriteMode::New);
    written
}

/// Writes the contents of `written` once more, as `plan` says.
pub fn write_into(written: &Written, plan: &Plan, mode: WriteMode) {
    let dictionary = written.dictionary.clone();
    let limits = GroupLimits {
        batch_rows: plan.batch_rows,
        ..GroupLimits::new(plan.shard_bytes, &plan.compression)
    };
    let stored = StoredSchema::from_arrow(&written.columns.schema()).unwrap();
    let mut ingest = Ingest::new("train", Some(stored), limits);
    ingest.push_batch(&with_payload(&written.columns, &written.payloads)).unwrap();
    let (schema, groups) = ingest.finish().unwrap();
    let options = WriteOptions { max_shard_bytes: plan.shard_bytes, compression: plan.compression };
    let parent = written.directory.path();
    let store = Arc::new(LocalStore);
    let mut wait = |_: &Path| unreachable!("nobody else writes");
    let mut writer = CacheWriter::begin(store, parent, "train", options, mode, &mut wait).unwrap();
    writer.start(schema.clone(), dictionary.clone()).unwrap();
    let mut encoder = Encoder::new(&schema, &plan.compression, dictionary.map(Arc::from)).unwrap();
    for group in groups {
        writer.commit(encoder.encode(group).unwrap()).unwrap();
    }
    writer.publish(Identity::default()).unwrap();
}

fn with_payload(columns: &RecordBatch, payloads: &[Vec<u8>]) -> RecordBatch {
    let mut fields = columns.schema().fields().to_vec();
    let payload = LargeBinaryArray::from_iter_values(payloads.iter());
    let field = arrow_schema::Field::new("payload", arrow_schema::DataType::LargeBinary, false);
    fields.push(Arc::new(field));
    let mut arrays = columns.columns().to_vec();
    arrays.push(Arc::new(payload));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Replaces the contents of a file in place. `fs::write` would cut it to nothing first, and some
/// file systems then wait for the disk at every close.
pub fn overwrite(path: &Path, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

/// Rewrites digests and manifest to fit the files as they are now, after `change`.
pub fn forge(cache: &Path, change: impl FnOnce(&mut Manifest)) {
    let bytes = fs::read(cache.join(MANIFEST_FILE)).unwrap();
    let mut manifest = Manifest::decode(&bytes).unwrap();
    change(&mut manifest);
    let mut digests = encode_digests_header().to_vec();
    let digest = |path: &str| {
        let mut hasher = FileHasher::default();
        hasher.update(&fs::read(cache.join(path)).unwrap());
        hasher.finish()
    };
    let mut seal = |path: &str, size: &mut u64, blake3: &mut String| {
        let digest = digest(path);
        digest.leaves.iter().for_each(|leaf| digests.extend_from_slice(leaf));
        (*size, *blake3) = (digest.size_bytes, to_hex(&digest.root));
    };
    for shard in &mut manifest.shards {
        seal(&shard.path.clone(), &mut shard.size_bytes, &mut shard.blake3);
    }
    let others = [Some(&mut manifest.metadata), Some(&mut manifest.index)];
    for file in others.into_iter().chain([manifest.dictionary.as_mut()]).flatten() {
        seal(&file.path.clone(), &mut file.size_bytes, &mut file.blake3);
    }
    overwrite(&cache.join(DIGESTS_FILE), &digests);
    let all = digest(DIGESTS_FILE);
    manifest.digests.size_bytes = all.size_bytes;
    manifest.digests.blake3 = to_hex(&all.root);
    overwrite(&cache.join(MANIFEST_FILE), &manifest.encode().unwrap());
}

/// Changes the bytes of one file and forges the rest to fit.
pub fn forge_file(cache: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(cache.join(name)).unwrap();
    change(&mut bytes);
    overwrite(&cache.join(name), &bytes);
    forge(cache, |_| {});
}
