//! Any operation of the store may fail: nothing half done is ever published.

use super::*;
use crate::format::name::partial_path;
use crate::store::{Fault, FaultyStore};

const EIO: i32 = 5;
const ROWS: usize = 60;

fn plan(mode: WriteMode) -> Plan {
    Plan { mode, max_shard_bytes: 3_000, ..PLAN }
}

/// Writes with the operation `at` failing.
fn attempt(parent: &Path, at: u64, fault: Fault, plan: Plan) -> (Result<PublishedCache>, u64) {
    let store = FaultyStore::new(at, fault);
    let outcome = begin(Arc::new(store.clone()), parent, plan)
        .and_then(|writer| fill(writer, &rows(ROWS), plan));
    (outcome, store.operations())
}

fn operations(mode: WriteMode) -> u64 {
    let parent = TempDir::new().unwrap();
    if mode == WriteMode::Replace {
        write(parent.path(), &rows(5), PLAN).unwrap();
    }
    let (outcome, operations) = attempt(parent.path(), u64::MAX, Fault::Errno(EIO), plan(mode));
    outcome.unwrap();
    assert!(operations > 20);
    operations
}

#[test]
fn a_failure_of_any_operation_is_typed_and_never_shows_half_a_cache() {
    for fault in [Fault::Errno(EIO), Fault::ShortWrite] {
        for at in 0..operations(WriteMode::New) {
            let parent = TempDir::new().unwrap();
            let (outcome, _) = attempt(parent.path(), at, fault, plan(WriteMode::New));
            let failed = outcome.is_err();
            let published = parent.path().join("train");
            if let Err(error) = outcome {
                assert!(
                    matches!(error.kind(), Kind::Unavailable | Kind::Exhausted),
                    "{at}: {error}"
                );
                assert!(error.os_code().is_some(), "{at}: {error}");
            }
            if failed {
                assert!(!published.exists(), "{at}: published in spite of an error");
                write(parent.path(), &rows(ROWS), plan(WriteMode::New)).unwrap();
            }
            assert_holds(&published, &rows(ROWS));
            assert!(!partial_path(parent.path(), "train").exists(), "{at}");
        }
    }
}

#[test]
fn a_failed_replacement_leaves_the_old_cache_and_a_good_one_the_new() {
    for fault in [Fault::Errno(EIO), Fault::ShortWrite] {
        for at in 0..operations(WriteMode::Replace) {
            let parent = TempDir::new().unwrap();
            let cache = write(parent.path(), &rows(5), PLAN).unwrap();
            let (outcome, _) = attempt(parent.path(), at, fault, plan(WriteMode::Replace));
            let total = if outcome.is_ok() { ROWS } else { 5 };
            assert_holds(&cache.path, &rows(total));
            write(parent.path(), &rows(ROWS), plan(WriteMode::Replace)).unwrap();
            assert_holds(&cache.path, &rows(ROWS));
            assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1, "{at}");
        }
    }
}
