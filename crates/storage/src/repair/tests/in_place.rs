//! Derived files restored in place: bit for bit, or not at all, whatever fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::read::tests::support::forge_file;
use crate::store::{CrashStore, Fault, FaultyStore, Store};

const DERIVED: [&str; 3] = ["digests.bin", "index.bin", "metadata.arrow"];

fn plan(compression: Compression, dictionary: bool) -> Plan {
    let rows = if dictionary { 60 } else { 12 };
    Plan { rows, payload_bytes: 60, compression, dictionary, narrow: true, ..Plan::default() }
}

/// A store that remembers, below the directory of the cache.
fn recording(written: &Written) -> (CrashStore, Arc<dyn Store>) {
    let store = CrashStore::new(written.directory.path(), true).unwrap();
    (store.clone(), Arc::new(store))
}

fn restored(written: &Written) -> Examination {
    let (_, store) = recording(written);
    restore(&store, &written.path(), &mut never).unwrap()
}

fn break_derived(path: &Path, names: &[&str]) {
    for name in names {
        let mut bytes = fs::read(path.join(name)).unwrap();
        bytes[20] ^= 1;
        overwrite(&path.join(name), &bytes);
    }
}

#[test]
fn every_damage_of_a_derived_file_is_undone() {
    for (compression, dictionary) in compressions() {
        let written = write(&plan(compression, dictionary));
        let path = written.path();
        let originals = files(&path);
        for name in DERIVED {
            let bytes = fs::read(path.join(name)).unwrap();
            for at in (0..bytes.len()).step_by(19) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                overwrite(&path.join(name), &damaged);
                assert_eq!(states(&restored(&written)), [(name, FileState::Restored)]);
                assert_eq!(files(&path), originals);
            }
            fs::remove_file(path.join(name)).unwrap();
            restored(&written);
            std::os::unix::fs::symlink("/nowhere", path.join(name)).unwrap_or(());
            assert_eq!(files(&path), originals);
        }
        break_derived(&path, &DERIVED);
        assert_eq!(restored(&written).files.len(), 3);
        assert_eq!(files(&path), originals);
        assert!(restored(&written).files.is_empty());
    }
}

#[test]
fn long_files_are_restored_from_damaged_shards_where_the_rest_proves_them() {
    let written = write(&Plan { rows: 9_000, batch_rows: 1_000, ..Plan::default() });
    let path = written.path();
    let originals = files(&path);
    // A damaged block of payloads and a damaged block of the index that it has no part in.
    for name in ["shards/000000.arrow", "index.bin", "metadata.arrow"] {
        let mut bytes = fs::read(path.join(name)).unwrap();
        let at = bytes.len() - 100_000;
        bytes[at] ^= 1;
        overwrite(&path.join(name), &bytes);
    }
    let damaged = files(&path);
    let found = restored(&written);
    for (file, state) in states(&found) {
        let original = originals.iter().find(|(name, _)| name == file).unwrap();
        let now = fs::read(path.join(file)).unwrap();
        match state {
            FileState::Restored => assert!(now == original.1, "{file}"),
            _ => assert!(damaged.iter().any(|(name, bytes)| name == file && *bytes == now)),
        }
    }
    assert!(found.files.iter().any(|finding| finding.state == FileState::Lost));
}

#[test]
fn a_shard_is_never_touched_and_nothing_is_guessed() {
    let written = write(&plan(Compression::default(), false));
    let path = written.path();
    break_derived(&path, &["index.bin", "metadata.arrow", "shards/000000.arrow"]);
    let damaged = files(&path);
    let found = restored(&written);
    assert!(found.files.iter().all(|finding| finding.state == FileState::Lost), "{found:?}");
    assert!(found.files.iter().filter(|finding| finding.obstacle.is_some()).count() == 2);
    assert_eq!(files(&path), damaged);
}

