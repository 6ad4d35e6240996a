//! One small cache written through any store, and what may be found in its parent afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use dataset_rt_runtime::{Decision, OnStale, SourceClaim, decide};
use dataset_rt_storage::format::codec::{Algo, Compression, Scope, train_dictionary};
use dataset_rt_storage::store::{Store, Tree};
use dataset_rt_storage::write::{
    CacheWriter, Cell, Encoder, GroupLimits, Identity, Ingest, WriteMode, WriteOptions,
};
use dataset_rt_storage::{Error, Kind, Result};
use dataset_rt_validator::{Level, verify_cache};
use tempfile::TempDir;

pub const NAME: &str = "train";
pub const PARTIAL: &str = ".train.partial";
const DICTIONARY_BYTES: u32 = 512;
pub const STALE: &str = ".train.stale";

/// A fresh directory, in memory where there is such a place: thousands are made.
pub fn directory() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// What a source yields: several shards, a dictionary, two columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Old,
    New,
}

impl Content {
    fn fingerprint(self) -> String {
        format!("{self:?}")
    }

    fn payloads(self) -> Vec<Vec<u8>> {
        let rows = if self == Self::Old { 50 } else { 80 };
        (0..rows).map(|i| format!("{self:?} sample {i} ").repeat(i % 5 + 1).into_bytes()).collect()
    }

    /// Trained once: training costs more than all the rest of a write.
    fn dictionary(self) -> Option<Vec<u8>> {
        static TRAINED: [OnceLock<Option<Vec<u8>>>; 2] = [OnceLock::new(), OnceLock::new()];
        let train = || {
            let payloads = self.payloads();
            let lengths: Vec<usize> = payloads.iter().map(Vec::len).collect();
            train_dictionary(&payloads.concat(), &lengths, DICTIONARY_BYTES as usize).unwrap()
        };
        TRAINED[self as usize].get_or_init(train).clone()
    }

    /// Its files, written where nothing fails.
    pub fn files(self) -> Files {
        let root = directory();
        let store = dataset_rt_storage::store::LocalStore;
        write(Arc::new(store), root.path(), self, WriteMode::New, Resume::Off).unwrap();
        files(&root.path().join(NAME))
    }
}

/// How a write treats the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It removes what is left of it.
    Off,
    /// It compares what it writes with finished shards.
    Replay,
    /// It goes on behind finished shards of the same fingerprint.
    Seek,
}

/// Writes the cache once, as a runtime does.
pub fn write(
    store: Arc<dyn Store>,
    parent: &Path,
    content: Content,
    mode: WriteMode,
    resume: Resume,
) -> Result<()> {
    let compression =
        Compression { algo: Algo::Zstd, level: None, scope: Scope::Payload, dictionary_bytes: 512 };
    let options = WriteOptions { max_shard_bytes: 6_000, compression };
    let nobody = &mut |path: &Path| Err(Error::conflict(format!("{} is held", path.display())));
    let mut writer = CacheWriter::begin(store, parent, NAME, options, mode, nobody)?;

    let fingerprint = Some(content.fingerprint());
    let found = match resume {
        Resume::Off => None,
        Resume::Replay | Resume::Seek => writer.resume(fingerprint.clone())?,
    };
    let found = found.filter(|found| resume == Resume::Seek && found.fingerprint == fingerprint);
    let limits = GroupLimits { batch_rows: 16, ..GroupLimits::new(1 << 20, &compression) };
    let (mut ingest, first) = match found {
        None => (Ingest::new(NAME, None, limits), 0),
        Some(found) => {
            let stored = writer.adopt(&mut || Ok(()))?;
            let (rows, bytes) = (stored.rows, stored.payload_bytes);
            (Ingest::continued(NAME, found.schema, limits, rows, bytes), rows as usize)
        }
    };
    for (i, payload) in content.payloads().iter().enumerate().skip(first) {
        ingest.push_payload(payload)?;
        ingest.cell(0, "number", Cell::Int(i as i64))?;
        ingest.cell(1, "text", Cell::Str(&format!("text {i}")))?;
        ingest.end_row()?;
    }
    let (schema, groups) = ingest.finish()?;
    let dictionary = content.dictionary();
    if writer.started().is_none() {
        writer.start(schema.clone(), dictionary.clone())?;
    }
    let mut encoder = Encoder::new(&schema, &compression, dictionary.map(Arc::from))?;
    for group in groups {
        writer.commit(encoder.encode(group)?)?;
    }
    writer.publish(Identity { fingerprint, ..Identity::default() }).map(drop)
}

