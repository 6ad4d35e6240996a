//! Opening: what is said to someone who named the wrong path, and what happens when files change.

use std::fs;
use std::io::{Seek, Write};

use tempfile::TempDir;

use super::support::{COPIED, MAPPED, Plan, check_unchanged, write, write_into};
use crate::Kind;
use crate::format::manifest::{INDEX_FILE, METADATA_FILE};
use crate::read::{Cache, Fetcher};
use crate::write::WriteMode;

#[test]
fn a_path_without_a_cache_says_what_to_do() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"x").unwrap();
    let missing = directory.path().join("missing");
    for (path, word) in [
        (directory.path(), "manifest.json"),
        (file.as_path(), "not a directory"),
        (missing.as_path(), "does not exist"),
    ] {
        let error = Cache::open(path, &MAPPED).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{error}");
        assert!(error.message().contains(word), "{error}");
    }
}

#[test]
fn a_directory_of_caches_lists_them() {
    let written = write(&Plan::default());
    for name in (0..12).map(|i| format!("c{i:02}")).chain([".hidden".to_owned()]) {
        let other = written.directory.path().join(name);
        fs::create_dir(&other).unwrap();
        fs::copy(written.path().join("manifest.json"), other.join("manifest.json")).unwrap();
    }
    let error = Cache::open(written.directory.path(), &MAPPED).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.message().contains("c00") && error.message().contains("c09"), "{error}");
    assert!(!error.message().contains("c10") && !error.message().contains("hidden"), "{error}");
}

#[test]
fn opening_reads_no_file_but_the_manifest() {
    let written = write(&Plan::default());
    let cache = written.open(&MAPPED);
    let name = written.path().to_string_lossy().into_owned();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(&name));
    cache.locate(0).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains(INDEX_FILE) && !maps.contains(&format!("{name}/shards")));
}

#[test]
fn rows_the_cache_does_not_have_are_named() {
    let written = write(&Plan::default());
    let cache = written.open(&MAPPED);
    for row in [40, u64::MAX] {
        let errors = [cache.locate(row).unwrap_err(), cache.gather(0, &[1, row]).unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), Kind::SampleNotFound);
            assert!(error.message().contains(&row.to_string()), "{error}");
            assert!(error.message().contains("40"), "{error}");
        }
    }
    assert_eq!(cache.gather(99, &[0]).unwrap_err().kind(), Kind::InvalidInput);
    assert_eq!(cache.shard_batches(99).unwrap_err().kind(), Kind::InvalidInput);
}

#[test]
fn a_file_changed_in_place_is_a_conflict() {
    for options in [MAPPED, COPIED] {
        for name in ["shards/000000.arrow", INDEX_FILE, METADATA_FILE] {
            let written = write(&Plan::default());
            let cache = written.open(&options);
            let places = [cache.locate(0).unwrap(), cache.locate(7).unwrap()];
            let mut fetcher = Fetcher::new();
            cache.fetch(&places, &mut fetcher, &mut Vec::new()).unwrap();
            cache.gather(0, &[0]).unwrap();
            check_unchanged(&cache, &places).unwrap();
            let path = written.path().join(name);
            let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.seek(std::io::SeekFrom::Start(100)).unwrap();
            file.write_all(&[0xee; 8]).unwrap();
            drop(file);
            let error = check_unchanged(&cache, &places).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
            assert!(error.message().contains("reopen"), "{error}");
        }
    }
}

#[test]
fn a_truncated_shard_is_a_conflict_even_when_its_pages_are_touched() {
    let plan = Plan { rows: 9, payload_bytes: 150_000, ..Plan::default() };
    for options in [MAPPED, COPIED] {
        let written = write(&plan);
        let cache = written.open(&options);
        let places = [cache.locate(0).unwrap(), cache.locate(8).unwrap()];
        let mut fetcher = Fetcher::new();
        cache.fetch(&places[..1], &mut fetcher, &mut Vec::new()).unwrap();
        let path = written.path().join("shards/000000.arrow");
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
        let mut found = Vec::new();
        let error = cache.fetch(&places, &mut fetcher, &mut found).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        assert!(error.message().contains("shards/000000.arrow"), "{error}");
        assert!(found.is_empty());
        assert_eq!(cache.check_shard_unchanged(0).unwrap_err().kind(), Kind::Conflict);
        written.check_gathered(&cache).unwrap();
    }
}

#[test]
fn files_not_yet_opened_of_a_replaced_cache_are_a_conflict() {
    for options in [MAPPED, COPIED] {
        let written = write(&Plan::default());
        let cache = written.open(&options);
        let place = cache.locate(1).unwrap();
        write_into(&written, &Plan { rows: 40, ..Plan::default() }, WriteMode::Replace);
        let error = cache.payload(&place, &mut Fetcher::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        let reopened = written.open(&options);
        written.check(&reopened).unwrap();
    }
}

#[test]
fn many_shards_hold_few_descriptors() {
    let written = write(&Plan { rows: 600, batch_rows: 1, shard_bytes: 1, ..Plan::default() });
    let cache = written.open(&COPIED);
    assert_eq!(cache.shard_count(), 600);
    written.check(&cache).unwrap();
    let held = || {
        // Other tests of this process have files open, too.
        let files = fs::read_dir("/proc/self/fd").unwrap();
        let files = files.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        files.filter(|file| file.starts_with(written.path())).count()
    };
    // Those kept open are 256 in the whole process: how many are ours, other tests decide.
    assert!(held() < 266, "{} descriptors", held());

    let mapped = written.open(&MAPPED);
    written.check(&mapped).unwrap();
    assert!(held() < 266, "{} descriptors", held());
}
