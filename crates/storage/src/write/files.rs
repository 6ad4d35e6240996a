//! The files of a cache under construction, filled in row order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use arrow_schema::SchemaRef;

use super::beside::side_by_side;
use super::commit::{Identity, WriteOptions};
use super::encode::{EncodedGroup, shard_schema};
use super::hashed_file::HashedFile;
use super::journal::Journal;
use super::metadata_file::MetadataFile;
use super::shards::{ShardWriter, StoredPayloads};
use super::stored_shard::StoredShard;
use crate::format::codec::{Algo, Decompressor, Scope};
use crate::format::content::{ContentHasher, cache_id_of};
use crate::format::digest::{Digest, encode_digests_header, to_hex};
use crate::format::index::{IndexKind, encode_header};
use crate::format::limits::{BLOCK_BYTES, FORMAT_VERSION};
use crate::format::manifest::{
    ColumnEntry, DICTIONARY_FILE, DIGESTS_FILE, FileEntry, INDEX_FILE, METADATA_FILE, Manifest,
    SHARDS_DIR, ShardEntry,
};
use crate::format::schema::StoredSchema;
use crate::store::Store;
use crate::{Error, Result};

/// All files but the manifest.
pub(super) struct Files {
    directory: PathBuf,
    schema: StoredSchema,
    shard_schema: SchemaRef,
    options: WriteOptions,
    kind: IndexKind,
    pub(super) shards: ShardWriter,
    metadata: MetadataFile,
    index: HashedFile,
    digests: HashedFile,
    content: ContentHasher,
    dictionary: Option<Vec<u8>>,
    rows: u64,
    payload_bytes: u64,
}

impl Files {
    /// Creates them below `directory`, which may hold finished shards of `journal`.
    pub(super) fn create(
        store: &Arc<dyn Store>,
        directory: &Path,
        schema: StoredSchema,
        dictionary: Option<Vec<u8>>,
        options: WriteOptions,
        journal: Option<Journal>,
    ) -> Result<Self> {
        if journal.as_ref().is_none_or(|journal| journal.len() == 0) {
            store.create_dir(&directory.join(SHARDS_DIR))?;
        }
        let compression = &options.compression;
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
        let shard_schema = shard_schema(&schema, compression, dictionary.as_deref());
        let shards = ShardWriter::new(
            Arc::clone(store),
            directory,
            Arc::clone(&shard_schema),
            kind,
            options.max_shard_bytes,
            journal,
        )?;
        Ok(Self {
            directory: directory.to_owned(),
            content: ContentHasher::new(&schema),
            schema,
            shard_schema,
            options,
            kind,
            shards,
            metadata,
            index,
            digests,
            dictionary,
            rows: 0,
            payload_bytes: 0,
        })
    }

    /// Rows taken so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Payload bytes taken so far, before compression.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// The compression dictionary, where there is one.
    pub(super) fn dictionary(&self) -> Option<&[u8]> {
        self.dictionary.as_deref()
    }

    /// Writes the next group.
    pub(super) fn commit(&mut self, group: &EncodedGroup) -> Result<()> {
        let rows = &group.group;
        if rows.first_row() != self.rows {
            return Err(Error::internal(format!(
                "group begins at row {}; expected {}",
                rows.first_row(),
                self.rows
            )));
        }
        if self.shards.is_full_for(group) {
            self.close_shard(false)?;
        }
        let Self { shards, index, content, .. } = self;
        side_by_side(
            rows.payload().value_data().len(),
            || shards.write(group, &mut |record| index.write(&record.encode())),
            || content.update(rows.columns(), rows.payload()),
        )?;
        self.take(rows.columns(), rows.payload())
    }

    /// Takes rows that are in their shard and in the content digest.
    fn take(&mut self, columns: &[ArrayRef], payload: &LargeBinaryArray) -> Result<()> {
        self.metadata.push(columns)?;
        self.rows += payload.len() as u64;
        let offsets = payload.value_offsets();
        if let (Some(first), Some(last)) = (offsets.first(), offsets.last()) {
            self.payload_bytes += (last - first) as u64;
        }
        Ok(())
    }

