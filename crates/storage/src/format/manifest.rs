//! `manifest.json`: the publication marker, and the root of the digest chain. No file is read here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::codec::{Algo, Compression, Scope};
use super::content::cache_id_of;
use super::digest::{Digest, DigestLayout, from_hex, to_hex};
use super::index::{IndexKind, index_size_bytes};
use super::limits::{
    BLOCK_BYTES, COLUMNS_MAX, DICTIONARY_BYTES_MAX, FORMAT_VERSION, MANIFEST_BYTES_MAX,
};
use super::name::normalise_name;
use super::schema::{ColumnType, StoredColumn, StoredSchema};
use super::seal::{check_seal, seal};
use crate::{Error, Kind, Result};

/// File name of the manifest.
pub const MANIFEST_FILE: &str = "manifest.json";
/// File name of the metadata table.
pub const METADATA_FILE: &str = "metadata.arrow";
/// File name of the payload index.
pub const INDEX_FILE: &str = "index.bin";
/// File name of the block digests.
pub const DIGESTS_FILE: &str = "digests.bin";
/// File name of the compression dictionary, where there is one.
pub const DICTIONARY_FILE: &str = "dictionary.bin";
/// Directory of the shards.
pub const SHARDS_DIR: &str = "shards";

const FORMAT_NAME: &str = "dataset_rt";
const SELF_DIGEST: &str = "manifest_blake3";

/// Path of shard number `shard` within the cache.
pub fn shard_path(shard: usize) -> String {
    format!("{SHARDS_DIR}/{shard:06}.arrow")
}

/// One file of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Path relative to the cache directory.
    pub path: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// BLAKE3 of the file, hexadecimal.
    pub blake3: String,
}

/// One shard: a contiguous range of samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Path relative to the cache directory.
    pub path: String,
    /// Length in bytes.
    pub size_bytes: u64,
    /// BLAKE3 of the file, hexadecimal.
    pub blake3: String,
    /// Samples in the shard.
    pub rows: u64,
}

/// One stored column as the manifest writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnEntry {
    /// Exact name.
    pub name: String,
    /// Type as text, see [`ColumnType::to_text`].
    #[serde(rename = "type")]
    pub type_text: String,
    /// Whether values may be null.
    pub nullable: bool,
}

impl ColumnEntry {
    /// The entries of the columns of `schema`.
    pub fn of(schema: &StoredSchema) -> Vec<Self> {
        let entry = |column: &StoredColumn| Self {
            name: column.name.clone(),
            type_text: column.column_type.to_text(),
            nullable: column.nullable,
        };
        schema.columns().iter().map(entry).collect()
    }

    /// The inverse of [`ColumnEntry::of`].
    ///
    /// # Errors
    /// `Corrupt` for names or types that no writer stores.
    pub fn to_schema(entries: &[Self]) -> Result<StoredSchema> {
        let columns = entries.iter().map(|entry| {
            let column_type = ColumnType::from_text(&entry.type_text)
                .ok_or_else(|| corrupt(&format!("unknown column type {:?}", entry.type_text)))?;
            let name = entry.name.clone();
            Ok(StoredColumn { name, column_type, nullable: entry.nullable })
        });
        StoredSchema::new(columns.collect::<Result<_>>()?).map_err(|e| corrupt(e.message()))
    }
}

/// Everything a cache says about itself. Field order is the order in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always `dataset_rt`.
    pub format: String,
    /// Version of the format that the files obey.
    pub format_version: u64,
    /// Identity: the low 53 bits of `content_blake3`.
    pub cache_id: u64,
    /// Digest of the logical contents, hexadecimal.
    pub content_blake3: String,
    /// Name of the source.
    pub source_name: String,
    /// Version of the preprocessing, as the source said it.
    pub fingerprint: Option<String>,
    /// Samples in the cache.
    pub samples_total: u64,
    /// Payload bytes before compression.
    pub payload_bytes_total: u64,
    /// Stored columns in source order.
    pub columns: Vec<ColumnEntry>,
    /// How payloads are stored.
    pub compression: Compression,
    /// Bytes per verified block.
    pub block_bytes: u64,
    /// The shards in sample order.
    pub shards: Vec<ShardEntry>,
    /// `metadata.arrow`.
    pub metadata: FileEntry,
    /// `index.bin`.
    pub index: FileEntry,
    /// `dictionary.bin`, where payloads were compressed with one.
    pub dictionary: Option<FileEntry>,
    /// `digests.bin`.
    pub digests: FileEntry,
    /// Free text of the source; decides no identity.
    pub provenance: BTreeMap<String, String>,
    /// BLAKE3 of this file with these 64 digits written as zeros.
    pub manifest_blake3: String,
}

