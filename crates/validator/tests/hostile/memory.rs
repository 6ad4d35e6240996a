//! Verification takes no more memory than its stated bound, whatever a cache claims. Each cache is
//! verified in a process of its own, whose peak is its own and whose address space is limited.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow_array::{ArrayRef, LargeBinaryArray, LargeStringArray};
use dataset_rt_storage::format::codec::{Algo, Compression, Compressor, Scope};
use dataset_rt_storage::format::index::IndexRecord;
use dataset_rt_storage::format::ipc::BodyCompression;
use dataset_rt_storage::format::manifest::shard_path;
use dataset_rt_validator::{Level, verify_cache};

use crate::craft::{Crafted, Layout, codec};

const MIB: usize = 1 << 20;
/// Kibibytes of address space of the process that verifies: what `ulimit -v` takes.
const ADDRESS_SPACE_KIB: &str = "1000000";
const CACHE_VARIABLE: &str = "DATASET_RT_HOSTILE_CACHE";
const ZSTD_BODY: BodyCompression = BodyCompression::Zstd { level: 1 };

fn peak_rss_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Rules that a deep verification finds broken, or the kind of its error, and the bytes its
/// process grew by.
fn verify_apart(cache: &Crafted) -> (Vec<String>, usize) {
    verify_apart_within(cache, ADDRESS_SPACE_KIB)
}

fn verify_apart_within(cache: &Crafted, address_space_kib: &str) -> (Vec<String>, usize) {
    let done = Command::new("sh")
        .args(["-c", "ulimit -v \"$1\"; shift; exec \"$@\"", "sh", address_space_kib])
        .arg(std::env::current_exe().unwrap())
        .args(["memory::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CACHE_VARIABLE, &cache.path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    let outcome = text.lines().find_map(|line| line.split_once("OUTCOME ")).unwrap().1;
    let (grown, rules) = outcome.split_once(' ').unwrap();
    (rules.split_whitespace().map(str::to_owned).collect(), grown.parse().unwrap())
}

#[test]
#[ignore = "the process that the other tests start"]
fn child() {
    let Ok(path) = std::env::var(CACHE_VARIABLE) else { return };
    let before = peak_rss_bytes();
    let outcome = verify_cache(Path::new(&path), Level::Deep);
    let grown = peak_rss_bytes() - before;
    let mut rules: Vec<String> = match outcome {
        Ok(report) => report.findings.into_iter().map(|finding| finding.rule).collect(),
        Err(error) => vec![error.kind().as_str().to_owned()],
    };
    rules.dedup();
    println!("OUTCOME {grown} {}", rules.join(" "));
}

/// Puts other columns in the place of the first batch of the first shard.
fn put_columns(cache: &mut Crafted, body: BodyCompression, change: impl Fn(&mut Vec<ArrayRef>)) {
    let name = shard_path(0);
    let mut parts = cache.arrow(&name);
    change(&mut parts.batches[0]);
    cache.put_arrow(&name, &parts.schema, &parts, Layout { body, ..Layout::default() });
    cache.seal();
}

/// A cache whose first rows are frames of `len` zeros each, rightly recorded in the index.
fn bombs(len: usize) -> Crafted {
    let compression = codec(Algo::Zstd, Scope::Payload, 0);
    let mut cache = Crafted::new(compression);
    let mut frame = Vec::new();
    Compressor::new(&compression, None).unwrap().compress(&vec![0; len], &mut frame).unwrap();
    let rows = cache.arrow(&shard_path(0)).batches[0].last().unwrap().len();
    put_columns(&mut cache, BodyCompression::None, |columns| {
        let frames = LargeBinaryArray::from_iter_values((0..rows).map(|_| &frame));
        *columns.last_mut().unwrap() = Arc::new(frames);
    });
    let shard = cache.read(&shard_path(0));
    let start = shard.windows(frame.len()).position(|window| *window == frame).unwrap();
    for row in 0..rows {
        let record = IndexRecord::FileRange {
            offset: (start + row * frame.len()) as u64,
            stored_len: frame.len() as u32,
            raw_len: len as u32,
        };
        cache.put_record(row as u64, record);
    }
    cache.manifest.payload_bytes_total += (rows * len) as u64;
    cache.seal();
    cache
}

#[test]
fn payloads_are_held_one_by_one_not_by_the_batch() {
    let cache = bombs(40 * MIB);
    let (rules, grown) = verify_apart(&cache);
    // All were decompressed: only then there is a digest to differ. Later batches moved in the file.
    assert_eq!(rules, ["I02", "C01", "C02"]);
    assert!((40 * MIB..80 * MIB).contains(&grown), "{grown} bytes for rows of 40 MiB");
}

#[test]
fn payloads_beyond_the_recorded_total_are_refused_before_memory_is_taken() {
    let mut cache = bombs(256 * MIB);
    cache.manifest.payload_bytes_total = 255 * MIB as u64;
    cache.write_manifest();
    let (rules, grown) = verify_apart(&cache);
    assert_eq!(rules.first().unwrap(), "S03");
    assert!(grown < 16 * MIB, "{grown}");
}

#[test]
fn lengths_that_no_frame_can_hold_are_refused_before_memory_is_taken() {
    for algo in [Algo::Lz4, Algo::Zstd] {
        let mut cache = Crafted::new(codec(algo, Scope::Payload, 0));
        let IndexRecord::FileRange { offset, stored_len, .. } = cache.record(2) else {
            panic!("not a file range")
        };
        cache
            .put_record(2, IndexRecord::FileRange { offset, stored_len, raw_len: i32::MAX as u32 });
        cache.manifest.payload_bytes_total = u64::MAX;
        cache.seal();
        let (rules, grown) = verify_apart(&cache);
        assert_eq!(rules, ["S03"]);
        assert!(grown < 16 * MIB, "{algo:?}: {grown}");
    }
}

#[test]
fn buffers_beyond_what_other_files_justify_are_refused_before_memory_is_taken() {
    let compression = codec(Algo::Zstd, Scope::Buffer, 0);
    let long = "x".repeat(256 * MIB);
    let mut cells = Crafted::new(compression);
    put_columns(&mut cells, ZSTD_BODY, |columns| {
        let rows = columns[2].len();
        let texts = (0..rows).map(|row| if row == 0 { long.as_str() } else { "" });
        columns[2] = Arc::new(LargeStringArray::from_iter_values(texts));
    });
    let mut payloads = Crafted::new(compression);
    put_columns(&mut payloads, ZSTD_BODY, |columns| {
        let rows = columns[0].len();
        let texts = (0..rows).map(|row| if row == 0 { long.as_bytes() } else { b"" });
        *columns.last_mut().unwrap() = Arc::new(LargeBinaryArray::from_iter_values(texts));
    });
    for cache in [cells, payloads] {
        let (rules, grown) = verify_apart(&cache);
        assert_eq!(rules, ["A07"]);
        assert!(grown < 16 * MIB, "{grown}");
    }
}

#[test]
fn a_batch_larger_than_memory_is_an_error_and_no_abort() {
    let mut cache = Crafted::new(Compression::default());
    put_columns(&mut cache, BodyCompression::None, |columns| {
        let rows = columns[0].len();
        let large = vec![0; 400 * MIB];
        let payloads = (0..rows).map(|row| if row == 0 { large.as_slice() } else { b"" });
        *columns.last_mut().unwrap() = Arc::new(LargeBinaryArray::from_iter_values(payloads));
    });
    let (rules, _) = verify_apart_within(&cache, "350000");
    assert_eq!(rules, ["Exhausted"]);
}