/// Asks for the cache as a user does who wants stale ones rewritten.
pub fn run(store: &Arc<dyn Store>, parent: &Path, content: Content, resume: Resume) -> Result<()> {
    let path = parent.join(NAME);
    let claim = SourceClaim { fingerprint: Some(content.fingerprint()), schema: None };
    loop {
        let mode = match decide(&path, &claim, OnStale::Rewrite, false, &mut || Ok(()))? {
            Decision::Reuse { .. } => return Ok(()),
            Decision::Write => WriteMode::New,
            Decision::Replace => WriteMode::Replace,
        };
        match write(Arc::clone(store), parent, content, mode, resume) {
            // An older cache came back under the name: look at it.
            Err(e) if e.kind() == Kind::Conflict && mode == WriteMode::New && path.exists() => {}
            outcome => return outcome,
        }
    }
}

pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Every file below a directory.
pub fn files(directory: &Path) -> Files {
    let mut found = Files::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(below) = waiting.pop() {
        for entry in fs::read_dir(below).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

/// Names in a directory; none when it does not exist.
pub fn names(directory: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeSet::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes the tree real below `root`, which exists.
pub fn materialise(tree: &Tree, root: &Path) {
    // Sorted by path: a directory comes before what is in it.
    for (path, bytes) in tree {
        match bytes {
            None => fs::create_dir_all(root.join(path)).unwrap(),
            Some(bytes) => fs::write(root.join(path), bytes).unwrap(),
        }
    }
}

pub fn copy(from: &Files, to: &Path) {
    for (path, bytes) in from {
        fs::create_dir_all(to.join(path).parent().unwrap()).unwrap();
        fs::write(to.join(path), bytes).unwrap();
    }
}

/// The only states a published name may be in.
pub struct Promise {
    pub old: Files,
    pub new: Files,
    /// Whether the old cache was there at the beginning, so that the name must never be free.
    pub replaces: bool,
    /// Whether the old cache may wait aside for the next writer.
    pub moves_aside: bool,
    /// How the next run treats what is left.
    pub resume: Resume,
}

impl Promise {
    pub fn new(replaces: bool, moves_aside: bool, resume: Resume) -> Self {
        let (old, new) = (Content::Old.files(), Content::New.files());
        for expected in ["shards/000002.arrow", "dictionary.bin"] {
            assert!(new.contains_key(Path::new(expected)), "{expected}");
        }
        Self { old, new, replaces, moves_aside, resume }
    }

    /// Which complete cache is published; anything else fails the test.
    pub fn published(&self, parent: &Path, context: &str) -> Option<Content> {
        let path = parent.join(NAME);
        let mut allowed = BTreeSet::from([NAME, PARTIAL].map(str::to_owned));
        if self.moves_aside {
            allowed.insert(STALE.to_owned());
        }
        let found = names(parent);
        assert!(found.is_subset(&allowed), "{context}: {found:?}");
        if !path.exists() {
            if self.replaces {
                assert!(self.moves_aside, "{context}: the old cache is lost");
                let aside = files(&parent.join(STALE));
                let is_whole = aside == self.old || aside == self.new;
                assert!(is_whole, "{context}: the replaced cache is not whole aside");
            }
            return None;
        }
        let content = files(&path);
        let which = if content == self.new {
            Content::New
        } else {
            assert!(content == self.old, "{context}: published is {:?}", content.keys());
            assert!(self.replaces, "{context}: an unpublished cache came back");
            Content::Old
        };
        let report = verify_cache(&path, Level::Deep).unwrap();
        assert!(report.ok, "{context}: {:?}", report.findings);
        Some(which)
    }

    /// The next run ends with the new cache; the next writer leaves nothing else.
    pub fn next_run_succeeds(&self, store: &Arc<dyn Store>, parent: &Path, context: &str) {
        let was_there = self.published(parent, context) == Some(Content::New);
        let run = run(store, parent, Content::New, self.resume);
        assert!(run.is_ok(), "{context}: the next run: {run:?}");
        if was_there {
            // Reused without writing anything; ask for a write.
            let mode = WriteMode::Replace;
            let forced = write(Arc::clone(store), parent, Content::New, mode, self.resume);
            assert!(forced.is_ok(), "{context}: a write over it: {forced:?}");
        }
        assert!(files(&parent.join(NAME)) == self.new, "{context}: other bytes");
        assert_eq!(names(parent).len(), 1, "{context}: {:?}", names(parent));
    }
}
