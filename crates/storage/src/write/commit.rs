//! A cache under construction: encoded groups become durable files, then one published cache.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::encode::{EncodedGroup, shard_schema};
use super::hashed_file::HashedFile;
use super::metadata_file::MetadataFile;
use super::partial::{PartialDir, WriteMode};
use super::shards::ShardWriter;
use crate::format::codec::{Algo, Compression, Scope};
use crate::format::content::{ContentHasher, cache_id_of};
use crate::format::digest::{Digest, encode_digests_header, to_hex};
use crate::format::index::{IndexKind, encode_header};
use crate::format::limits::{BLOCK_BYTES, FORMAT_VERSION};
use crate::format::manifest::{
    ColumnEntry, DICTIONARY_FILE, DIGESTS_FILE, FileEntry, INDEX_FILE, MANIFEST_FILE,
    METADATA_FILE, Manifest, SHARDS_DIR,
};
use crate::format::name::normalise_name;
use crate::format::schema::StoredSchema;
use crate::store::Store;
use crate::{Error, Result};

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
}

/// Writes one cache. Dropping it unpublished removes what it wrote; after a failure it refuses
/// further work.
pub struct CacheWriter {
    partial: PartialDir,
    name: String,
    options: WriteOptions,
    files: Option<Files>,
    has_failed: bool,
}

/// The files being filled.
struct Files {
    schema: StoredSchema,
    shards: ShardWriter,
    metadata: MetadataFile,
    index: HashedFile,
    digests: HashedFile,
    content: ContentHasher,
    dictionary: Option<Vec<u8>>,
    rows: u64,
    payload_bytes: u64,
}

impl CacheWriter {
    /// Locks the name and makes an empty unpublished directory; see [`WriteMode`].
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
        Ok(Self { partial, name: name.to_owned(), options, files: None, has_failed: false })
    }

    /// Opens the files, once the columns are known.
    ///
    /// # Errors
    /// As the file system fails.
    pub fn start(&mut self, schema: StoredSchema, dictionary: Option<Vec<u8>>) -> Result<()> {
        let store = Arc::clone(self.partial.store());
        let directory = self.partial.path();
        store.create_dir(&directory.join(SHARDS_DIR))?;
        let compression = &self.options.compression;
        let kind = match (compression.algo, compression.scope) {
            (Algo::Lz4 | Algo::Zstd, Scope::Buffer) => IndexKind::BatchRange,
            _ => IndexKind::FileRange,
        };
        let mut index = HashedFile::create(store.as_ref(), &directory.join(INDEX_FILE))?;
        index.write(&encode_header(kind))?;
        let mut digests = HashedFile::create(store.as_ref(), &directory.join(DIGESTS_FILE))?;
        digests.write(&encode_digests_header())?;
        let metadata =
            MetadataFile::create(store.as_ref(), &directory.join(METADATA_FILE), &schema)?;
        let shards = ShardWriter::new(
            Arc::clone(&store),
            &directory,
            shard_schema(&schema, compression, dictionary.as_deref()),
            kind,
            self.options.max_shard_bytes,
        )?;
        self.files = Some(Files {
            content: ContentHasher::new(&schema),
            schema,
            shards,
            metadata,
            index,
            digests,
            dictionary,
            rows: 0,
            payload_bytes: 0,
        });
        Ok(())
    }

    /// Writes the next group, in row order.
    ///
    /// # Errors
    /// As the file system fails; the writer refuses everything afterwards.
    pub fn commit(&mut self, group: EncodedGroup) -> Result<()> {
        if self.has_failed {
            return Err(Error::internal("this writer failed before; begin a new one"));
        }
        let files = self.files.as_mut().ok_or_else(|| Error::internal("start was not called"))?;
        let committed = files.commit(&group);
        self.has_failed = committed.is_err();
        committed
    }

    /// Ends all files durably, writes the manifest last, and gives the cache its name.
    ///
    /// # Errors
    /// As the file system fails; nothing is published then.
    pub fn publish(self, identity: Identity) -> Result<PublishedCache> {
        let Self { partial, name, options, files, has_failed } = self;
        let files = files.filter(|_| !has_failed);
        let files = files
            .filter(|files| files.rows > 0)
            .ok_or_else(|| Error::internal("there is nothing to publish"))?;
        let store = Arc::clone(partial.store());
        let directory = partial.path();
        let mut manifest = files.finish(store.as_ref(), &directory, name, options, identity)?;
        store.sync_dir(&directory.join(SHARDS_DIR))?;
        store.sync_dir(&directory)?;
        let bytes = manifest.encode()?;
        let mut file = store.create_file(&directory.join(MANIFEST_FILE))?;
        file.write_all(&bytes)?;
        file.sync()?;
        file.close()?;
        store.sync_dir(&directory)?;
        let path = partial.publish()?;
        let (cache_id, samples_total) = (manifest.cache_id, manifest.samples_total);
        Ok(PublishedCache { path, cache_id, samples_total })
    }
}

