//! Power fails after each operation of a write, with every kind of loss.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt_storage::store::{CrashStore, Disk, Fault, FaultyStore, Store};
use dataset_rt_storage::write::WriteMode;
use tempfile::TempDir;

use crate::support::{
    Content, NAME, PARTIAL, Promise, Resume, STALE, copy, directory, files, materialise, names,
    run, write,
};

/// Losses by chance at each moment, beside the systematic ones.
const RANDOM_LOSSES: usize = 8;

/// At least as many as there are from the manifest on.
const OPERATIONS_OF_PUBLICATION: u64 = 16;

/// At least as many as there are before the first file is made.
const OPERATIONS_OF_BEGINNING: u64 = 12;

/// Where a write begins.
struct Start {
    promise: Promise,
    has_exchange: bool,
    /// Caches there already, by the names they have.
    caches: Vec<(&'static str, Content)>,
}

impl Start {
    fn new(caches: &[(&'static str, Content)], has_exchange: bool, resume: Resume) -> Self {
        let replaces = caches.iter().any(|(name, _)| *name == NAME || *name == STALE);
        let promise = Promise::new(replaces, replaces && !has_exchange, resume);
        Self { promise, has_exchange, caches: caches.to_vec() }
    }

    /// An empty root but for the caches; the parent of the caches is missing without any.
    fn prepared(&self) -> (TempDir, PathBuf, CrashStore) {
        let root = directory();
        let parent = root.path().join("caches");
        for (name, content) in &self.caches {
            let content =
                if *content == Content::Old { &self.promise.old } else { &self.promise.new };
            copy(content, &parent.join(name));
        }
        let store = CrashStore::new(root.path(), self.has_exchange).unwrap();
        (root, parent, store)
    }

    /// Loses power at each moment of an undisturbed write.
    fn survives(&self) -> usize {
        let (_root, parent, store) = self.prepared();
        run(
            &(Arc::new(store.clone()) as Arc<dyn Store>),
            &parent,
            Content::New,
            self.promise.resume,
        )
        .unwrap();
        assert!(files(&parent.join(NAME)) == self.promise.new);
        let moments = store.moments();
        let mut seen = Seen::default();
        for (number, (what, disk)) in moments.iter().enumerate() {
            self.lose_power(&format!("after {what} ({number})"), number, disk, &mut seen);
        }
        // What was reported as written stays.
        let (_, disk) = moments.last().unwrap();
        for loss in disk.losses(RANDOM_LOSSES, 0) {
            let root = directory();
            materialise(&disk.after_loss(&loss), root.path());
            let context = format!("after the end: {loss:?}");
            let found = self.promise.published(&root.path().join("caches"), &context);
            assert_eq!(found, Some(Content::New), "{context}");
        }
        seen.trees.len()
    }

    /// Fails each operation in turn, and loses power at each moment after that.
    fn survives_faults(&self, fault: Fault) -> usize {
        let (_root, parent, store) = self.prepared();
        let counting = FaultyStore::over(Arc::new(store.clone()), fault, |_| false);
        run(
            &(Arc::new(counting.clone()) as Arc<dyn Store>),
            &parent,
            Content::New,
            self.promise.resume,
        )
        .unwrap();
        let undisturbed = store.moments();
        let mut seen = Seen::default();
        for at in 0..counting.operations() {
            let (_root, parent, store) = self.prepared();
            let inner = Arc::new(store.clone());
            let faulty = FaultyStore::over(inner, fault, move |number| number == at);
            let _ = run(
                &(Arc::new(faulty) as Arc<dyn Store>),
                &parent,
                Content::New,
                self.promise.resume,
            );
            let moments = store.moments();
            let shared = moments.iter().zip(&undisturbed).take_while(|(a, b)| a.0 == b.0).count();
            for (number, (what, disk)) in moments.iter().enumerate().skip(shared) {
                let context = format!("operation {at} failed, after {what} ({number})");
                self.lose_power(&context, number, disk, &mut seen);
            }
        }
        seen.trees.len()
    }

    /// Kills a writer at each operation around the publication, lets the next one run, or fail
    /// early, and loses power at each moment of that: what the dead one did may not be durable.
    fn survives_kills(&self) -> usize {
        let (_root, parent, store) = self.prepared();
        let counting = FaultyStore::over(Arc::new(store), Fault::Errno(5), |_| false);
        run(
            &(Arc::new(counting.clone()) as Arc<dyn Store>),
            &parent,
            Content::New,
            self.promise.resume,
        )
        .unwrap();
        let mut seen = Seen::default();
        for at in counting.operations() - OPERATIONS_OF_PUBLICATION..counting.operations() {
            for failing in (0..OPERATIONS_OF_BEGINNING).map(Some).chain([None]) {
                let (_root, parent, store) = self.prepared();
                let over = |is_due: Box<dyn Fn(u64) -> bool + Send + Sync>| -> Arc<dyn Store> {
                    Arc::new(FaultyStore::over(Arc::new(store.clone()), Fault::Errno(5), is_due))
                };
                let _ = run(
                    &over(Box::new(move |number| number >= at)),
                    &parent,
                    Content::New,
                    self.promise.resume,
                );
                let before = store.moments().len();
                let next = over(Box::new(move |number| Some(number) == failing));
                let mode =
                    if parent.join(NAME).exists() { WriteMode::Replace } else { WriteMode::New };
                let _ = write(next, &parent, Content::New, mode, self.promise.resume);
                for (number, (what, disk)) in store.moments().iter().enumerate().skip(before) {
                    let context =
                        format!("killed at {at}, failed at {failing:?}, {what} ({number})");
                    self.lose_power(&context, number, disk, &mut seen);
                }
            }
        }
        seen.trees.len()
    }

    /// Ends a write of either content somewhere between its shards, goes on with the new one and
    /// loses power at each moment of that.
    fn survives_interruptions(&self) -> usize {
        let mut seen = Seen::default();
        for content in [Content::Old, Content::New] {
            let (_root, parent, store) = self.prepared();
            let counting = FaultyStore::over(Arc::new(store), Fault::Errno(5), |_| false);
            let counted: Arc<dyn Store> = Arc::new(counting.clone());
            let mode = if parent.join(NAME).exists() { WriteMode::Replace } else { WriteMode::New };
            write(counted, &parent, content, mode, self.promise.resume).unwrap();
            // After a failure the writer tidies up; a dead one does not.
            for (is_dead, at) in [true, false]
                .into_iter()
                .flat_map(|d| (10..counting.operations()).step_by(7).map(move |at| (d, at)))
            {
                let (_root, parent, store) = self.prepared();
                let is_due = move |number: u64| number == at || (is_dead && number > at);
                let faulty = FaultyStore::over(Arc::new(store.clone()), Fault::Errno(5), is_due);
                let _ = write(Arc::new(faulty), &parent, content, mode, self.promise.resume);
                let before = store.moments().len();
                let next: Arc<dyn Store> = Arc::new(store.clone());
                let _ = run(&next, &parent, Content::New, self.promise.resume);
                for (number, (what, disk)) in store.moments().iter().enumerate().skip(before) {
                    let context = format!("{content:?} ended at {at} ({is_dead}), {what}");
                    self.lose_power(&context, number, disk, &mut seen);
                }
            }
        }
        seen.trees.len()
    }

    fn lose_power(&self, context: &str, number: usize, disk: &Disk, seen: &mut Seen) {
        for loss in disk.losses(RANDOM_LOSSES, number as u64) {
            let tree = disk.after_loss(&loss);
            if !seen.trees.insert(seen.hasher.hash_one(&tree)) {
                continue;
            }
            let root = directory();
            materialise(&tree, root.path());
            let context = format!("{context}, losses {loss:?}");
            self.check(root.path(), &context);
        }
    }

    fn check(&self, root: &Path, context: &str) {
        let parent = root.join("caches");
        // The next run need not be durable here, only right.
        let store: Arc<dyn Store> = Arc::new(CrashStore::new(root, self.has_exchange).unwrap());
        self.promise.next_run_succeeds(&store, &parent, context);
        assert_eq!(names(root).len(), 1, "{context}");
    }
}

/// Trees that were looked at: many losses look the same.
#[derive(Default)]
struct Seen {
    hasher: RandomState,
    trees: HashSet<u64>,
}

#[test]
fn a_new_cache_is_whole_or_absent() {
    let trees = Start::new(&[], true, Resume::Off).survives();
    assert!(trees > 100, "{trees}");
}

#[test]
fn a_new_cache_over_a_dead_writers_is_whole_or_absent() {
    Start::new(&[(PARTIAL, Content::Old)], true, Resume::Off).survives();
}

#[test]
fn an_exchanged_cache_is_the_old_or_the_new() {
    Start::new(&[(NAME, Content::Old)], true, Resume::Off).survives();
    Start::new(&[(NAME, Content::Old), (PARTIAL, Content::New)], true, Resume::Off).survives();
}

#[test]
fn a_cache_moved_aside_is_never_lost() {
    Start::new(&[(NAME, Content::Old)], false, Resume::Off).survives();
    Start::new(&[(STALE, Content::Old), (PARTIAL, Content::New)], false, Resume::Off).survives();
    Start::new(&[(NAME, Content::Old), (STALE, Content::Old)], false, Resume::Off).survives();
}

#[test]
fn a_failed_write_and_then_no_power_lose_nothing() {
    for fault in [Fault::Errno(5), Fault::Afterwards] {
        let trees = [
            Start::new(&[], true, Resume::Off).survives_faults(fault),
            Start::new(&[(NAME, Content::Old)], true, Resume::Off).survives_faults(fault),
            Start::new(&[(NAME, Content::Old)], false, Resume::Off).survives_faults(fault),
        ];
        assert!(trees.iter().all(|trees| *trees > 300), "{trees:?}");
    }
}

#[test]
fn a_killed_writer_the_next_one_and_then_no_power_lose_nothing() {
    let trees = [
        Start::new(&[(NAME, Content::Old)], true, Resume::Off).survives_kills(),
        Start::new(&[(NAME, Content::Old)], false, Resume::Off).survives_kills(),
        Start::new(&[], true, Resume::Off).survives_kills(),
    ];
    assert!(trees.iter().all(|trees| *trees > 500), "{trees:?}");
}

/// Kills a writer half way, then lets the next one go on and loses power at each moment of that.
#[test]
fn a_write_that_goes_on_behind_finished_shards_is_whole_or_absent() {
    for resume in [Resume::Replay, Resume::Seek] {
        for (caches, has_exchange) in
            [(&[][..], true), (&[(NAME, Content::Old)], true), (&[(NAME, Content::Old)], false)]
        {
            let start = Start::new(caches, has_exchange, resume);
            let trees = start.survives() + start.survives_interruptions();
            assert!(trees > 300, "{trees}");
        }
    }
}

#[test]
fn a_resumable_write_that_is_killed_at_its_end_loses_nothing() {
    let trees = Start::new(&[(NAME, Content::Old)], true, Resume::Seek).survives_kills();
    assert!(trees > 500, "{trees}");
}