    /// The finished shard that `entry` describes.
    ///
    /// # Errors
    /// `Corrupt` when the file is another, or what `attend` returns.
    pub(super) fn stored_shard(
        &self,
        entry: &ShardEntry,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<StoredShard> {
        StoredShard::open(&self.directory.join(&entry.path), entry, &self.shard_schema, attend)
    }

    /// Takes the rows of a finished shard as if they had been written now.
    pub(super) fn adopt(
        &mut self,
        entry: &ShardEntry,
        shard: &StoredShard,
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let compression = &self.options.compression;
        let first = self.rows;
        let mut decompressor = Decompressor::new(compression, self.dictionary.as_deref())?;
        for (number, place) in shard.places().iter().enumerate() {
            attend()?;
            let batch = shard.batch(place, &mut decompressor)?;
            let payloads = StoredPayloads {
                values_start: batch.values_start,
                batch: number as u32,
                stored_offsets: &batch.stored_offsets,
                raw_offsets: batch.payload.value_offsets(),
            };
            let index = &mut self.index;
            payloads.index_records(self.kind, &mut |record| index.write(&record.encode()))?;
            self.content.update(&batch.columns, &batch.payload)?;
            self.take(&batch.columns, &batch.payload)?;
        }
        if self.rows - first != entry.rows {
            let found = self.rows - first;
            return Err(Error::corrupt(format!(
                "{} has {found} samples; expected {}; remove the unfinished write",
                entry.path, entry.rows
            )));
        }
        self.shards.adopt(entry.clone());
        write_leaves(&mut self.digests, &shard.digest.leaves)
    }

    fn close_shard(&mut self, is_last: bool) -> Result<()> {
        match self.shards.close(is_last)? {
            None => Ok(()),
            Some(leaves) => write_leaves(&mut self.digests, &leaves),
        }
    }

    /// Ends all files durably.
    pub(super) fn finish(
        mut self,
        store: &dyn Store,
        source_name: String,
        identity: Identity,
    ) -> Result<(Manifest, ShardWriter)> {
        self.close_shard(true)?;
        self.shards.drop_rest()?;
        let metadata = self.metadata.finish()?;
        write_leaves(&mut self.digests, &metadata.leaves)?;
        let index = self.index.finish()?;
        write_leaves(&mut self.digests, &index.leaves)?;
        let dictionary = match &self.dictionary {
            None => None,
            Some(bytes) => {
                let path = self.directory.join(DICTIONARY_FILE);
                let mut file = HashedFile::create(store, &path)?;
                file.write(bytes)?;
                let digest = file.finish()?;
                write_leaves(&mut self.digests, &digest.leaves)?;
                Some(FileEntry::new(DICTIONARY_FILE, digest.size_bytes, &digest.root))
            }
        };
        let digests = self.digests.finish()?;
        let content = self.content.finish();
        let manifest = Manifest {
            format: "dataset_rt".to_owned(),
            format_version: FORMAT_VERSION,
            cache_id: cache_id_of(&content),
            content_blake3: to_hex(&content),
            source_name,
            fingerprint: identity.fingerprint,
            samples_total: self.rows,
            payload_bytes_total: self.payload_bytes,
            columns: ColumnEntry::of(&self.schema),
            compression: self.options.compression,
            block_bytes: BLOCK_BYTES,
            shards: self.shards.entries().to_vec(),
            metadata: FileEntry::new(METADATA_FILE, metadata.size_bytes, &metadata.root),
            index: FileEntry::new(INDEX_FILE, index.size_bytes, &index.root),
            dictionary,
            digests: FileEntry::new(DIGESTS_FILE, digests.size_bytes, &digests.root),
            provenance: identity.provenance,
            manifest_blake3: String::new(),
        };
        Ok((manifest, self.shards))
    }
}

fn write_leaves(digests: &mut HashedFile, leaves: &[Digest]) -> Result<()> {
    leaves.iter().try_for_each(|leaf| digests.write(leaf))
}
