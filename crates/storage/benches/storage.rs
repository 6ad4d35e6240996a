//! What reading costs below the level of samples: `make bench-micro`.

#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use dataset_rt_storage::Error;
use dataset_rt_storage::format::codec::{Algo, Compression, Compressor, Decompressor};
use dataset_rt_storage::format::digest::{FileHasher, block_digest, leaves_match};
use dataset_rt_storage::read::{Cache, Fetcher, OpenOptions};
use dataset_rt_storage::store::LocalStore;
use dataset_rt_storage::write::{
    CacheWriter, Cell, Encoder, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use tempfile::TempDir;

/// Few rows where nothing is measured but that it runs.
const ROWS: u64 = if cfg!(debug_assertions) { 1_000 } else { 200_000 };
/// Rows gathered or located at once, as blocks of a stream are.
const BLOCK: u64 = 256;
const BLOCK_BYTES: usize = 64 * 1024;

fn main() {
    divan::main();
    // Statics are never dropped.
    if let Some((directory, _)) = CACHE.get() {
        std::fs::remove_dir_all(directory.path()).unwrap();
    }
}

static CACHE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();

/// A cache of payloads of 100 bytes and three columns.
fn cache() -> &'static PathBuf {
    let (_, path) = CACHE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = write(&directory);
        (directory, path)
    });
    path
}

fn write(directory: &TempDir) -> PathBuf {
    let options = WriteOptions { max_shard_bytes: 1 << 28, compression: Compression::default() };
    let mut waiting = |_: &_| Err(Error::conflict("nobody else writes here"));
    let mut writer = CacheWriter::begin(
        Arc::new(LocalStore),
        directory.path(),
        "rows",
        options,
        WriteMode::New,
        &mut waiting,
    )
    .unwrap();
    let limits = GroupLimits::new(options.max_shard_bytes, &options.compression);
    let mut ingest = Ingest::new("rows", None, limits);
    for row in 0..ROWS {
        ingest.push_payload(&row.to_le_bytes().repeat(13)[..100]).unwrap();
        ingest.cell(0, "label", Cell::Int((row % 10) as i64)).unwrap();
        ingest.cell(1, "score", Cell::Float(row as f64 * 0.5)).unwrap();
        ingest.cell(2, "split", Cell::Str("train")).unwrap();
        ingest.end_row().unwrap();
    }
    let (schema, groups) = ingest.finish().unwrap();
    writer.start(schema.clone(), None).unwrap();
    let mut encoder = Encoder::new(&schema, &options.compression, None).unwrap();
    for group in groups {
        writer.commit(encoder.encode(group).unwrap()).unwrap();
    }
    writer.publish(Identity::default()).unwrap().path
}

fn open() -> Cache {
    Cache::open(cache(), &OpenOptions::default()).unwrap()
}

/// Rows all over the cache.
fn scattered() -> Vec<u64> {
    (0..BLOCK).map(|i| i * 7_919_317 % ROWS).collect()
}

/// Text-like: compresses about four times.
fn payload() -> Vec<u8> {
    (0..4096_u32)
        .flat_map(|i| (i / 4).wrapping_mul(2_654_435_761).to_le_bytes())
        .take(4096)
        .collect()
}

#[divan::bench(args = [Algo::Lz4, Algo::Zstd])]
fn decompress_4_kib(bencher: Bencher<'_, '_>, algo: Algo) {
    let compression = Compression { algo, ..Compression::default() };
    let raw = payload();
    let mut frame = Vec::new();
    Compressor::new(&compression, None).unwrap().compress(&raw, &mut frame).unwrap();
    let mut decompressor = Decompressor::new(&compression, None).unwrap();
    let mut out = vec![0; raw.len()];
    bencher
        .counter(BytesCount::new(raw.len()))
        .bench_local(|| decompressor.decompress(black_box(&frame), &mut out).unwrap());
}

#[divan::bench]
fn verify_a_block(bencher: Bencher<'_, '_>) {
    let block = vec![7; BLOCK_BYTES];
    let verify = || block_digest(3, black_box(&block), 10 * BLOCK_BYTES as u64);
    bencher.counter(BytesCount::new(BLOCK_BYTES)).bench_local(verify);
}

/// What the first touch of a shard of 256 MiB costs before any block of it is looked at.
#[divan::bench]
fn verify_4096_leaves(bencher: Bencher<'_, '_>) {
    let leaves: usize = if cfg!(debug_assertions) { 8 } else { 4096 };
    let mut hasher = FileHasher::default();
    (0..leaves).for_each(|_| hasher.update(&[7; BLOCK_BYTES]));
    let digest = hasher.finish();
    bencher.counter(ItemsCount::new(leaves)).bench_local(|| {
        assert!(leaves_match(black_box(&digest.leaves), digest.size_bytes, &digest.root));
    });
}

#[divan::bench]
fn open_a_cache() -> Cache {
    open()
}

#[divan::bench]
fn locate_256(bencher: Bencher<'_, '_>) {
    let (cache, rows) = (open(), scattered());
    let mut places = Vec::new();
    bencher.counter(ItemsCount::new(BLOCK)).bench_local(|| {
        places.clear();
        cache.locate_many(black_box(&rows), &mut places).unwrap();
    });
}

#[divan::bench(args = [0, 1, 2])]
fn gather_256(bencher: Bencher<'_, '_>, column: usize) {
    let (cache, rows) = (open(), scattered());
    let gather = || cache.gather(column, black_box(&rows)).unwrap();
    bencher.counter(ItemsCount::new(BLOCK)).bench_local(gather);
}

#[divan::bench]
fn fetch_256(bencher: Bencher<'_, '_>) {
    let cache = open();
    let (mut places, mut fetcher) = (Vec::new(), Fetcher::new());
    cache.locate_many(&scattered(), &mut places).unwrap();
    bencher.counter(ItemsCount::new(BLOCK)).bench_local(|| {
        let mut payloads = Vec::with_capacity(places.len());
        cache.fetch(black_box(&places), &mut fetcher, &mut payloads).unwrap();
        payloads
    });
}
