//! Which files of a cache are damaged, and which samples that costs. Changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::region::{Attend, Loss};
use super::remains::{Remains, Trust};
use super::restore::{Derived, digest_of, rebuilt};
use crate::format::codec::Compression;
use crate::format::digest::from_hex;
use crate::format::limits::MANIFEST_BYTES_MAX;
use crate::format::manifest::{DIGESTS_FILE, INDEX_FILE, MANIFEST_FILE, METADATA_FILE};
use crate::store::{EntryKind, LocalStore, Store, read_file};
use crate::{Error, Kind, Result};

/// Runs of lost samples up to which each has a reason of its own; behind them neighbours are one
/// run, with the reason of the first.
const REASONS_MAX: usize = 100_000;

/// What can be done about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// The other files hold all that it held.
    Restorable,
    /// It was written anew.
    Restored,
    /// Something of it is gone for good.
    Lost,
}

/// One file that is not what the manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFinding {
    /// File within the cache.
    pub file: String,
    /// What can be done about it.
    pub state: FileState,
    /// What is wrong with it.
    pub reason: String,
    /// Why it cannot be written anew, where it could have been.
    pub obstacle: Option<String>,
}

/// Neighbouring samples that are lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostSamples {
    /// The first.
    pub start: u64,
    /// The one behind the last.
    pub stop: u64,
    /// File within the cache.
    pub file: String,
    /// What is wrong with it, and where.
    pub reason: String,
}

/// The state of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// The cache.
    pub path: String,
    /// Whether its manifest vouches for what is said here.
    pub is_proven: bool,
    /// Name of the source; empty where the manifest is lost, like the next three.
    pub source_name: String,
    /// Version of the preprocessing.
    pub fingerprint: Option<String>,
    /// Identity.
    pub cache_id: u64,
    /// Digest of the contents.
    pub content_blake3: String,
    /// Samples that it had.
    pub samples_total: u64,
    /// Files that are not what the manifest says.
    pub files: Vec<FileFinding>,
    /// Samples that are lost, in order: one entry for each run of samples with one reason.
    pub lost: Vec<LostSamples>,
    /// Their number.
    pub samples_lost: u64,
    /// How payloads are stored.
    pub compression: Compression,
    /// Free text of the source.
    pub provenance: BTreeMap<String, String>,
}

/// Examines the cache at `path`: the digest of every file, what can be derived anew, and which
/// samples are lost. With `thorough`, samples of sound shards are put together and decompressed
/// too; else only those of damaged ones. Memory: that of [`Remains`] and 150 bytes for each run of
/// lost samples.
///
/// # Errors
/// As [`Remains::open`]; `Conflict` when a file changes or the cache is replaced meanwhile; what
/// `attend` returns.
pub fn examine(
    path: &Path,
    trust: Trust,
    thorough: bool,
    attend: &mut dyn FnMut() -> Result<()>,
) -> Result<Examination> {
    let read = || read_file(&path.join(MANIFEST_FILE), MANIFEST_BYTES_MAX).ok();
    let before = read();
    let mut remains = Remains::open(path, trust, attend)?;
    let manifest = remains.manifest();
    let mut found = Examination {
        path: path.display().to_string(),
        is_proven: remains.is_proven(),
        source_name: manifest.source_name.clone(),
        fingerprint: manifest.fingerprint.clone(),
        cache_id: manifest.cache_id,
        content_blake3: manifest.content_blake3.clone(),
        samples_total: manifest.samples_total,
        files: Vec::new(),
        lost: Vec::new(),
        samples_lost: 0,
        compression: manifest.compression,
        provenance: manifest.provenance.clone(),
    };
    let mut is_damaged = Vec::new();
    for number in 0..remains.shards.len() {
        let mut shard = remains.shard_file(number, attend)?;
        let mut fault = shard.fault(attend)?;
        shard.check_unchanged()?;
        if let (Some(fault), true) = (&mut fault, remains.is_proven()) {
            fault.push_str(&misplaced(&remains, shard.name(), attend)?);
        }
        is_damaged.push(fault.is_some());
        found.lose(shard.name(), fault);
    }
    if remains.is_proven() {
        found.look_at_tables(&mut remains, attend)?;
    }
    let is_anything_lost = found.files.iter().any(|finding| finding.state == FileState::Lost);
    if thorough || is_anything_lost || !remains.is_proven() {
        let all = thorough || !remains.is_proven();
        found.walk(&mut remains, &is_damaged, all, attend)?;
    }
    // A writer may have exchanged the cache: half of the files looked at were of another one.
    if before != read() {
        return Err(Error::conflict(format!(
            "{} was replaced while it was examined; look at it again",
            path.display()
        )));
    }
    Ok(found)
}

impl Examination {
    fn lose(&mut self, file: &str, fault: Option<String>) {
        if let Some(reason) = fault {
            let (file, state) = (file.to_owned(), FileState::Lost);
            self.files.push(FileFinding { file, state, reason, obstacle: None });
        }
    }

