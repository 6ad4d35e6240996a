//! Every golden cache, cell by cell, against `tests/golden/cells`, which was made from the sources.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use dataset_rt_conformance::{Columns, arrow2, polars_arrow};
use serde_json::Value;

type Reader = fn(&Path) -> Result<Columns, Box<dyn std::error::Error>>;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Name and cells of each column; JSON objects of this crate are sorted by name.
fn expected(cells: &Value) -> Columns {
    let texts = |column: &Value| {
        column.as_array().unwrap().iter().map(|cell| cell.as_str().map(str::to_owned)).collect()
    };
    let columns = cells.as_object().unwrap();
    columns.iter().map(|(name, column)| (name.clone(), texts(column))).collect()
}

fn sorted(mut columns: Columns) -> Columns {
    columns.sort();
    columns
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// A stored payload as the source gave it.
fn raw(stored: &str, algo: &str, dictionary: &[u8]) -> String {
    let frame = bytes(stored);
    let mut raw = Vec::new();
    match algo {
        _ if frame.is_empty() => {}
        "lz4" => {
            lz4::Decoder::new(frame.as_slice()).unwrap().read_to_end(&mut raw).unwrap();
        }
        "zstd" => {
            zstd::Decoder::with_dictionary(frame.as_slice(), dictionary)
                .unwrap()
                .read_to_end(&mut raw)
                .unwrap();
        }
        _ => raw = frame,
    }
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shards(cache: &Path, manifest: &Value, read: Reader) -> Columns {
    let compression = &manifest["compression"];
    let algo = match compression["scope"].as_str().unwrap() {
        "payload" => compression["algo"].as_str().unwrap(),
        _ => "none",
    };
    let dictionary = fs::read(cache.join("dictionary.bin")).unwrap_or_default();
    let mut all = Columns::new();
    for shard in manifest["shards"].as_array().unwrap() {
        let columns = read(&cache.join(shard["path"].as_str().unwrap())).unwrap();
        if all.is_empty() {
            all = columns.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        }
        for ((name, cells), (_, whole)) in columns.into_iter().zip(&mut all) {
            whole.extend(cells.into_iter().map(|cell| match name.as_str() {
                "payload" => cell.map(|stored| raw(&stored, algo, &dictionary)),
                _ => cell,
            }));
        }
    }
    all
}

/// Reads every cache; those `refused` must be refused, so that nobody documents it for ever.
fn check(read: Reader, refused: &[&str]) {
    let mut caches = 0;
    for file in fs::read_dir(golden().join("cells")).unwrap() {
        let content = json(&file.unwrap().path());
        let cells = expected(&content["cells"]);
        for name in content["caches"].as_array().unwrap() {
            let cache = golden().join("v0").join(name.as_str().unwrap());
            let manifest = json(&cache.join("manifest.json"));
            caches += 1;
            if refused.contains(&name.as_str().unwrap()) {
                assert!(read(&cache.join("shards/000000.arrow")).is_err(), "{name}");
                continue;
            }
            let mut found = shards(&cache, &manifest, read);
            let (first, numbers) = found.remove(0);
            assert_eq!(first, "sample_id");
            let counted = (0..numbers.len()).map(|row| Some(row.to_string()));
            assert!(numbers.iter().cloned().eq(counted), "{name}");
            assert_eq!(sorted(found), cells, "shards of {name}");

            let stored: Columns =
                cells.iter().filter(|(column, _)| column != "payload").cloned().collect();
            let metadata = read(&cache.join("metadata.arrow")).unwrap();
            assert_eq!(sorted(metadata), stored, "metadata of {name}");
        }
    }
    assert_eq!(caches, fs::read_dir(golden().join("v0")).unwrap().count());
}

#[test]
fn arrow2_reads_every_golden_cache_without_compressed_bodies() {
    // Even with its codecs it knows no buffers that are left as they are in compressed bodies,
    // because compression would not make them smaller.
    check(arrow2::columns, &["lz4_buffer", "zstd_buffer", "every_type_zstd_buffer"]);
}

#[test]
fn polars_arrow_reads_every_golden_cache() {
    check(polars_arrow::columns, &[]);
}
