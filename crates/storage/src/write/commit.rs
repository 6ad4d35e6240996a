//! A cache under construction: encoded groups become durable files, then one published cache.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encode::EncodedGroup;
use super::files::Files;
use super::journal::{self, Found, Journal, JournalHead};
use super::partial::{PartialDir, WriteMode};
use super::shards::ShardWriter;
use crate::format::codec::Compression;
use crate::format::manifest::{MANIFEST_FILE, SHARDS_DIR};
use crate::format::name::normalise_name;
use crate::format::schema::StoredSchema;
use crate::store::Store;
use crate::{Error, Kind, Result};

/// How a cache is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// A shard closes before a batch that would make it larger; one larger batch stands alone.
    pub max_shard_bytes: u64,
    /// How payloads are stored.
    pub compression: Compression,
}

/// What a source says about itself, kept in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Version of the preprocessing.
    pub fingerprint: Option<String>,
    /// Free text; decides no identity.
    pub provenance: BTreeMap<String, String>,
}

/// A cache that is complete and durable under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedCache {
    /// Its directory.
    pub path: PathBuf,
    /// Its identity.
    pub cache_id: u64,
    /// Its samples.
    pub samples_total: u64,
    /// Samples that an interrupted write had stored and this one did not write again.
    pub samples_reused: u64,
    /// Samples of an interrupted write that could not be used.
    pub dropped: Option<Dropped>,
}

/// Finished shards that an interrupted write left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Version of the preprocessing they were written with.
    pub fingerprint: Option<String>,
    /// Their stored columns.
    pub schema: StoredSchema,
    /// Their samples.
    pub rows: u64,
}

/// Stored samples of an interrupted write that were not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The first of them.
    pub first_row: u64,
    /// Their number.
    pub rows: u64,
    /// What was wrong with them.
    pub reason: String,
}

/// Where a write goes on that took the finished shards of an interrupted one over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continued {
    /// The next row.
    pub rows: u64,
    /// Payload bytes before it.
    pub payload_bytes: u64,
}

/// Writes one cache. Dropping it unpublished removes what it wrote, except for finished shards
/// after [`CacheWriter::resume`]; after a failure it refuses further work.
pub struct CacheWriter {
    partial: PartialDir,
    name: String,
    options: WriteOptions,
    resumption: Option<Resumption>,
    files: Option<Files>,
    has_failed: bool,
}

/// What a resumable write knows of the one before it.
struct Resumption {
    fingerprint: Option<String>,
    found: Option<Found>,
    found_rows: u64,
    dropped: Option<Dropped>,
}

