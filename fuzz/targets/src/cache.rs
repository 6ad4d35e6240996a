//! A whole cache in a directory: right digests around wrong bytes. It is opened, read in every
//! way, mapped and by copying, verified, and salvaged.

use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use arrow_array::{Array, ArrayRef, RecordBatch};
use dataset_rt_storage::format::index::IndexRecord;
use dataset_rt_storage::format::manifest::{DIGESTS_FILE, MANIFEST_FILE, Manifest, SHARDS_DIR};
use dataset_rt_storage::read::{Cache, Fetcher, OpenOptions};
use dataset_rt_storage::repair::{Remains, Samples, Selection, Trust, examine};
use dataset_rt_storage::store::IoMode;
use dataset_rt_storage::{Error, Kind, Result};
use dataset_rt_validator::{Level, verify_cache};
use tempfile::TempDir;

use crate::bases::{BASES, Base};
use crate::edits::{Input, edit};
use crate::seal::{Files, block_digests, seal, seal_text};

const EDITS_MAX: usize = 16;
/// Rows that a crafted manifest can make us read.
const ROWS_MAX: u64 = 1000;

/// One directory for all inputs of a process, used by one at a time.
static DIRECTORY: LazyLock<Mutex<TempDir>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(directory.path().join(SHARDS_DIR)).expect("an empty directory");
    Mutex::new(directory)
});

/// A base; then changes, each of one of its files, of the manifest's numbers or of its text.
pub fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let base = input.pick(&BASES);
    let mut crafted = Crafted::new(base);
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        crafted.change(&mut input);
    }
    let text = crafted.seal();
    let directory = DIRECTORY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let path = directory.path();
    for (name, bytes) in &crafted.files {
        put(&path.join(name), bytes);
    }
    put(&path.join(MANIFEST_FILE), &text);
    check(path, base, &crafted.files);
    check_remains(path);
    for name in crafted.files.keys() {
        fs::remove_file(path.join(name)).expect("a file written before");
    }
}

/// A file of its own each time: an old one may still be mapped.
fn put(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).expect("room for a small file");
}

/// A cache on its way to becoming a wrong one.
struct Crafted {
    manifest: Manifest,
    files: Files,
    /// Changes of the manifest's text, to be made last.
    text_edits: Vec<Vec<u8>>,
    digests_edits: Vec<Vec<u8>>,
}

impl Crafted {
    fn new(base: &Base) -> Self {
        let (manifest, files) = (base.manifest.clone(), base.files.clone());
        Self { manifest, files, text_edits: Vec::new(), digests_edits: Vec::new() }
    }

    fn change(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        match choice {
            250.. => self.change_numbers(input),
            // These come after the digests of the files are known.
            240..250 => self.text_edits.push(input.bytes(12).to_vec()),
            230..240 => self.digests_edits.push(input.bytes(12).to_vec()),
            _ => {
                let file = usize::from(choice) % self.files.len();
                let (_, bytes) = self.files.iter_mut().nth(file).expect("a number below the count");
                edit(input, bytes);
            }
        }
    }

    /// Changes that leave the manifest consistent, so that they get behind its own checks.
    fn change_numbers(&mut self, input: &mut Input<'_>) {
        let manifest = &mut self.manifest;
        match input.byte() % 4 {
            0 => manifest.payload_bytes_total = input.number(),
            1 => {
                let shard = usize::from(input.byte()) % manifest.shards.len();
                manifest.shards[shard].rows =
                    manifest.shards[shard].rows.wrapping_add(input.number());
            }
            2 => manifest.columns.truncate(usize::from(input.byte())),
            _ => {
                manifest.shards.truncate(usize::from(input.byte()).max(1));
            }
        }
        let rows = manifest.shards.iter().map(|shard| shard.rows);
        manifest.samples_total = rows.fold(0, u64::wrapping_add);
        let named: Vec<&str> = manifest.verified_files().map(|file| file.path).collect();
        self.files.retain(|name, _| name == DIGESTS_FILE || named.contains(&name.as_str()));
    }

