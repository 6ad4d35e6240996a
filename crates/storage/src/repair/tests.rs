//! Damage, and what is left afterwards: survivors are the originals, exactly the others are lost.

mod blocks;
mod exhaustive;
mod hostile;
#[cfg(feature = "faults")]
mod in_place;

use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch, UInt64Array};

use super::*;
use crate::Result;
use crate::format::codec::{Algo, Compression, Scope};
use crate::format::manifest::Manifest;
use crate::read::tests::support::{Plan, Written, compression, overwrite, write};

/// One of each way to store payloads, a dictionary among them.
fn compressions() -> Vec<(Compression, bool)> {
    let zstd = compression(Algo::Zstd, Scope::Payload);
    vec![
        (Compression::default(), false),
        (compression(Algo::Lz4, Scope::Payload), false),
        (zstd, false),
        (Compression { dictionary_bytes: 4096, ..zstd }, true),
        (compression(Algo::Zstd, Scope::Buffer), false),
        (compression(Algo::Lz4, Scope::Buffer), false),
    ]
}

fn never() -> Result<()> {
    Ok(())
}

fn manifest(path: &Path) -> Manifest {
    Manifest::decode(&fs::read(path.join("manifest.json")).unwrap()).unwrap()
}

/// Every file of a cache by its name.
fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for directory in ["", "shards"] {
        for entry in fs::read_dir(path.join(directory)).unwrap() {
            let file = entry.unwrap().path();
            if file.is_file() {
                let name = file.strip_prefix(path).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(file).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn put_back(path: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        if fs::read(path.join(name)).ok().as_ref() != Some(bytes) {
            let _ = fs::remove_file(path.join(name));
            fs::write(path.join(name), bytes).unwrap();
        }
    }
}

fn lost_rows(found: &Examination) -> Vec<u64> {
    found.lost.iter().flat_map(|lost| lost.start..lost.stop).collect()
}

fn batches(
    path: &Path,
    trust: Trust,
    selection: Selection,
    found: &Examination,
) -> Vec<RecordBatch> {
    let remains = Remains::open(path, trust, &mut never).unwrap();
    let mut samples = Samples::new(remains, selection, found.lost.clone()).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = samples.next_batch(&mut never).unwrap() {
        batches.push(batch);
    }
    batches
}

/// Examines a damaged cache and compares survivors and lost with what was written.
fn check(written: &Written, trust: Trust) -> Examination {
    let path = written.path();
    let found = examine(&path, trust, true, &mut never).unwrap();
    let lost = lost_rows(&found);
    assert_eq!(lost.len() as u64, found.samples_lost);
    assert_eq!(found.samples_total, written.payloads.len() as u64);
    let mut kept = Vec::new();
    for batch in batches(&path, trust, Selection::Survivors { with_ids: true }, &found) {
        let (last, id) = (batch.num_columns() - 1, batch.num_columns() - 2);
        let ids = batch.column(id).as_primitive::<UInt64Type>();
        let rows = UInt64Array::from(ids.values().to_vec());
        for (column, original) in written.columns.columns().iter().enumerate() {
            let expected = arrow_select::take::take(original, &rows, None).unwrap();
            assert_eq!(batch.column(column), &expected, "column {column}");
        }
        let payloads = batch.column(last).as_binary::<i64>();
        for (i, id) in ids.values().iter().enumerate() {
            assert_eq!(payloads.value(i), written.payloads[*id as usize], "payload {id}");
        }
        kept.extend_from_slice(ids.values());
    }
    let expected: Vec<u64> = (0..found.samples_total).filter(|row| !lost.contains(row)).collect();
    assert_eq!(kept, expected);
    found
}

/// [`check`], and what is said of the lost.
fn check_all(written: &Written, trust: Trust) -> Examination {
    let path = written.path();
    let found = check(written, trust);
    let lost = lost_rows(&found);
    let mut named = Vec::new();
    for batch in batches(&path, trust, Selection::Lost, &found) {
        named.extend_from_slice(batch.column(0).as_primitive::<UInt64Type>().values());
        let rows =
            UInt64Array::from(batch.column(0).as_primitive::<UInt64Type>().values().to_vec());
        for (column, original) in written.columns.columns().iter().enumerate() {
            let original = arrow_select::take::take(original, &rows, None).unwrap();
            let found = batch.column(column + 1);
            for row in (0..found.len()).filter(|row| found.is_valid(*row)) {
                assert_eq!(found.slice(row, 1).as_ref(), original.slice(row, 1).as_ref());
            }
        }
    }
    assert_eq!(named, lost);
    // Without a walk over sound shards the outcome is the same.
    if trust == Trust::Manifest {
        let quick = examine(&path, trust, false, &mut never).unwrap();
        assert_eq!(quick, found);
    }
    found
}

fn states(found: &Examination) -> Vec<(&str, FileState)> {
    found.files.iter().map(|finding| (finding.file.as_str(), finding.state)).collect()
}
