//! Small valid caches, made by our own writer, that inputs change. Knows no target.

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow_schema::TimeUnit;
use dataset_rt_storage::format::codec::{Algo, Compression, Scope, train_dictionary};
use dataset_rt_storage::format::manifest::{DIGESTS_FILE, MANIFEST_FILE, Manifest};
use dataset_rt_storage::format::schema::{ColumnType, StoredColumn, StoredSchema};
use dataset_rt_storage::store::LocalStore;
use dataset_rt_storage::write::{
    CacheWriter, Cell, Encoder, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use dataset_rt_storage::{Error, Result};

use crate::seal::Files;

/// A valid cache in memory.
pub struct Base {
    pub manifest: Manifest,
    pub files: Files,
    pub payloads: Vec<Vec<u8>>,
}

/// One for each form of compression, each of several batches; then one with a file of more than
/// one block, and one without stored columns.
pub static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let codec =
        |algo, scope, dictionary_bytes| Compression { algo, scope, dictionary_bytes, level: None };
    let mut bases = Vec::new();
    for compression in [
        Compression::default(),
        codec(Algo::Lz4, Scope::Payload, 0),
        codec(Algo::Zstd, Scope::Payload, 0),
        codec(Algo::Zstd, Scope::Payload, 1024),
        codec(Algo::Lz4, Scope::Buffer, 0),
        codec(Algo::Zstd, Scope::Buffer, 0),
    ] {
        bases.push(make(compression, 9, 90, true));
    }
    bases.push(make(Compression::default(), 3, 70_000, true));
    bases.push(make(Compression::default(), 5, 30, false));
    bases
});

/// Text that compresses; one payload is longer, one empty.
pub fn payload(row: usize, long: usize) -> Vec<u8> {
    let len = match row {
        1 => long,
        2 => 0,
        _ => 30 + row,
    };
    (0..len).map(|i| b"abcabcabd"[(i + row + i / 100) % 9]).collect()
}

fn make(compression: Compression, rows: usize, long: usize, has_columns: bool) -> Base {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let payloads: Vec<Vec<u8>> = (0..rows).map(|row| payload(row, long)).collect();
    write(dir.path(), compression, &payloads, has_columns).expect("a valid cache");
    let path = dir.path().join("base");
    let read = |name: &str| fs::read(path.join(name)).expect("a file of the cache");
    let manifest = Manifest::decode(&read(MANIFEST_FILE)).expect("a valid manifest");
    let names = manifest.verified_files().map(|file| file.path.to_owned());
    let files = names.chain([DIGESTS_FILE.to_owned()]).map(|name| (name.clone(), read(&name)));
    Base { files: files.collect(), payloads, manifest }
}

fn write(
    directory: &Path,
    compression: Compression,
    payloads: &[Vec<u8>],
    has_columns: bool,
) -> Result<()> {
    let max_shard_bytes = 3000;
    let mut busy = |path: &Path| Err(Error::conflict(path.display().to_string()));
    let mut writer = CacheWriter::begin(
        Arc::new(LocalStore),
        directory,
        "base",
        WriteOptions { max_shard_bytes, compression },
        WriteMode::New,
        &mut busy,
    )?;
    let limits = GroupLimits { batch_rows: 4, ..GroupLimits::new(max_shard_bytes, &compression) };
    let mut ingest = Ingest::new("base", Some(schema(has_columns)?), limits);
    for (row, payload) in payloads.iter().enumerate() {
        ingest.push_payload(payload)?;
        if has_columns {
            push_cells(&mut ingest, row)?;
        }
        ingest.end_row()?;
    }
    let (schema, groups) = ingest.finish()?;
    let dictionary = match compression.dictionary_bytes {
        0 => None,
        bytes => {
            let samples: Vec<Vec<u8>> = (0..60).map(|row| payload(row, 200)).collect();
            let lengths: Vec<usize> = samples.iter().map(Vec::len).collect();
            train_dictionary(&samples.concat(), &lengths, bytes as usize)?
        }
    };
    writer.start(schema.clone(), dictionary.clone())?;
    let mut encoder = Encoder::new(&schema, &compression, dictionary.map(Arc::from))?;
    for group in groups {
        writer.commit(encoder.encode(group)?)?;
    }
    writer.publish(Identity::default()).map(drop)
}

fn schema(has_columns: bool) -> Result<StoredSchema> {
    let columns = [
        ("label", ColumnType::Int8, false),
        ("split", ColumnType::Utf8, true),
        ("score", ColumnType::Float64, true),
        ("kept", ColumnType::Bool, true),
        ("day", ColumnType::Date32, true),
        ("at", ColumnType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))), true),
        ("nothing", ColumnType::Null, true),
    ];
    let columns =
        columns.into_iter().filter(|_| has_columns).map(|(name, column_type, nullable)| {
            StoredColumn { name: name.to_owned(), column_type, nullable }
        });
    StoredSchema::new(columns.collect())
}

fn push_cells(ingest: &mut Ingest, row: usize) -> Result<()> {
    let text = format!("text {row}");
    let cells = [
        ("label", Cell::Int(row as i64)),
        ("split", if row.is_multiple_of(3) { Cell::Null } else { Cell::Str(&text) }),
        ("score", Cell::Float(row as f64 / 3.0)),
        ("kept", if row == 1 { Cell::Null } else { Cell::Bool(row.is_multiple_of(2)) }),
        ("day", Cell::Date(row as i32)),
        ("at", Cell::Timestamp { micros: row as i64, zone: Some("UTC") }),
        ("nothing", Cell::Null),
    ];
    cells.into_iter().enumerate().try_for_each(|(i, (key, cell))| ingest.cell(i, key, cell))
}
