//! Interrupted writes that go on: the same bytes as without the interruption, nothing mixed.

use super::*;
use crate::format::name::partial_path;
use crate::write::{Continued, Unfinished};

const ROWS: usize = 300;

fn plan(compression: Compression) -> Plan {
    Plan { compression, max_shard_bytes: 4_000, ..PLAN }
}

/// A run of a source: all of `rows`, or as many groups as `stop_after` says.
struct Run<'a> {
    rows: &'a [Row],
    plan: Plan,
    fingerprint: Option<&'a str>,
    /// Whether the source can begin behind the stored samples.
    seeks: bool,
    stop_after: usize,
}

impl Run<'_> {
    fn start(&self, parent: &Path) -> Result<Option<PublishedCache>> {
        let mut writer = begin(Arc::new(LocalStore), parent, self.plan)?;
        let fingerprint = self.fingerprint.map(str::to_owned);
        let found = writer.resume(fingerprint.clone())?;
        let (declared, mut from) = (declared(), 0);
        let (rows, dictionary) = match found {
            Some(Unfinished { fingerprint: stored, .. })
                if self.seeks && stored.is_some() && stored == fingerprint =>
            {
                let Continued { rows, .. } = writer.adopt(&mut || Ok(()))?;
                from = rows as usize;
                (&self.rows[from..], writer.started().unwrap().map(<[u8]>::to_vec))
            }
            _ => {
                let dictionary = trained(self.rows, self.plan);
                writer.start(declared.clone(), dictionary.clone())?;
                (self.rows, dictionary)
            }
        };
        let mut ingest =
            Ingest::continued("train", declared.clone(), limits(self.plan), from as u64, 0);
        push(&mut ingest, rows)?;
        let groups = match ingest.finish() {
            Ok((_, groups)) => groups,
            Err(error) => return Err(error),
        };
        let compression = &self.plan.compression;
        let mut encoder = Encoder::new(&declared, compression, dictionary.map(Arc::from))?;
        for (number, group) in groups.into_iter().enumerate() {
            if number == self.stop_after {
                return Ok(None);
            }
            writer.commit(encoder.encode(group)?)?;
        }
        writer.publish(Identity { fingerprint, ..Identity::default() }).map(Some)
    }
}

fn whole(rows: &[Row], plan: Plan) -> Run<'_> {
    Run { rows, plan, fingerprint: Some("v1"), seeks: true, stop_after: usize::MAX }
}

/// The files of an uninterrupted write.
fn uninterrupted(run: &Run<'_>) -> Vec<(PathBuf, Vec<u8>)> {
    let parent = TempDir::new().unwrap();
    files(&run.start(parent.path()).unwrap().unwrap().path)
}

