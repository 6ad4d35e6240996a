//! Damage of any byte never gives wrong data, and what is not damaged reads on.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::support::{COPIED, MAPPED, Plan, Written, compression, overwrite, write};
use crate::format::codec::{Algo, Scope};
use crate::format::manifest::{DIGESTS_FILE, METADATA_FILE, Manifest};
use crate::read::{Cache, Fetcher, OpenOptions};
use crate::{Kind, Result};

/// Reads everything; a wrong value or a panic fails the test, an error does not.
fn read_all(written: &Written, options: &OpenOptions) -> Result<()> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let cache = Cache::open(written.path(), options)?;
        // Each way alone too: an error of one must not hide wrong data of the next.
        let ways =
            [written.check_payloads(&cache), written.check_gathered(&cache), written.check(&cache)];
        ways.into_iter().collect::<Result<()>>()
    }));
    outcome.unwrap_or_else(|_| panic!("wrong data or a panic, see above"))
}

fn files(cache: &Path) -> Vec<String> {
    let manifest = Manifest::decode(&fs::read(cache.join("manifest.json")).unwrap()).unwrap();
    let named: Vec<_> = manifest.verified_files().map(|file| file.path.to_owned()).collect();
    named.into_iter().chain(["manifest.json".to_owned(), DIGESTS_FILE.to_owned()]).collect()
}

#[test]
fn a_flipped_byte_anywhere_never_gives_wrong_data() {
    for algo in [Algo::None, Algo::Lz4] {
        let scope = if algo == Algo::None { Scope::Payload } else { Scope::Buffer };
        let compression = compression(algo, scope);
        let written =
            write(&Plan { rows: 4, batch_rows: 3, compression, narrow: true, ..Plan::default() });
        let mut refused = 0;
        for name in files(&written.path()) {
            let path = written.path().join(&name);
            let whole = fs::read(&path).unwrap();
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                overwrite(&path, &damaged);
                for options in [MAPPED, COPIED] {
                    if let Err(error) = read_all(&written, &options) {
                        refused += 1;
                        assert_eq!(error.kind(), Kind::Corrupt, "{name} byte {at}: {error}");
                    } else {
                        // Single-block files need no leaves: the file's header is never read.
                        assert_eq!(name, DIGESTS_FILE, "byte {at} of {name} was not noticed");
                    }
                }
            }
            overwrite(&path, &whole);
        }
        assert!(refused > 1000);
        read_all(&written, &MAPPED).unwrap();
    }
}

#[test]
fn every_truncation_and_extension_is_refused_at_open() {
    let written = write(&Plan { rows: 4, narrow: true, ..Plan::default() });
    for name in files(&written.path()) {
        let path = written.path().join(&name);
        let whole = fs::read(&path).unwrap();
        for len in (0..whole.len()).chain([whole.len() + 1]) {
            let mut damaged = whole.clone();
            damaged.resize(len, 0);
            overwrite(&path, &damaged);
            let error = Cache::open(written.path(), &MAPPED).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{name} {len}: {error}");
            assert!(error.message().contains(&name), "{error}");
        }
        overwrite(&path, &whole);
    }
}

#[test]
fn a_missing_file_is_named() {
    for name in files(&write(&Plan::default()).path()) {
        let written = write(&Plan::default());
        fs::remove_file(written.path().join(&name)).unwrap();
        let error = Cache::open(written.path(), &MAPPED).unwrap_err();
        let expected = if name == "manifest.json" { Kind::NotFound } else { Kind::Corrupt };
        assert_eq!(error.kind(), expected);
        assert!(error.message().contains(&name), "{error}");
    }
}

#[test]
fn links_and_directories_in_place_of_files_are_refused() {
    for name in ["shards/000000.arrow", METADATA_FILE, "shards"] {
        let written = write(&Plan::default());
        let (path, aside) = (written.path().join(name), written.directory.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        let error = Cache::open(written.path(), &MAPPED).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
}

#[test]
fn a_damaged_block_is_named_and_the_others_read_on() {
    let plan = Plan { rows: 9, payload_bytes: 150_000, batch_rows: 2, ..Plan::default() };
    let written = write(&plan);
    let path = written.path().join("shards/000000.arrow");
    let mut bytes = fs::read(&path).unwrap();
    let cache = written.open(&MAPPED);
    let place = cache.locate(4).unwrap();
    let crate::format::index::IndexRecord::FileRange { offset, .. } = place.record else {
        panic!("uncompressed payloads are ranges of the file");
    };
    drop(cache);
    bytes[offset as usize] ^= 1;
    overwrite(&path, &bytes);
    let block = offset / 65_536;
    for options in [MAPPED, COPIED] {
        let cache = written.open(&options);
        let mut fetcher = Fetcher::new();
        for row in 0..9_u64 {
            let found = cache.payload(&cache.locate(row).unwrap(), &mut fetcher);
            match found {
                Ok(payload) => assert_eq!(payload.as_view(), written.payloads[row as usize]),
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Corrupt);
                    let place = format!(
                        "shards/000000.arrow is damaged in block {block}, bytes {}..",
                        block * 65_536
                    );
                    assert!(error.message().contains(&place), "{error}");
                    assert!((3..=4).contains(&row), "row {row}: {error}");
                }
            }
        }
        assert!(cache.payload(&place, &mut fetcher).is_err());
        written.check_gathered(&cache).unwrap();
    }
}

#[test]
fn damaged_leaves_are_refused_for_their_file_only() {
    let plan = Plan { rows: 9, payload_bytes: 150_000, batch_rows: 2, ..Plan::default() };
    let written = write(&plan);
    let path = written.path().join(DIGESTS_FILE);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        overwrite(&path, &damaged);
        for options in [MAPPED, COPIED] {
            let cache = written.open(&options);
            let error = written.check_payloads(&cache).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.message().contains(DIGESTS_FILE), "{error}");
            // Files of one block need no leaves.
            written.check_gathered(&cache).unwrap();
        }
    }
}

#[test]
fn unverified_reading_never_panics_on_damage() {
    let written = write(&Plan { rows: 4, batch_rows: 3, narrow: true, ..Plan::default() });
    for name in files(&written.path()) {
        let path = written.path().join(&name);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for flip in [0x01, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                overwrite(&path, &damaged);
                let options = OpenOptions { verify: false, ..MAPPED };
                let Ok(cache) = Cache::open(written.path(), &options) else { continue };
                touch_all(&cache, written.columns.num_columns());
            }
        }
        overwrite(&path, &whole);
    }
}

/// Reads everything without looking at it.
fn touch_all(cache: &Cache, columns: usize) {
    let rows: Vec<u64> = (0..cache.rows()).collect();
    let (mut places, mut payloads) = (Vec::new(), Vec::new());
    for &row in &rows {
        places.extend(cache.locate(row));
    }
    let mut fetcher = Fetcher::new();
    for place in &places {
        let _ = cache.fetch(std::slice::from_ref(place), &mut fetcher, &mut payloads);
    }
    for payload in &payloads {
        assert!(payload.as_view().len() as u64 <= cache.manifest().payload_bytes_total);
    }
    for column in 0..columns {
        let _ = cache.gather(column, &rows);
    }
    let _ = cache.metadata_batches();
    let _ = cache.shard_batches(0);
}