#[test]
fn what_the_manifest_does_not_name_takes_no_place() {
    let written = write(&plan(Compression::default(), false));
    let path = written.path();
    // The manifest names an index that its writer did not derive from the shards.
    forge_file(&path, "index.bin", |bytes| bytes[64 + 16] ^= 1);
    break_derived(&path, &["index.bin"]);
    let damaged = files(&path);
    let found = restored(&written);
    assert_eq!(states(&found), [("index.bin", FileState::Lost)]);
    assert!(found.files[0].obstacle.as_ref().unwrap().contains("not what the manifest names"));
    assert_eq!(files(&path), damaged);
}

#[test]
fn power_may_fail_at_any_moment() {
    let written = write(&plan(Compression::default(), false));
    let path = written.path();
    let originals = files(&path);
    break_derived(&path, &DERIVED);
    let damaged = files(&path);
    let (crash, store) = recording(&written);
    restore(&store, &path, &mut never).unwrap();
    let moments = crash.moments();
    assert!(moments.len() > 12);
    let mut seen = BTreeSet::new();
    for (number, (what, disk)) in moments.iter().enumerate() {
        for loss in disk.losses(4, number as u64) {
            let tree = disk.after_loss(&loss);
            for (name, bytes) in &tree {
                let Ok(name) = name.strip_prefix("train") else { continue };
                let (Some(name), Some(bytes)) = (name.to_str(), bytes) else { continue };
                let of = |files: &[(String, Vec<u8>)]| {
                    files.iter().any(|(n, b)| n == name && b == bytes)
                };
                let is_aside = name.starts_with('.') && name.ends_with(".repair");
                assert!(is_aside || of(&damaged) || of(&originals), "{name} after {what}");
            }
            let names = originals.iter().map(|(name, _)| path_in_cache(name));
            assert!(names.into_iter().all(|name| tree.contains_key(&name)), "after {what}");
            seen.insert(format!("{:?}", tree.keys()));
        }
    }
    // The end is durable.
    let (_, disk) = moments.last().unwrap();
    for loss in disk.losses(4, 0) {
        let tree = disk.after_loss(&loss);
        for (name, bytes) in &originals {
            assert_eq!(tree.get(&path_in_cache(name)), Some(&Some(bytes.clone())));
        }
    }
}

fn path_in_cache(name: &str) -> std::path::PathBuf {
    Path::new("train").join(name)
}

#[test]
fn any_operation_may_fail_and_the_next_repair_succeeds() {
    let written = write(&plan(Compression::default(), false));
    let path = written.path();
    let originals = files(&path);
    for fault in [Fault::Errno(5), Fault::Errno(30), Fault::ShortWrite, Fault::Afterwards] {
        let mut at = 0;
        loop {
            break_derived(&path, &DERIVED);
            let damaged = files(&path);
            let (_, store) = recording(&written);
            let faulty = FaultyStore::over(store, fault, move |number| number == at);
            let store: Arc<dyn Store> = Arc::new(faulty.clone());
            let outcome = restore(&store, &path, &mut never);
            if let Err(error) = &outcome {
                assert!(error.os_code().is_some(), "{error}");
            }
            for (name, bytes) in files(&path) {
                let known =
                    |files: &[(String, Vec<u8>)]| files.contains(&(name.clone(), bytes.clone()));
                let is_aside = name.ends_with(".repair");
                assert!(is_aside || known(&damaged) || known(&originals), "{name} at {at}");
            }
            restored(&written);
            assert_eq!(files(&path), originals, "{fault:?} at {at}");
            if faulty.operations() <= at {
                break;
            }
            at += 1;
        }
        assert!(at > 10);
    }
}

#[test]
fn leftovers_are_removed_and_another_repair_is_waited_for() {
    let written = write(&plan(Compression::default(), false));
    let path = written.path();
    let originals = files(&path);
    fs::write(path.join(".index.bin.repair"), "left by a dead one").unwrap();
    assert!(restored(&written).files.is_empty());
    assert_eq!(files(&path), originals);
    break_derived(&path, &["index.bin"]);
    let (_, store) = recording(&written);
    let lock = store.lock_dir(&path).unwrap().unwrap();
    let error = restore(&store, &path, &mut never).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Conflict, "{error}");
    drop(lock);
    restored(&written);
    assert_eq!(files(&path), originals);
}