    /// Makes the digests right; gives the text of the manifest.
    fn seal(&mut self) -> Vec<u8> {
        let mut digests = block_digests(&self.manifest, &self.files);
        for edits in &self.digests_edits {
            edit(&mut Input::new(edits), &mut digests);
        }
        self.files.insert(DIGESTS_FILE.to_owned(), digests);
        seal(&mut self.manifest, &self.files);
        let mut text = self.manifest.encode().unwrap_or_default();
        for edits in &self.text_edits {
            edit(&mut Input::new(edits), &mut text);
        }
        if !self.text_edits.is_empty() {
            seal_text(&mut text);
        }
        text
    }
}

fn check(path: &Path, base: &Base, files: &Files) {
    let mapped = read_all(path, IoMode::Mmap, files);
    let copied = read_all(path, IoMode::Pread, files);
    assert!(mapped == copied, "mapped and copied bytes are read differently");
    match verify_cache(path, Level::Deep) {
        Ok(report) if report.ok => {
            let read = mapped.expect("a cache that obeys every rule can be opened");
            let payloads = read.payloads.iter().map(|payload| payload.as_deref());
            assert!(read.errors().is_empty(), "{:?}", read.errors());
            let found =
                examine(path, Trust::Manifest, true, &mut || Ok(())).expect("nothing fails");
            assert!(found.files.is_empty() && found.lost.is_empty(), "{found:?}");
            if read.content == base.manifest.content_blake3 {
                let expected = base.payloads.iter().map(|payload| Ok(payload.as_slice()));
                assert!(payloads.eq(expected), "other payloads under the same content digest");
            }
        }
        Ok(report) => assert!(report.first_error().is_some()),
        Err(error) => assert_ne!(error.kind(), Kind::Internal, "{error}"),
    }
}

/// What is left of it, for repair and salvage: values that are valid, or typed errors.
fn check_remains(path: &Path) {
    for trust in [Trust::Manifest, Trust::Structure] {
        let attend = &mut || Ok(());
        let salvaged = examine(path, trust, true, attend).and_then(|found| {
            let remains = Remains::open(path, trust, attend)?;
            let survivors = Selection::Survivors { with_ids: true };
            let mut samples = Samples::new(remains, survivors, found.lost)?;
            let mut rows = 0;
            while let Some(batch) = samples.next_batch(attend)? {
                check_batch(&batch);
                rows += batch.num_rows() as u64;
            }
            assert_eq!(rows + found.samples_lost, found.samples_total);
            Ok(())
        });
        salvaged.map_err(typed).ok();
    }
}

/// Everything that a reader can get out of a cache, or the kind of the error instead.
#[derive(Debug, PartialEq)]
struct Read {
    content: String,
    payloads: Vec<std::result::Result<Vec<u8>, Kind>>,
    columns: Vec<std::result::Result<ArrayRef, Kind>>,
    metadata: std::result::Result<Vec<RecordBatch>, Kind>,
    shards: Vec<std::result::Result<Vec<RecordBatch>, Kind>>,
}

impl Read {
    fn errors(&self) -> Vec<Kind> {
        let payloads = self.payloads.iter().filter_map(|outcome| outcome.as_ref().err());
        let columns = self.columns.iter().filter_map(|outcome| outcome.as_ref().err());
        let shards = self.shards.iter().filter_map(|outcome| outcome.as_ref().err());
        payloads.chain(columns).chain(shards).chain(self.metadata.as_ref().err()).copied().collect()
    }
}