fn names_left(parent: &Path) -> Vec<PathBuf> {
    let partial = partial_path(parent, "train");
    if !partial.exists() {
        return Vec::new();
    }
    files(&partial).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn wherever_a_write_ends_the_next_one_gives_the_bytes_of_an_uninterrupted_one() {
    let rows = rows(ROWS);
    for compression in codecs() {
        let plan = plan(compression);
        let expected = uninterrupted(&whole(&rows, plan));
        let mut most = 0;
        // Every fourth batch: each run waits for the disk many times.
        for stop_after in (2..=ROWS.div_ceil(plan.batch_rows)).step_by(4) {
            for seeks in [true, false] {
                let parent = TempDir::new().unwrap();
                let run = Run { stop_after, seeks, ..whole(&rows, plan) };
                let Ok(None) = run.start(parent.path()) else { continue };
                let finished = names_left(parent.path());
                assert!(
                    finished
                        .iter()
                        .all(|name| { name.starts_with("shards") || name.starts_with("journal") })
                );
                let cache = Run { stop_after: usize::MAX, ..run }.start(parent.path());
                let cache = cache.unwrap().unwrap();
                assert!(files(&cache.path) == expected, "{compression:?} {stop_after} {seeks}");
                assert!(cache.samples_reused as usize <= stop_after * plan.batch_rows);
                assert_eq!(cache.samples_reused > 0, !finished.is_empty());
                assert_eq!(cache.dropped, None);
                assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
                most = most.max(cache.samples_reused);
            }
        }
        assert!(most > 200, "{compression:?}: at most {most} samples were reused");
    }
}

#[test]
fn several_interruptions_add_up() {
    let rows = rows(ROWS);
    let plan = plan(PLAN.compression);
    let parent = TempDir::new().unwrap();
    let mut stored = 0;
    for stop_after in [6, 9, 14] {
        let run = Run { stop_after, seeks: false, ..whole(&rows, plan) };
        assert!(run.start(parent.path()).unwrap().is_none());
        let now = names_left(parent.path()).len();
        assert!(now > stored);
        stored = now;
    }
    let cache = whole(&rows, plan).start(parent.path()).unwrap().unwrap();
    assert!(files(&cache.path) == uninterrupted(&whole(&rows, plan)));
}

#[test]
fn rows_from_the_first_difference_on_are_dropped_and_never_mixed() {
    let before = rows(ROWS);
    let plan = plan(codec(Algo::Zstd, Scope::Payload, 0));
    for changed in [0, 100, 101, 150, 200] {
        let mut after = before.clone();
        after[changed].payload = b"another preprocessing".to_vec();
        for fingerprint in [None, Some("v1"), Some("v2")] {
            let parent = TempDir::new().unwrap();
            let first = Run { stop_after: 17, fingerprint: Some("v1"), ..whole(&before, plan) };
            assert!(first.start(parent.path()).unwrap().is_none());
            let second = Run { rows: &after, fingerprint, seeks: false, ..whole(&after, plan) };
            let cache = second.start(parent.path()).unwrap().unwrap();
            assert!(files(&cache.path) == uninterrupted(&second), "{changed}");
            assert!(cache.samples_reused as usize <= changed);
            let dropped = cache.dropped.unwrap();
            assert!(dropped.first_row as usize <= changed);
            assert!(changed < dropped.first_row as usize + plan.batch_rows, "the batch it is in");
            assert!(dropped.rows > 0);
        }
    }
}

#[test]
fn a_source_that_became_shorter_or_differs_in_metadata_only_is_noticed() {
    let before = rows(ROWS);
    let plan = plan(PLAN.compression);
    let mut other = before.clone();
    other[120].number += 1;
    // The second ends where a stored shard ends, with more of them behind it.
    let parent = TempDir::new().unwrap();
    let cache = whole(&before, plan).start(parent.path()).unwrap().unwrap();
    let border = manifest(&cache.path).shards[..2].iter().map(|shard| shard.rows).sum::<u64>();
    for after in [&before[..130], &before[..border as usize], &other[..]] {
        let parent = TempDir::new().unwrap();
        let first = Run { stop_after: 17, ..whole(&before, plan) };
        assert!(first.start(parent.path()).unwrap().is_none());
        let second = Run { seeks: false, ..whole(after, plan) };
        let cache = second.start(parent.path()).unwrap().unwrap();
        assert!(files(&cache.path) == uninterrupted(&second));
        assert!(cache.samples_reused > 0 && cache.dropped.is_some());
    }
}

#[test]
fn shards_written_with_other_settings_are_dropped_with_the_reason() {
    let rows = rows(ROWS);
    let first = plan(PLAN.compression);
    let others = [
        (Plan { max_shard_bytes: 5_000, ..first }, "max_shard_bytes"),
        (plan(codec(Algo::Lz4, Scope::Payload, 0)), "shard_compression"),
    ];
    for (second, reason) in others {
        for seeks in [true, false] {
            let parent = TempDir::new().unwrap();
            let run = Run { stop_after: 17, ..whole(&rows, first) };
            assert!(run.start(parent.path()).unwrap().is_none());
            let run = Run { seeks, ..whole(&rows, second) };
            let cache = run.start(parent.path()).unwrap().unwrap();
            assert!(files(&cache.path) == uninterrupted(&run));
            assert_eq!(cache.samples_reused, 0);
            assert!(cache.dropped.unwrap().reason.contains(reason));
        }
    }
}

#[test]
fn a_damaged_shard_and_those_behind_it_are_written_again() {
    let rows = rows(ROWS);
    let plan = plan(codec(Algo::Lz4, Scope::Buffer, 0));
    let expected = uninterrupted(&whole(&rows, plan));
    for damage in ["shards/000001.arrow", "journal/000001.json", "journal/head.json"] {
        for seeks in [true, false] {
            let parent = TempDir::new().unwrap();
            let run = Run { stop_after: 17, ..whole(&rows, plan) };
            assert!(run.start(parent.path()).unwrap().is_none());
            let path = partial_path(parent.path(), "train").join(damage);
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
            let cache = Run { seeks, ..whole(&rows, plan) }.start(parent.path());
            let cache = cache.unwrap().unwrap();
            assert!(files(&cache.path) == expected, "{damage} {seeks}");
            assert!(cache.samples_reused < 120);
            assert_eq!(cache.dropped.is_some(), damage.starts_with("shards"));
        }
    }
}

#[test]
fn shards_of_another_version_never_pass_for_those_of_the_first() {
    let before = rows(ROWS);
    let mut after = before.clone();
    after[150].number = -1;
    let plan = plan(PLAN.compression);
    let parent = TempDir::new().unwrap();
    let first = Run { stop_after: 17, ..whole(&before, plan) };
    assert!(first.start(parent.path()).unwrap().is_none());
    let second = Run { fingerprint: Some("v2"), stop_after: 17, ..whole(&after, plan) };
    assert!(second.start(parent.path()).unwrap().is_none());
    // Its author went back to the first version: the rows behind the difference are not its own.
    for fingerprint in ["v1", "v2"] {
        let rows = if fingerprint == "v1" { &before } else { &after };
        let third = Run { fingerprint: Some(fingerprint), stop_after: 17, ..whole(rows, plan) };
        assert!(third.start(parent.path()).unwrap().is_none());
    }
    let last = Run { fingerprint: Some("v1"), ..whole(&before, plan) };
    let cache = last.start(parent.path()).unwrap().unwrap();
    assert!(files(&cache.path) == uninterrupted(&last));
    assert!(cache.samples_reused > 0);
}

#[test]
fn a_write_that_is_not_resumable_removes_what_the_one_before_left() {
    let rows = rows(ROWS);
    let plan = plan(PLAN.compression);
    let parent = TempDir::new().unwrap();
    let first = Run { stop_after: 17, ..whole(&rows, plan) };
    assert!(first.start(parent.path()).unwrap().is_none());
    assert!(!names_left(parent.path()).is_empty());
    drop(begin(Arc::new(LocalStore), parent.path(), plan).unwrap());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_run_that_fails_at_once_keeps_what_the_one_before_stored() {
    let rows = rows(ROWS);
    let plan = plan(PLAN.compression);
    let parent = TempDir::new().unwrap();
    let first = Run { stop_after: 17, ..whole(&rows, plan) };
    assert!(first.start(parent.path()).unwrap().is_none());
    let left = names_left(parent.path());
    let mut writer = begin(Arc::new(LocalStore), parent.path(), plan).unwrap();
    assert!(writer.resume(Some("v1".to_owned())).unwrap().is_some());
    drop(writer);
    assert_eq!(names_left(parent.path()), left);
    let mut writer = begin(Arc::new(LocalStore), parent.path(), plan).unwrap();
    writer.resume(Some("v1".to_owned())).unwrap();
    let mut calls = 0;
    let ended = writer.adopt(&mut || {
        calls += 1;
        if calls > 3 { Err(Error::conflict("ended")) } else { Ok(()) }
    });
    assert_eq!(ended.unwrap_err().message(), "ended");
    drop(writer);
    assert_eq!(names_left(parent.path()), left);
}

#[test]
fn nothing_is_read_or_removed_through_links_and_foreign_names_do_not_stay() {
    let rows = rows(ROWS);
    let plan = plan(PLAN.compression);
    let expected = uninterrupted(&whole(&rows, plan));
    for linked in ["shards", "journal"] {
        let (parent, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let run = Run { stop_after: 17, ..whole(&rows, plan) };
        assert!(run.start(parent.path()).unwrap().is_none());
        let place = partial_path(parent.path(), "train").join(linked);
        let moved = elsewhere.path().join("moved");
        fs::rename(&place, &moved).unwrap();
        fs::write(moved.join("precious.txt"), b"kept").unwrap();
        std::os::unix::fs::symlink(&moved, &place).unwrap();
        let cache = whole(&rows, plan).start(parent.path()).unwrap().unwrap();
        assert!(files(&cache.path) == expected, "{linked}");
        assert_eq!(fs::read(moved.join("precious.txt")).unwrap(), b"kept", "{linked}");
    }
    let parent = TempDir::new().unwrap();
    let run = Run { stop_after: 17, ..whole(&rows, plan) };
    assert!(run.start(parent.path()).unwrap().is_none());
    for foreign in ["0.arrow", "+1.arrow", "000000.bak"] {
        fs::write(partial_path(parent.path(), "train").join("shards").join(foreign), b"").unwrap();
    }
    let cache = whole(&rows, plan).start(parent.path()).unwrap().unwrap();
    assert!(files(&cache.path) == expected);
    assert!(cache.samples_reused > 0);
}

#[test]
fn a_link_to_nothing_in_place_of_the_unpublished_directory_is_refused_at_once() {
    let parent = TempDir::new().unwrap();
    let place = partial_path(parent.path(), "train");
    std::os::unix::fs::symlink(parent.path().join("nothing"), &place).unwrap();
    let options = WriteOptions { max_shard_bytes: 1 << 20, compression: PLAN.compression };
    let store = Arc::new(LocalStore);
    let mut nobody = |_: &Path| -> Result<()> { panic!("waits for a writer that is not there") };
    let begun = CacheWriter::begin(store, parent.path(), "train", options, PLAN.mode, &mut nobody);
    assert_eq!(begun.err().unwrap().kind(), Kind::Conflict);
}