    /// Metadata, index, dictionary and block digests.
    fn look_at_tables(&mut self, remains: &mut Remains, attend: Attend<'_>) -> Result<()> {
        for (file, fault) in table_faults(remains, attend)? {
            let Some(derived) = Derived::of(&file) else {
                self.lose(&file, Some(fault));
                continue;
            };
            let obstacle = match LocalStore.kind(&remains.directory.join(&file))? {
                Some(EntryKind::Directory) => Some(format!("{file} is a directory; move it away")),
                _ => rebuilt(remains, derived, None, attend)?
                    .err()
                    .map(|loss| format!("{}: {}", loss.file, loss.reason)),
            };
            let state = if obstacle.is_none() { FileState::Restorable } else { FileState::Lost };
            self.files.push(FileFinding { file, state, reason: fault, obstacle });
        }
        Ok(())
    }

    /// The samples of damaged shards, or of all.
    fn walk(
        &mut self,
        remains: &mut Remains,
        is_damaged: &[bool],
        all: bool,
        attend: Attend<'_>,
    ) -> Result<()> {
        // A damaged dictionary, or tables that cannot be derived, may cost samples of any shard.
        let any = self.files.iter().any(|finding| {
            finding.state == FileState::Lost
                && !finding.file.starts_with("shards/")
                && finding.file != DIGESTS_FILE
        });
        for (number, is_damaged) in is_damaged.iter().enumerate() {
            if !(all || any || *is_damaged) {
                continue;
            }
            let Some(shard) = remains.shards.get(number) else { continue };
            let rows = shard.first_row..shard.first_row.saturating_add(shard.rows);
            if let Some(loss) = remains.shard_loss(number, attend)? {
                self.add(rows.start, rows.end, loss)?;
                continue;
            }
            let mut row = rows.start;
            while row < rows.end {
                if let Some((stop, loss)) = remains.gap(number, row, attend)? {
                    self.add(row, stop, loss)?;
                    row = stop;
                    continue;
                }
                let Some(piece) = remains.piece(row, attend)? else { break };
                for (row, loss) in piece.rows.clone().zip(piece.losses) {
                    if let Some(loss) = loss {
                        self.add(row, row + 1, loss)?;
                    }
                }
                row = piece.rows.end;
            }
        }
        remains.finish()
    }

    fn add(&mut self, start: u64, stop: u64, loss: Loss) -> Result<()> {
        self.samples_lost += stop - start;
        let is_full = self.lost.len() >= REASONS_MAX;
        match self.lost.last_mut() {
            Some(last)
                if last.stop == start
                    && (is_full || (last.file == loss.file && last.reason == loss.reason)) =>
            {
                last.stop = stop;
            }
            _ if start == stop => {}
            _ => {
                // Runs between survivors may be many.
                self.lost.try_reserve(1).map_err(|_| {
                    let runs = self.lost.len();
                    Error::new(
                        Kind::Exhausted,
                        format!("no memory for {runs} runs of lost samples"),
                    )
                })?;
                let Loss { file, reason } = loss;
                self.lost.push(LostSamples { start, stop, file, reason });
            }
        }
        Ok(())
    }

    /// The examination as JSON.
    ///
    /// # Errors
    /// `Internal` when serialisation fails.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal(format!("cannot serialise the examination: {e}")))
    }
}

/// Says so where the file called `name` holds what another one must hold.
fn misplaced(remains: &Remains, name: &str, attend: Attend<'_>) -> Result<String> {
    let path = remains.directory.join(name);
    let Ok(Some(EntryKind::File { size_bytes })) = LocalStore.kind(&path) else {
        return Ok(String::new());
    };
    let others = || {
        let files = remains.manifest.verified_files();
        files.filter(|file| file.path != name && file.size_bytes == size_bytes)
    };
    if others().next().is_none() {
        return Ok(String::new());
    }
    let digest = digest_of(&path, attend)?;
    let other = others().find(|file| digest.is_some() && from_hex(file.blake3) == digest);
    Ok(other.map_or_else(String::new, |other| {
        format!("; it holds what {} must hold: give both their names back", other.path)
    }))
}

/// What is wrong with the files beside the shards, `digests.bin` last.
pub(super) fn table_faults(remains: &Remains, attend: Attend<'_>) -> Result<Vec<(String, String)>> {
    let mut faults = Vec::new();
    let shards = remains.shards.len();
    for number in shards..remains.manifest.verified_files().count() {
        let mut file = remains.file(number, attend)?;
        if let Some(fault) = file.fault(attend)? {
            faults.push((file.name().to_owned(), fault));
        }
    }
    let expected = &remains.manifest.digests;
    let path = remains.directory.join(DIGESTS_FILE);
    let fault = match LocalStore.kind(&path)? {
        None => Some("it is missing".to_owned()),
        Some(EntryKind::File { size_bytes }) if size_bytes != expected.size_bytes => {
            Some(format!("it has {size_bytes} bytes; expected {}", expected.size_bytes))
        }
        Some(EntryKind::File { .. }) => match digest_of(&path, attend)? {
            Some(digest) if Some(digest) == from_hex(&expected.blake3) => None,
            _ => Some("its bytes are not those that the manifest names".to_owned()),
        },
        Some(_) => Some("it is not a regular file (links are not followed)".to_owned()),
    };
    faults.extend(fault.map(|fault| (DIGESTS_FILE.to_owned(), fault)));
    Ok(faults)
}

impl Derived {
    /// The derived file of this name.
    pub(super) fn of(file: &str) -> Option<Self> {
        match file {
            INDEX_FILE => Some(Self::Index),
            METADATA_FILE => Some(Self::Metadata),
            DIGESTS_FILE => Some(Self::Digests),
            _ => None,
        }
    }
}