impl Files {
    fn commit(&mut self, group: &EncodedGroup) -> Result<()> {
        let rows = &group.group;
        if rows.first_row() != self.rows {
            return Err(Error::internal(format!(
                "group begins at row {}; expected {}",
                rows.first_row(),
                self.rows
            )));
        }
        if self.shards.is_full_for(group) {
            self.close_shard()?;
        }
        let index = &mut self.index;
        self.shards.write(group, &mut |record| index.write(&record.encode()))?;
        self.content.update(rows.columns(), rows.payload())?;
        self.metadata.push(rows.columns())?;
        self.rows += rows.rows();
        let offsets = rows.payload().value_offsets();
        if let (Some(first), Some(last)) = (offsets.first(), offsets.last()) {
            self.payload_bytes += (last - first) as u64;
        }
        Ok(())
    }

    fn close_shard(&mut self) -> Result<()> {
        match self.shards.close()? {
            None => Ok(()),
            Some(leaves) => write_leaves(&mut self.digests, &leaves),
        }
    }

    fn finish(
        mut self,
        store: &dyn Store,
        directory: &Path,
        source_name: String,
        options: WriteOptions,
        identity: Identity,
    ) -> Result<Manifest> {
        self.close_shard()?;
        let metadata = self.metadata.finish()?;
        write_leaves(&mut self.digests, &metadata.leaves)?;
        let index = self.index.finish()?;
        write_leaves(&mut self.digests, &index.leaves)?;
        let dictionary = match &self.dictionary {
            None => None,
            Some(bytes) => {
                let path = directory.join(DICTIONARY_FILE);
                let mut file = HashedFile::create(store, &path)?;
                file.write(bytes)?;
                let digest = file.finish()?;
                write_leaves(&mut self.digests, &digest.leaves)?;
                Some(FileEntry::new(DICTIONARY_FILE, digest.size_bytes, &digest.root))
            }
        };
        let digests = self.digests.finish()?;
        let content = self.content.finish();
        let columns = self.schema.columns().iter().map(|column| ColumnEntry {
            name: column.name.clone(),
            type_text: column.column_type.to_text(),
            nullable: column.nullable,
        });
        Ok(Manifest {
            format: "dataset_rt".to_owned(),
            format_version: FORMAT_VERSION,
            cache_id: cache_id_of(&content),
            content_blake3: to_hex(&content),
            source_name,
            fingerprint: identity.fingerprint,
            samples_total: self.rows,
            payload_bytes_total: self.payload_bytes,
            columns: columns.collect(),
            compression: options.compression,
            block_bytes: BLOCK_BYTES,
            shards: self.shards.into_entries(),
            metadata: FileEntry::new(METADATA_FILE, metadata.size_bytes, &metadata.root),
            index: FileEntry::new(INDEX_FILE, index.size_bytes, &index.root),
            dictionary,
            digests: FileEntry::new(DIGESTS_FILE, digests.size_bytes, &digests.root),
            provenance: identity.provenance,
            manifest_blake3: String::new(),
        })
    }
}

fn write_leaves(digests: &mut HashedFile, leaves: &[Digest]) -> Result<()> {
    leaves.iter().try_for_each(|leaf| digests.write(leaf))
}