/// Which of the cache's files, in the order of `digests.bin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedFile<'a> {
    /// Path relative to the cache directory.
    pub path: &'a str,
    /// Length in bytes.
    pub size_bytes: u64,
    /// BLAKE3, hexadecimal.
    pub blake3: &'a str,
}

impl Manifest {
    /// The bytes of `manifest.json`, self-digest filled in.
    ///
    /// # Errors
    /// `Internal` when serialisation fails, `Exhausted` when the manifest would be too large.
    pub fn encode(&mut self) -> Result<Vec<u8>> {
        self.manifest_blake3 = "0".repeat(64);
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::internal(format!("cannot serialise the manifest: {e}")))?;
        text.push('\n');
        if text.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(Error::new(
                Kind::Exhausted,
                format!(
                    "manifest of {} bytes; expected at most {MANIFEST_BYTES_MAX}; use larger \
                     shards or less provenance",
                    text.len()
                ),
            ));
        }
        self.manifest_blake3 = seal(&mut text);
        Ok(text.into_bytes())
    }

    /// Reads and checks the bytes of `manifest.json`: format, self-digest, version, structure,
    /// ranges. The digest comes before the version: a damaged version is damage, not an upgrade.
    ///
    /// # Errors
    /// `Unsupported` for another format version, `Corrupt` for everything else that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let version = Self::stated_version(bytes)?;
        Self::check_self_digest(bytes)?;
        Self::check_version(version)?;
        Self::decode_fields(bytes)
    }

    /// The last step of [`Manifest::decode`]: fields, their types, ranges and agreement.
    ///
    /// # Errors
    /// `Corrupt` naming the field.
    pub fn decode_fields(bytes: &[u8]) -> Result<Self> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|e| corrupt(&e.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The first step of [`Manifest::decode`]: JSON of this format. Gives the version it states,
    /// which means nothing before the digest was checked.
    ///
    /// # Errors
    /// `Corrupt` for anything else.
    pub fn stated_version(bytes: &[u8]) -> Result<u64> {
        #[derive(Deserialize)]
        struct Header {
            format: String,
            format_version: u64,
        }
        if bytes.is_empty() {
            return Err(corrupt("the file is empty"));
        }
        let header: Header =
            serde_json::from_slice(bytes).map_err(|e| corrupt(&format!("not a manifest: {e}")))?;
        if header.format != FORMAT_NAME {
            let found: String = header.format.chars().take(40).collect();
            return Err(corrupt(&format!("format is {found:?}; expected {FORMAT_NAME:?}")));
        }
        Ok(header.format_version)
    }

    /// The third step of [`Manifest::decode`]: this release reads that version.
    ///
    /// # Errors
    /// `Unsupported` naming both versions.
    pub fn check_version(version: u64) -> Result<()> {
        if version != FORMAT_VERSION {
            return Err(Error::unsupported(format!(
                "cache has format version {version}; this release reads version \
                 {FORMAT_VERSION}; upgrade dataset_rt or rebuild the cache"
            )));
        }
        Ok(())
    }

    /// The second step of [`Manifest::decode`]: the bytes hash to what they say.
    ///
    /// # Errors
    /// `Corrupt` when not one byte more or less is right.
    pub fn check_self_digest(bytes: &[u8]) -> Result<()> {
        check_seal(bytes, SELF_DIGEST).map_err(|what| corrupt(&what))
    }

    fn check(&self) -> Result<()> {
        let must = |holds: bool, what: &str| if holds { Ok(()) } else { Err(corrupt(what)) };
        must(self.block_bytes == BLOCK_BYTES, "block_bytes is not 65536")?;
        let content = from_hex(&self.content_blake3).ok_or_else(|| corrupt("content_blake3"))?;
        must(cache_id_of(&content) == self.cache_id, "cache_id is not that of content_blake3")?;
        let is_name = normalise_name(&self.source_name).is_ok_and(|name| name == self.source_name);
        must(is_name, "source_name is not a plain path segment")?;
        must(self.samples_total > 0, "samples_total is 0")?;
        must(!self.shards.is_empty(), "there are no shards")?;
        let rows = self.shards.iter().try_fold(0_u64, |sum, s| sum.checked_add(s.rows));
        must(rows == Some(self.samples_total), "samples_total is not the sum of shard rows")?;
        for (i, shard) in self.shards.iter().enumerate() {
            must(shard.path == shard_path(i), "a shard path is not the expected one")?;
            must(shard.rows > 0, "a shard has no rows")?;
        }
        must(self.metadata.path == METADATA_FILE, "metadata.path")?;
        must(self.index.path == INDEX_FILE, "index.path")?;
        must(self.digests.path == DIGESTS_FILE, "digests.path")?;
        if let Some(dictionary) = &self.dictionary {
            must(dictionary.path == DICTIONARY_FILE, "dictionary.path")?;
            must(dictionary.size_bytes <= DICTIONARY_BYTES_MAX, "dictionary.size_bytes")?;
            let asked = u64::from(self.compression.dictionary_bytes);
            must(dictionary.size_bytes <= asked, "a dictionary larger than dictionary_bytes")?;
        }
        for file in self.verified_files() {
            must(from_hex(file.blake3).is_some(), "a file's blake3 is not 64 hex digits")?;
            must(file.size_bytes <= i64::MAX as u64, "a file's size_bytes is out of range")?;
        }
        must(from_hex(&self.digests.blake3).is_some(), "digests.blake3")?;
        let index_size = index_size_bytes(self.samples_total);
        must(index_size == Some(self.index.size_bytes), "index.size_bytes does not fit the rows")?;
        let layout = self.digest_layout()?;
        must(layout.size_bytes() == self.digests.size_bytes, "digests.size_bytes does not fit")?;
        must(self.columns.len() <= COLUMNS_MAX, "too many columns")?;
        self.compression.validate().map_err(|e| corrupt(e.message()))?;
        self.schema().map(drop)
    }

    /// The stored columns.
    ///
    /// # Errors
    /// `Corrupt` for names or types that no writer stores.
    pub fn schema(&self) -> Result<StoredSchema> {
        ColumnEntry::to_schema(&self.columns)
    }

    /// Files that block digests cover, in the order of `digests.bin`.
    pub fn verified_files(&self) -> impl Iterator<Item = VerifiedFile<'_>> {
        let shards = self.shards.iter().map(|s| VerifiedFile {
            path: &s.path,
            size_bytes: s.size_bytes,
            blake3: &s.blake3,
        });
        let others = [Some(&self.metadata), Some(&self.index), self.dictionary.as_ref()];
        shards.chain(others.into_iter().flatten().map(FileEntry::as_verified))
    }

    /// Where each file's block digests lie.
    ///
    /// # Errors
    /// `Corrupt` when sizes overflow.
    pub fn digest_layout(&self) -> Result<DigestLayout> {
        DigestLayout::new(self.verified_files().map(|file| file.size_bytes))
    }

    /// What the index records point at.
    pub fn index_kind(&self) -> IndexKind {
        match (self.compression.algo, self.compression.scope) {
            (Algo::Lz4 | Algo::Zstd, Scope::Buffer) => IndexKind::BatchRange,
            _ => IndexKind::FileRange,
        }
    }
}

impl FileEntry {
    /// An entry for a file that was just written.
    pub fn new(path: &str, size_bytes: u64, root: &Digest) -> Self {
        Self { path: path.to_owned(), size_bytes, blake3: to_hex(root) }
    }

    /// The entry as one of the cache's files.
    pub fn as_verified(&self) -> VerifiedFile<'_> {
        VerifiedFile { path: &self.path, size_bytes: self.size_bytes, blake3: &self.blake3 }
    }
}

fn corrupt(what: &str) -> Error {
    // A crafted manifest must not make messages as long as itself.
    let what: String = what.chars().take(400).collect();
    Error::corrupt(format!("{MANIFEST_FILE} is damaged or not ours: {what}; rebuild the cache"))
}

#[cfg(test)]
mod tests;
