//! What a written cache promises: every row in every file, the same bytes again, one identity,
//! and nothing half done under a published name.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    CacheWriter, Cell, Encoder, GroupLimits, Identity, Ingest, PublishedCache, WriteMode,
    WriteOptions,
};
use crate::format::codec::{Algo, Compression, Decompressor, Scope, train_dictionary};
use crate::format::digest::{FileHasher, to_hex};
use crate::format::index::{IndexRecord, record_offset};
use crate::format::manifest::{MANIFEST_FILE, METADATA_FILE, Manifest};
use crate::format::schema::{ColumnType, StoredColumn, StoredSchema};
use crate::store::{LocalStore, Store};
use crate::{Error, Kind, Result};

#[cfg(feature = "faults")]
mod faults;
mod publish;
mod resume;

#[derive(Clone, Debug, PartialEq)]
struct Row {
    number: i64,
    text: Option<String>,
    payload: Vec<u8>,
}

fn rows(count: usize) -> Vec<Row> {
    (0..count)
        .map(|i| Row {
            number: i as i64 * 3,
            text: (i % 5 != 0).then(|| format!("text {i}")),
            // Compressible, of many lengths, and now and then empty.
            payload: format!("{{\"sample\": {i}}}").repeat(i % 7).into_bytes(),
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    compression: Compression,
    max_shard_bytes: u64,
    batch_rows: usize,
    mode: WriteMode,
}

const PLAN: Plan = Plan {
    compression: Compression {
        algo: Algo::None,
        level: None,
        scope: Scope::Payload,
        dictionary_bytes: 0,
    },
    max_shard_bytes: 1 << 20,
    batch_rows: 16,
    mode: WriteMode::New,
};

fn codec(algo: Algo, scope: Scope, dictionary_bytes: u32) -> Compression {
    Compression { algo, scope, dictionary_bytes, level: None }
}

fn codecs() -> [Compression; 6] {
    [
        PLAN.compression,
        codec(Algo::Lz4, Scope::Payload, 0),
        codec(Algo::Zstd, Scope::Payload, 0),
        codec(Algo::Zstd, Scope::Payload, 1024),
        codec(Algo::Lz4, Scope::Buffer, 0),
        codec(Algo::Zstd, Scope::Buffer, 0),
    ]
}

fn give_up(path: &Path) -> Result<()> {
    Err(Error::conflict(format!("{} is held", path.display())))
}

fn begin(store: Arc<dyn Store>, parent: &Path, plan: Plan) -> Result<CacheWriter> {
    let options =
        WriteOptions { max_shard_bytes: plan.max_shard_bytes, compression: plan.compression };
    CacheWriter::begin(store, parent, "train", options, plan.mode, &mut give_up)
}

fn limits(plan: Plan) -> GroupLimits {
    GroupLimits {
        batch_rows: plan.batch_rows,
        ..GroupLimits::new(plan.max_shard_bytes, &plan.compression)
    }
}

/// Declared, since tiny shards leave no time to wait for the first text.
fn declared() -> StoredSchema {
    let columns = [("number", ColumnType::Int64), ("text", ColumnType::Utf8)]
        .map(|(name, t)| StoredColumn { name: name.to_owned(), column_type: t, nullable: true });
    StoredSchema::new(columns.to_vec()).unwrap()
}

fn push(ingest: &mut Ingest, rows: &[Row]) -> Result<()> {
    for row in rows {
        ingest.push_payload(&row.payload)?;
        ingest.cell(0, "number", Cell::Int(row.number))?;
        ingest.cell(1, "text", row.text.as_deref().map_or(Cell::Null, Cell::Str))?;
        ingest.end_row()?;
    }
    Ok(())
}

fn trained(rows: &[Row], plan: Plan) -> Option<Vec<u8>> {
    let lengths: Vec<usize> = rows.iter().map(|r| r.payload.len()).collect();
    let samples: Vec<u8> = rows.iter().flat_map(|r| r.payload.clone()).collect();
    match plan.compression.dictionary_bytes {
        0 => None,
        size => train_dictionary(&samples, &lengths, size as usize).unwrap(),
    }
}

fn fill(mut writer: CacheWriter, rows: &[Row], plan: Plan) -> Result<PublishedCache> {
    let mut ingest = Ingest::new("train", Some(declared()), limits(plan));
    push(&mut ingest, rows)?;
    let (schema, groups) = ingest.finish()?;
    let dictionary = trained(rows, plan);
    writer.start(schema.clone(), dictionary.clone())?;
    let mut encoder = Encoder::new(&schema, &plan.compression, dictionary.map(Arc::from))?;
    for group in groups {
        writer.commit(encoder.encode(group)?)?;
    }
    writer.publish(Identity::default())
}

fn write(parent: &Path, rows: &[Row], plan: Plan) -> Result<PublishedCache> {
    fill(begin(Arc::new(LocalStore), parent, plan)?, rows, plan)
}

fn manifest(cache: &Path) -> Manifest {
    Manifest::decode(&fs::read(cache.join(MANIFEST_FILE)).unwrap()).unwrap()
}

fn batches(path: &Path) -> Vec<RecordBatch> {
    FileReader::try_new(fs::File::open(path).unwrap(), None).unwrap().map(|b| b.unwrap()).collect()
}

fn decompressor(cache: &Path, compression: &Compression) -> Option<Decompressor> {
    let dictionary = fs::read(cache.join("dictionary.bin")).ok();
    compression
        .is_per_payload()
        .then(|| Decompressor::new(compression, dictionary.as_deref()).unwrap())
}

fn unpacked(stored: &[u8], raw_len: usize, decompressor: &mut Option<Decompressor>) -> Vec<u8> {
    match decompressor {
        Some(decompressor) if !stored.is_empty() => {
            let mut out = vec![0; raw_len];
            decompressor.decompress(stored, &mut out).unwrap();
            out
        }
        _ => stored.to_vec(),
    }
}

/// Compares shards, metadata table and index of a cache with the rows, by Arrow's own reader.
fn assert_holds(cache: &Path, rows: &[Row]) {
    let manifest = manifest(cache);
    let mut decompressor = decompressor(cache, &manifest.compression);
    let index = fs::read(cache.join("index.bin")).unwrap();
    let mut row = 0;
    for shard in &manifest.shards {
        let file = fs::read(cache.join(&shard.path)).unwrap();
        let first = row;
        for (number, batch) in batches(&cache.join(&shard.path)).iter().enumerate() {
            let payload = batch.column(3).as_binary::<i64>();
            for i in 0..batch.num_rows() {
                let expected = &rows[row];
                assert_eq!(batch.column(0).as_primitive::<UInt64Type>().value(i), row as u64);
                assert_cells(&batch.project(&[1, 2]).unwrap(), i, expected);
                let raw_len = expected.payload.len();
                let stored = payload.value(i);
                assert_eq!(unpacked(stored, raw_len, &mut decompressor), expected.payload);
                let at = record_offset(row as u64) as usize;
                let record = index[at..at + 16].try_into().unwrap();
                let named = match IndexRecord::decode(manifest.index_kind(), record).unwrap() {
                    IndexRecord::FileRange { offset, stored_len, .. } => {
                        &file[offset as usize..offset as usize + stored_len as usize]
                    }
                    IndexRecord::BatchRange { offset, batch, raw_len } => {
                        assert_eq!(batch as usize, number);
                        &payload.value_data()[offset as usize..offset as usize + raw_len as usize]
                    }
                };
                assert_eq!(named, stored, "row {row}");
                row += 1;
            }
        }
        assert_eq!(shard.rows as usize, row - first);
    }
    assert_eq!((row, manifest.samples_total as usize), (rows.len(), rows.len()));
    assert_eq!(index.len() as u64, record_offset(rows.len() as u64));
    let mut row = 0;
    for batch in batches(&cache.join(METADATA_FILE)) {
        (0..batch.num_rows()).for_each(|i| assert_cells(&batch, i, &rows[row + i]));
        row += batch.num_rows();
    }
    assert_eq!(row, rows.len());
}

fn assert_cells(batch: &RecordBatch, i: usize, expected: &Row) {
    let numbers = batch.column(0).as_primitive::<arrow_array::types::Int64Type>();
    assert_eq!(numbers.value(i), expected.number);
    let texts = batch.column(1).as_string::<i64>();
    assert_eq!(texts.is_valid(i).then(|| texts.value(i)), expected.text.as_deref());
}

/// Every file of a cache, sorted by path.
fn files(cache: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![cache.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(cache).unwrap().to_owned();
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_row_is_in_shards_index_and_metadata_for_every_codec() {
    let rows = rows(300);
    for compression in codecs() {
        let parent = TempDir::new().unwrap();
        let plan = Plan { compression, max_shard_bytes: 6_000, ..PLAN };
        let cache = write(parent.path(), &rows, plan).unwrap();
        assert_holds(&cache.path, &rows);
        let manifest = manifest(&cache.path);
        assert!(manifest.shards.len() > 1, "{compression:?}");
        assert_eq!(manifest.dictionary.is_some(), compression.dictionary_bytes > 0);
    }
}

#[test]
fn the_manifest_has_size_and_digest_of_every_file_and_the_leaves_follow() {
    let parent = TempDir::new().unwrap();
    let mut rows = rows(300);
    rows[100].payload = (0..200_000_u32).map(|i| (i * 31 / 7) as u8).collect();
    let plan = Plan { max_shard_bytes: 150_000, ..PLAN };
    let cache = write(parent.path(), &rows, plan).unwrap();
    let manifest = manifest(&cache.path);
    let digests = fs::read(cache.path.join("digests.bin")).unwrap();
    assert_eq!(to_hex(blake3::hash(&digests).as_bytes()), manifest.digests.blake3);
    let mut expected = manifest.digest_layout().unwrap().header().to_vec();
    for file in manifest.verified_files() {
        let bytes = fs::read(cache.path.join(file.path)).unwrap();
        assert_eq!(bytes.len() as u64, file.size_bytes, "{}", file.path);
        assert_eq!(to_hex(blake3::hash(&bytes).as_bytes()), file.blake3, "{}", file.path);
        let mut hasher = FileHasher::default();
        hasher.update(&bytes);
        expected.extend(hasher.finish().leaves.concat());
    }
    assert!(expected.len() > 64, "no file has more than one block");
    assert_eq!(digests, expected);
}

#[test]
fn the_same_rows_and_options_give_the_same_bytes() {
    for compression in codecs() {
        let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let plan = Plan { compression, max_shard_bytes: 6_000, ..PLAN };
        let one = write(one.path(), &rows(200), plan).unwrap();
        let two = write(two.path(), &rows(200), plan).unwrap();
        assert_eq!(files(&one.path), files(&two.path), "{compression:?}");
    }
}

#[test]
fn metadata_batches_are_cut_by_the_rows_alone() {
    let rows: Vec<Row> = (0..24)
        .map(|i| Row { number: i, text: Some("x".repeat(3 << 20)), payload: vec![0; 10] })
        .collect();
    let written = [(1, 4 << 20), (2, 16 << 20), (24, 1 << 30)].map(|(batch_rows, bytes)| {
        let parent = TempDir::new().unwrap();
        let plan = Plan { batch_rows, max_shard_bytes: bytes, ..PLAN };
        let cache = write(parent.path(), &rows, plan).unwrap();
        let path = cache.path.join(METADATA_FILE);
        let sizes: Vec<usize> = batches(&path).iter().map(RecordBatch::num_rows).collect();
        assert_eq!(sizes, [10, 10, 4]);
        (fs::read(path).unwrap(), cache.cache_id)
    });
    assert!(written[0] == written[1] && written[1] == written[2]);
}

#[test]
fn a_source_without_columns_is_stored() {
    let parent = TempDir::new().unwrap();
    let mut ingest = Ingest::new("train", None, GroupLimits::new(1 << 20, &PLAN.compression));
    for payload in [b"a", b"b"] {
        ingest.push_payload(payload).unwrap();
        ingest.end_row().unwrap();
    }
    let (schema, groups) = ingest.finish().unwrap();
    let mut writer = begin(Arc::new(LocalStore), parent.path(), PLAN).unwrap();
    writer.start(schema.clone(), None).unwrap();
    let mut encoder = Encoder::new(&schema, &PLAN.compression, None).unwrap();
    for group in groups {
        writer.commit(encoder.encode(group).unwrap()).unwrap();
    }
    let cache = writer.publish(Identity::default()).unwrap();
    assert_eq!(manifest(&cache.path).samples_total, 2);
    assert_eq!(batches(&cache.path.join("shards/000000.arrow"))[0].num_rows(), 2);
}

#[test]
fn a_group_out_of_order_is_refused_and_ends_the_writer() {
    let parent = TempDir::new().unwrap();
    let limits = GroupLimits { batch_rows: 1, ..GroupLimits::new(1 << 20, &PLAN.compression) };
    let mut ingest = Ingest::new("train", None, limits);
    for _ in 0..2 {
        ingest.push_payload(b"x").unwrap();
        ingest.end_row().unwrap();
    }
    let (schema, groups) = ingest.finish().unwrap();
    let mut writer = begin(Arc::new(LocalStore), parent.path(), PLAN).unwrap();
    writer.start(schema.clone(), None).unwrap();
    let mut encoder = Encoder::new(&schema, &PLAN.compression, None).unwrap();
    let encoded = |encoder: &mut Encoder, i: usize| encoder.encode(groups[i].clone()).unwrap();
    let error = writer.commit(encoded(&mut encoder, 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(writer.commit(encoded(&mut encoder, 0)).is_err());
    assert!(writer.publish(Identity::default()).is_err());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_shard_is_no_larger_than_the_limit_unless_one_batch_is() {
    for max_shard_bytes in (3_000..6_000).step_by(97) {
        let parent = TempDir::new().unwrap();
        let cache =
            write(parent.path(), &rows(120), Plan { max_shard_bytes, batch_rows: 4, ..PLAN });
        for shard in manifest(&cache.unwrap().path).shards {
            let size = shard.size_bytes;
            assert!(size <= max_shard_bytes || shard.rows <= 4, "{size} of {max_shard_bytes}");
        }
    }
}

#[test]
fn a_writer_without_samples_publishes_nothing() {
    let parent = TempDir::new().unwrap();
    let mut writer = begin(Arc::new(LocalStore), parent.path(), PLAN).unwrap();
    writer.start(StoredSchema::default(), None).unwrap();
    assert!(writer.publish(Identity::default()).is_err());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn identity_and_metadata_depend_on_the_rows_alone(
        lens in prop::collection::vec((any::<i64>(), any::<Option<String>>(), 0_usize..300), 1..60),
        codec in 0_usize..6,
        shard_bytes in 1_u64..20_000,
        batch_rows in 1_usize..20,
    ) {
        let rows: Vec<Row> = lens
            .into_iter()
            .map(|(number, text, len)| Row { number, text, payload: vec![b'p'; len] })
            .collect();
        let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut compression = codecs()[codec];
        // A dictionary cannot be trained on so few bytes.
        compression.dictionary_bytes = 0;
        let plan = Plan { compression, max_shard_bytes: shard_bytes, batch_rows, ..PLAN };
        let plain = write(one.path(), &rows, PLAN).unwrap();
        let other = write(two.path(), &rows, plan).unwrap();
        assert_holds(&other.path, &rows);
        prop_assert_eq!(plain.cache_id, other.cache_id);
        prop_assert_eq!(
            manifest(&plain.path).content_blake3,
            manifest(&other.path).content_blake3
        );
        prop_assert_eq!(
            fs::read(plain.path.join(METADATA_FILE)).unwrap(),
            fs::read(other.path.join(METADATA_FILE)).unwrap()
        );
    }
}
