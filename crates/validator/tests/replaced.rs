//! A cache that is exchanged for another while it is verified is no damage.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt_storage::format::codec::Compression;
use dataset_rt_storage::store::LocalStore;
use dataset_rt_storage::write::{
    CacheWriter, Encoder, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use dataset_rt_storage::{Error, Kind};
use dataset_rt_validator::{Level, verify_cache_attended};
use tempfile::TempDir;

fn write(parent: &Path, name: &str, payload: &[u8]) -> PathBuf {
    let compression = Compression::default();
    let options = WriteOptions { max_shard_bytes: 1 << 20, compression };
    let (store, mode) = (Arc::new(LocalStore), WriteMode::New);
    let nobody = &mut |_: &Path| Err(Error::conflict("held"));
    let mut writer = CacheWriter::begin(store, parent, name, options, mode, nobody).unwrap();
    let mut ingest = Ingest::new(name, None, GroupLimits::new(1 << 20, &compression));
    ingest.push_payload(payload).unwrap();
    ingest.end_row().unwrap();
    let (schema, groups) = ingest.finish().unwrap();
    writer.start(schema.clone(), None).unwrap();
    let mut encoder = Encoder::new(&schema, &compression, None).unwrap();
    for group in groups {
        writer.commit(encoder.encode(group).unwrap()).unwrap();
    }
    writer.publish(Identity::default()).unwrap().path
}

fn exchange(a: &Path, b: &Path) {
    let aside = a.with_file_name("aside");
    fs::rename(a, &aside).unwrap();
    fs::rename(b, a).unwrap();
    fs::rename(&aside, b).unwrap();
}

#[test]
fn a_cache_exchanged_while_it_is_verified_is_verified_again() {
    let parent = TempDir::new().unwrap();
    let cache = write(parent.path(), "cache", b"old");
    let other = write(parent.path(), "other", b"something new");
    for level in [Level::Full, Level::Deep] {
        let mut times = 0;
        let report = verify_cache_attended(&cache, level, &mut || {
            times += 1;
            if times == 1 {
                exchange(&cache, &other);
            }
            Ok(())
        });
        let report = report.unwrap();
        assert!(report.ok, "{report:?}");
    }
}

#[test]
fn one_that_is_exchanged_all_the_time_is_a_conflict_and_damage_stays_damage() {
    let parent = TempDir::new().unwrap();
    let cache = write(parent.path(), "cache", b"old");
    let other = write(parent.path(), "other", b"something new");
    let mut exchanging = || {
        exchange(&cache, &other);
        Ok(())
    };
    let error = verify_cache_attended(&cache, Level::Full, &mut exchanging).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    let index = cache.join("index.bin");
    let mut bytes = fs::read(&index).unwrap();
    bytes[70] ^= 1;
    fs::write(&index, bytes).unwrap();
    assert!(!verify_cache_attended(&cache, Level::Full, &mut || Ok(())).unwrap().ok);
}
