//! Any operation of a write fails, and then any of those that clear up after it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt_storage::store::{CrashStore, Fault, FaultyStore, Store};
use dataset_rt_storage::{Kind, Result};
use tempfile::TempDir;

use crate::support::{Content, NAME, PARTIAL, Promise, Resume, copy, directory, files, names, run};

const EIO: i32 = 5;
/// A short write is a full disk: everything else fails with ENOSPC then.
const FAULTS: [Fault; 3] = [Fault::Errno(EIO), Fault::ShortWrite, Fault::Afterwards];

/// A write that is to fail.
struct Attempt<'a> {
    promise: &'a Promise,
    has_exchange: bool,
    fault: Fault,
}

/// What came of it.
struct Failed {
    root: TempDir,
    store: Arc<dyn Store>,
    parent: PathBuf,
    outcome: Result<()>,
    operations: u64,
}

impl Attempt<'_> {
    /// The operations that `is_due` picks fail.
    fn make(&self, is_due: impl Fn(u64) -> bool + Send + Sync + 'static) -> Failed {
        let root = directory();
        let parent = root.path().join("caches");
        if self.promise.replaces {
            copy(&self.promise.old, &parent.join(NAME));
        }
        let store: Arc<dyn Store> =
            Arc::new(CrashStore::new(root.path(), self.has_exchange).unwrap());
        let faulty = FaultyStore::over(Arc::clone(&store), self.fault, is_due);
        let over: Arc<dyn Store> = Arc::new(faulty.clone());
        let outcome = run(&over, &parent, Content::New, self.promise.resume);
        Failed { root, store, parent, outcome, operations: faulty.operations() }
    }

    fn check(&self, failed: &Failed, has_cleared_up: bool, context: &str) {
        match &failed.outcome {
            // A step whose failure changes nothing: removing what was replaced.
            Ok(()) => assert!(files(&failed.parent.join(NAME)) == self.promise.new, "{context}"),
            Err(error) => {
                let expected = match self.fault {
                    Fault::ShortWrite => Kind::Exhausted,
                    _ => Kind::Unavailable,
                };
                assert_eq!(error.kind(), expected, "{context}: {error}");
                assert!(error.os_code().is_some(), "{context}: {error}");
                let root = failed.root.path().display().to_string();
                assert!(error.message().contains(&root), "{context}: {error}");
                let published = self.promise.published(&failed.parent, context);
                if has_cleared_up {
                    let expected = self.promise.replaces.then_some(Content::Old);
                    assert_eq!(published, expected, "{context}");
                    if self.promise.resume != Resume::Off {
                        assert_finished_shards_are_left(&failed.parent.join(PARTIAL), context);
                    } else {
                        assert_nothing_is_left(&failed.parent, error.message(), context);
                    }
                }
            }
        }
        self.promise.next_run_succeeds(&failed.store, &failed.parent, context);
    }
}

fn assert_nothing_is_left(parent: &Path, message: &str, context: &str) {
    let mut found = names(parent);
    found.remove(NAME);
    if message.starts_with("cannot lock") && found.remove(PARTIAL) {
        // Without its lock the empty directory may be another writer's by now.
        assert!(names(&parent.join(PARTIAL)).is_empty(), "{context}");
    }
    assert!(found.is_empty(), "{context}: {found:?} is left");
}

/// Shards with their records, and nothing else.
fn assert_finished_shards_are_left(partial: &Path, context: &str) {
    let records = names(&partial.join("journal"));
    let shards = names(&partial.join("shards"));
    let recorded = shards.iter().all(|name| records.contains(&name.replace("arrow", "json")));
    assert!(recorded, "{context}: {shards:?}, {records:?}");
    let others = names(partial).len() - usize::from(!shards.is_empty());
    assert_eq!(others, usize::from(!records.is_empty()), "{context}: {:?}", names(partial));
}

fn every_operation(replaces: bool, has_exchange: bool, resume: Resume) {
    let promise = Promise::new(replaces, replaces && !has_exchange, resume);
    for fault in FAULTS {
        let attempt = Attempt { promise: &promise, has_exchange, fault };
        let undisturbed = attempt.make(|_| false);
        undisturbed.outcome.unwrap();
        assert!(undisturbed.operations > 40, "{}", undisturbed.operations);
        for at in 0..undisturbed.operations {
            let context = format!("{fault:?} at operation {at}");
            let failed = attempt.make(move |number| number == at);
            let after = if fault == FAULTS[0] { failed.operations } else { at };
            // What is reported as failed may be done.
            attempt.check(&failed, fault != Fault::Afterwards, &context);
            // Then one of those that clear up, or all of them.
            for also in at + 1..after {
                let context = format!("{context} and {also}");
                let failed = attempt.make(move |number| number == at || number == also);
                attempt.check(&failed, false, &context);
            }
            let failed = attempt.make(move |number| number >= at);
            attempt.check(&failed, false, &format!("{context} and later"));
        }
    }
}

#[test]
fn a_new_cache_fails_whole() {
    every_operation(false, true, Resume::Off);
}

#[test]
fn a_failed_exchange_keeps_the_old_cache() {
    every_operation(true, true, Resume::Off);
}

#[test]
fn a_failed_move_aside_keeps_the_old_cache() {
    every_operation(true, false, Resume::Off);
}

#[test]
fn a_resumable_write_that_fails_anywhere_leaves_finished_shards_only() {
    every_operation(false, true, Resume::Replay);
    every_operation(true, true, Resume::Seek);
}