impl CacheWriter {
    /// Locks the name and its unpublished directory; see [`WriteMode`].
    ///
    /// `wait` is called while another writer holds the name: it sleeps, or gives up.
    ///
    /// # Errors
    /// `InvalidInput` for a bad name or options, `Conflict` when the name is taken.
    pub fn begin(
        store: Arc<dyn Store>,
        parent: &Path,
        name: &str,
        options: WriteOptions,
        mode: WriteMode,
        wait: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<Self> {
        options.compression.validate()?;
        if normalise_name(name)? != name {
            return Err(Error::invalid(format!(
                "source name {name:?} is not in Unicode normal form C; normalise it"
            )));
        }
        let partial = PartialDir::acquire(store, parent, name, mode, wait)?;
        let (name, resumption) = (name.to_owned(), None);
        Ok(Self { partial, name, options, resumption, files: None, has_failed: false })
    }

    /// Makes the write resumable: finished shards are journalled, and stay if it ends
    /// unpublished. Gives what an interrupted write with these options left. Call it first.
    ///
    /// # Errors
    /// As the file system fails; everything stays then.
    pub fn resume(&mut self, fingerprint: Option<String>) -> Result<Option<Unfinished>> {
        self.partial.keep_all();
        let found = journal::find(self.partial.store().as_ref(), &self.partial.path())?;
        self.partial.keep_shards(found.as_ref().map_or(0, |found| found.shards.len()));
        let found_rows = found.as_ref().map_or(0, Found::rows);
        let resumption = Resumption { fingerprint, found, found_rows, dropped: None };
        let mut unfinished = None;
        if let Some(found) = &resumption.found {
            let schema = found.head.schema()?;
            let head = self.head(&resumption, &schema, found.dictionary.as_deref());
            let fingerprint = found.head.fingerprint.clone();
            let is_usable = found.head.difference(&head).is_none();
            unfinished = is_usable.then_some(Unfinished { fingerprint, schema, rows: found_rows });
        }
        self.resumption = Some(resumption);
        Ok(unfinished)
    }

    /// Gives up what an interrupted write left: another one has published the cache.
    pub fn forget(mut self) {
        self.partial.keep_shards(0);
    }

    fn head(
        &self,
        resumption: &Resumption,
        schema: &StoredSchema,
        dictionary: Option<&[u8]>,
    ) -> JournalHead {
        let WriteOptions { max_shard_bytes, compression } = self.options;
        let fingerprint = resumption.fingerprint.clone();
        JournalHead::new(schema, max_shard_bytes, compression, dictionary, fingerprint)
    }

    /// Opens the files, once the columns are known. Shards of an interrupted write are compared
    /// with what is committed, and stay as far as they are equal.
    ///
    /// # Errors
    /// As the file system fails.
    pub fn start(&mut self, schema: StoredSchema, dictionary: Option<Vec<u8>>) -> Result<()> {
        let mut resumption = self.resumption.take();
        let (mut journal, mut kept) = (None, 0);
        if let Some(resumption) = &mut resumption {
            let head = self.head(resumption, &schema, dictionary.as_deref());
            let mut is_trusted = true;
            if let Some(found) = resumption.found.take() {
                match found.head.difference(&head) {
                    None => kept = found.shards.len(),
                    Some(reason) => resumption.drop_from(0, format!("they have {reason}")),
                }
                is_trusted = found.head.fingerprint == head.fingerprint;
            }
            let store = Arc::clone(self.partial.store());
            let mut begun =
                Journal::new(store, self.partial.path(), head, dictionary.clone(), kept);
            if kept > 0 && !is_trusted {
                begun.distrust()?;
            }
            journal = Some(begun);
        }
        self.resumption = resumption;
        self.open(schema, dictionary, journal, kept)
    }

    /// Opens the files and takes the finished shards of the interrupted write over, reading each
    /// once: the source goes on behind them. Only for a source whose preprocessing is known to
    /// be the same. A damaged shard ends it; that one and those behind it are written again.
    ///
    /// `attend` is called for each MiB and may end it with an error.
    ///
    /// # Errors
    /// As the file system fails, and what `attend` returns.
    pub fn adopt(&mut self, attend: &mut dyn FnMut() -> Result<()>) -> Result<Continued> {
        let nothing = || Error::internal("there is nothing to take over");
        let mut resumption = self.resumption.take().ok_or_else(nothing)?;
        let found = resumption.found.take().ok_or_else(nothing)?;
        let shards = found.shards.len();
        let head = found.head.clone();
        let (store, schema) = (Arc::clone(self.partial.store()), head.schema()?);
        let journal =
            Journal::new(store, self.partial.path(), head, found.dictionary.clone(), shards);
        self.resumption = Some(resumption);
        self.open(schema, found.dictionary, Some(journal), shards)?;
        let files = self.files.as_mut().ok_or_else(nothing)?;
        let mut dropped = None;
        for entry in &found.shards {
            let mut ended = None;
            let partial = &self.partial;
            // Python code that is attended to may fork, and come back in the child too.
            let mut attend = || {
                attend()
                    .and_then(|()| partial.check_held())
                    .inspect_err(|error| ended = Some(error.clone()))
            };
            match files.stored_shard(entry, &mut attend) {
                Ok(shard) => files.adopt(entry, &shard, &mut attend)?,
                Err(_) if ended.is_some() => return Err(ended.unwrap_or_else(nothing)),
                // What cannot be read now may be readable later.
                Err(error) if !matches!(error.kind(), Kind::Corrupt | Kind::NotFound) => {
                    return Err(error);
                }
                Err(error) => {
                    files.shards.drop_rest()?;
                    dropped = Some(format!("a stored shard is damaged: {error}"));
                    break;
                }
            }
        }
        let (rows, payload_bytes) = (files.rows(), files.payload_bytes());
        self.partial.keep_shards(files.shards.journalled());
        if let (Some(reason), Some(resumption)) = (dropped, &mut self.resumption) {
            resumption.drop_from(rows, reason);
        }
        Ok(Continued { rows, payload_bytes })
    }

    fn open(
        &mut self,
        schema: StoredSchema,
        dictionary: Option<Vec<u8>>,
        journal: Option<Journal>,
        kept: usize,
    ) -> Result<()> {
        self.partial.check_held()?;
        let (store, directory) = (Arc::clone(self.partial.store()), self.partial.path());
        journal::clear(store.as_ref(), &directory, kept)?;
        self.partial.keep_shards(kept);
        let files = Files::create(&store, &directory, schema, dictionary, self.options, journal)?;
        self.files = Some(files);
        Ok(())
    }

    /// Whether the files are open, and the dictionary they were opened with.
    pub fn started(&self) -> Option<Option<&[u8]>> {
        self.files.as_ref().map(Files::dictionary)
    }

    /// Writes the next group, in row order.
    ///
    /// # Errors
    /// As the file system fails; the writer refuses everything afterwards.
    pub fn commit(&mut self, group: EncodedGroup) -> Result<()> {
        if self.has_failed {
            return Err(Error::internal("this writer failed before; begin a new one"));
        }
        self.partial.check_held()?;
        let files = self.files.as_mut().ok_or_else(|| Error::internal("start was not called"))?;
        let committed = files.commit(&group);
        self.partial.keep_shards(files.shards.journalled());
        self.has_failed = committed.is_err();
        group.recycle();
        committed
    }

    /// Ends all files durably, writes the manifest last, and gives the cache its name.
    ///
    /// # Errors
    /// As the file system fails; nothing is published then.
    pub fn publish(self, identity: Identity) -> Result<PublishedCache> {
        let Self { mut partial, name, options: _, resumption, files, has_failed } = self;
        partial.check_held()?;
        let files = files.filter(|_| !has_failed);
        let files = files
            .filter(|files| files.rows() > 0)
            .ok_or_else(|| Error::internal("there is nothing to publish"))?;
        let store = Arc::clone(partial.store());
        let directory = partial.path();
        let (mut manifest, mut shards) = files.finish(store.as_ref(), name, identity)?;
        partial.keep_shards(shards.journalled());
        store.sync_dir(&directory.join(SHARDS_DIR))?;
        store.sync_dir(&directory)?;
        let bytes = manifest.encode()?;
        let mut file = store.create_file(&directory.join(MANIFEST_FILE))?;
        file.write_all(&bytes)?;
        file.sync()?;
        file.close()?;
        partial.keep_shards(0);
        shards.end_journal()?;
        store.sync_dir(&directory)?;
        let path = partial.publish()?;
        Ok(PublishedCache {
            path,
            cache_id: manifest.cache_id,
            samples_total: manifest.samples_total,
            samples_reused: shards.rows_reused(),
            dropped: resumption.and_then(|resumption| resumption.dropped(&shards)),
        })
    }
}

impl Resumption {
    fn drop_from(&mut self, first_row: u64, reason: String) {
        let rows = self.found_rows.saturating_sub(first_row);
        self.dropped = (rows > 0).then_some(Dropped { first_row, rows, reason });
    }

    fn dropped(mut self, shards: &ShardWriter) -> Option<Dropped> {
        if let Some(row) = shards.differs_at()
            && self.dropped.is_none()
        {
            self.drop_from(row, "the source yielded something else".to_owned());
        }
        self.dropped
    }
}