fn read_all(path: &Path, io: IoMode, files: &Files) -> std::result::Result<Read, Kind> {
    let cache = Cache::open(path, &OpenOptions { verify: true, io }).map_err(typed)?;
    let rows: Vec<u64> = (0..cache.rows().min(ROWS_MAX)).rev().collect();
    let columns = (0..cache.schema().columns().len()).map(|column| {
        let array = cache.gather(column, &rows).map_err(typed)?;
        array.to_data().validate_full().expect("gathered values are valid");
        Ok(array)
    });
    let columns = columns.collect();
    let mut fetcher = Fetcher::new();
    let payloads = rows.iter().rev().map(|row| payload(&cache, *row, &mut fetcher, files));
    let payloads: Vec<_> = payloads.map(|outcome| outcome.map_err(typed)).collect();
    check_together(&cache, &rows, &payloads, &mut fetcher);
    let metadata = cache.metadata_batches().map_err(typed);
    metadata.iter().flatten().for_each(check_batch);
    let shards = (0..cache.shard_count()).map(|shard| {
        let (_, batches) = cache.shard_batches(shard).map_err(typed)?;
        batches.iter().for_each(check_batch);
        Ok(batches)
    });
    let shards = shards.collect();
    let content = cache.manifest().content_blake3.clone();
    Ok(Read { content, payloads, columns, metadata, shards })
}

fn check_batch(batch: &RecordBatch) {
    for column in batch.columns() {
        column.to_data().validate_full().expect("what is handed out is valid");
    }
}

/// Bugs are not errors.
fn typed(error: Error) -> Kind {
    assert_ne!(error.kind(), Kind::Internal, "{error}");
    error.kind()
}

/// The payload of a row; without compression it is the bytes of its place and no others.
fn payload(cache: &Cache, row: u64, fetcher: &mut Fetcher, files: &Files) -> Result<Vec<u8>> {
    let place = cache.locate(row)?;
    let payload = cache.payload(&place, fetcher)?;
    assert_eq!(payload.as_view().len(), place.record.raw_len() as usize);
    let compression = &cache.manifest().compression;
    if let (IndexRecord::FileRange { offset, stored_len, .. }, false) =
        (place.record, compression.is_per_payload())
    {
        let file = &files[&cache.manifest().shards[place.shard as usize].path];
        let end = offset as usize + stored_len as usize;
        assert!(payload.as_view() == &file[offset as usize..end], "bytes of somewhere else");
    }
    Ok(payload.as_view().to_vec())
}

/// All payloads at once are those that came one by one.
fn check_together(
    cache: &Cache,
    rows: &[u64],
    alone: &[std::result::Result<Vec<u8>, Kind>],
    fetcher: &mut Fetcher,
) {
    let (mut places, mut together) = (Vec::new(), Vec::new());
    let outcome = cache
        .locate_many(rows, &mut places)
        .and_then(|()| cache.fetch(&places, fetcher, &mut together));
    match outcome {
        Ok(()) => {
            let alone = alone.iter().rev().map(|payload| payload.as_deref());
            assert!(together.iter().map(|payload| Ok(payload.as_view())).eq(alone));
        }
        Err(error) => {
            typed(error);
            assert!(alone.iter().any(std::result::Result::is_err));
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, base) in BASES.iter().enumerate() {
        let number = number as u8;
        seeds.push(vec![number]);
        for file in 0..base.files.len() as u8 {
            // One bit, a number at an edge, the end cut off.
            seeds.push(vec![number, file, 15, 100, 0, 3]);
            seeds.push(vec![number, file, 4, 64, 0, 4]);
            seeds.push(vec![number, file, 10, 64, 0]);
        }
        seeds.push(vec![number, 255, 0, 7]);
        seeds.push(vec![number, 255, 1, 0, 1]);
        seeds.push(vec![number, 240, 0, 100, 0, 2, b'7', b'8']);
        seeds.push(vec![number, 230, 15, 10, 0, 1]);
        // Two files agree that the first payload has almost 2 GiB.
        seeds.push(vec![number, 255, 0, 8, 1, 6, 76, 0, 8]);
    }
    seeds
}
