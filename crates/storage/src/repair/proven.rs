//! A file of which no byte comes out without the proof that it is the writer's. Damage costs the
//! blocks that it lies in. Knows nothing of what the bytes mean.

use std::ops::Range;
use std::path::Path;

use super::region::{Attend, Found, Loss, Region};
use crate::format::digest::{
    Digest, DigestLayout, FileHasher, block_count, block_digest, from_hex, leaf_count, leaves_match,
};
use crate::format::limits::BLOCK_BYTES;
use crate::format::manifest::{DIGESTS_FILE, VerifiedFile};
use crate::store::{IoMode, ReadFile};
use crate::{Error, Kind, Result};

/// Bytes between two looks for signals.
pub(super) const PIECE_BYTES: u64 = 1024 * 1024;

/// `digests.bin`, whatever is left of it.
pub(super) struct Digests {
    file: Option<ReadFile>,
    layout: DigestLayout,
}

impl Digests {
    pub(super) fn open(directory: &Path, layout: DigestLayout) -> Result<Self> {
        let file = open(&directory.join(DIGESTS_FILE))?.ok();
        Ok(Self { file, layout })
    }

    /// Those of files that must all have the sizes they have: else nobody knows whose leaf is
    /// whose.
    pub(super) fn unproven(directory: &Path, layout: DigestLayout) -> Result<Self> {
        let file = open(&directory.join(DIGESTS_FILE))?.ok();
        let file = file.filter(|file| file.size_bytes() == layout.size_bytes());
        Ok(Self { file, layout })
    }

    /// The leaves of file `number`, if they are there; nothing vouches for them.
    pub(super) fn leaves(&self, number: usize, size_bytes: u64) -> Result<Option<Vec<Digest>>> {
        let (Some(file), Some(start)) = (&self.file, self.layout.start(number)) else {
            return Ok(None);
        };
        let end = leaf_count(size_bytes).checked_mul(32).and_then(|len| len.checked_add(start));
        // The file on disk bounds what is allocated.
        let Some(end) = end.filter(|end| *end <= file.size_bytes()) else { return Ok(None) };
        let mut bytes = zeros(end - start)?;
        match read_at(file, start, &mut bytes)? {
            Ok(()) => Ok(Some(bytes.as_chunks().0.to_vec())),
            Err(_) => Ok(None),
        }
    }
}

/// What blocks must hash to.
enum Proof {
    /// The file is one block.
    Root(Digest),
    /// They lead to the root in the manifest, or nothing better is known.
    Leaves(Vec<Digest>),
    /// There is no proof, and the caller goes without.
    None,
}

/// One file and the proof of its blocks: 32 bytes for each block of 64 KiB.
pub(super) struct ProvenFile {
    name: String,
    size_bytes: u64,
    file: Option<ReadFile>,
    proof: Proof,
    /// Why no byte of it is proven.
    lost: Option<String>,
    /// The block read last.
    kept: Option<(u64, Vec<u8>)>,
}

impl ProvenFile {
    /// File number `number` of the cache at `directory`. Reads it once where `digests` has lost
    /// its leaves.
    pub(super) fn open(
        directory: &Path,
        entry: VerifiedFile<'_>,
        number: usize,
        digests: &Digests,
        attend: Attend<'_>,
    ) -> Result<Self> {
        let root = from_hex(entry.blake3)
            .ok_or_else(|| Error::internal("a checked digest is not hexadecimal"))?;
        let mut opened = Self {
            name: entry.path.to_owned(),
            size_bytes: entry.size_bytes,
            file: None,
            proof: Proof::Root(root),
            lost: None,
            kept: None,
        };
        match open(&directory.join(entry.path))? {
            Ok(file) => opened.file = Some(file),
            Err(reason) => opened.lost = Some(reason),
        }
        if leaf_count(entry.size_bytes) == 0 {
            return Ok(opened);
        }
        let is_right = |leaves: &Vec<Digest>| leaves_match(leaves, entry.size_bytes, &root);
        if let Some(leaves) = digests.leaves(number, entry.size_bytes)?.filter(is_right) {
            opened.proof = Proof::Leaves(leaves);
        } else if opened.file.is_some() {
            match opened.hashed(attend)?.filter(is_right) {
                Some(leaves) => opened.proof = Proof::Leaves(leaves),
                None => {
                    opened.lost = Some(
                        "it is damaged, and so are its block digests in digests.bin: nothing \
                         tells which part of it is right"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(opened)
    }

    /// A file that nothing vouches for but leaves of the right number, if there are any.
    pub(super) fn unproven(
        directory: &Path,
        name: &str,
        leaves: Option<Vec<Digest>>,
    ) -> Result<Self> {
        let (file, lost) = match open(&directory.join(name))? {
            Ok(file) => (Some(file), None),
            Err(reason) => (None, Some(reason)),
        };
        let size_bytes = file.as_ref().map_or(0, ReadFile::size_bytes);
        let is_whole = |leaves: &Vec<Digest>| leaves.len() as u64 == leaf_count(size_bytes);
        let proof = match leaves.filter(is_whole).filter(|leaves| !leaves.is_empty()) {
            Some(leaves) => Proof::Leaves(leaves),
            None => Proof::None,
        };
        Ok(Self { name: name.to_owned(), size_bytes, file, proof, lost, kept: None })
    }

    /// A file that nobody has to look for.
    pub(super) fn lost(entry: VerifiedFile<'_>, reason: &str) -> Self {
        Self {
            name: entry.path.to_owned(),
            size_bytes: entry.size_bytes,
            file: None,
            proof: Proof::None,
            lost: Some(reason.to_owned()),
            kept: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that it must have.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn loss(&self, reason: impl Into<String>) -> Loss {
        Loss { file: self.name.clone(), reason: reason.into() }
    }

    /// Bytes that are on disk, right or not.
    pub(super) fn bytes_there(&self) -> u64 {
        self.file.as_ref().map_or(0, ReadFile::size_bytes)
    }

    /// Why no byte of it is there, if so.
    pub(super) fn whole_loss(&self) -> Option<Loss> {
        if let Some(reason) = &self.lost {
            return Some(self.loss(reason.clone()));
        }
        let is_empty = self.readable_end() == 0 && self.size_bytes > 0;
        let found = self.bytes_there();
        let reason = || format!("it ends at byte {found}; expected {} bytes", self.size_bytes);
        is_empty.then(|| self.loss(reason()))
    }

    /// The leaves that lead to the root, if they are known.
    pub(super) fn leaves(&self) -> Option<&[Digest]> {
        match &self.proof {
            Proof::Leaves(leaves) => Some(leaves),
            Proof::Root(_) if leaf_count(self.size_bytes) == 0 => Some(&[]),
            Proof::Root(_) | Proof::None => None,
        }
    }

    /// Fails when the file changed since it was opened: verdicts on it may be wrong.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        match &self.file {
            Some(file) if file.changed()? => Err(Error::conflict(format!(
                "{} changed while it was read; try again when nothing writes there",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Leaves of the bytes that are there; `None` when they are fewer than must be.
    fn hashed(&self, attend: Attend<'_>) -> Result<Option<Vec<Digest>>> {
        let Some(file) = &self.file else { return Ok(None) };
        if file.size_bytes() < self.size_bytes {
            return Ok(None);
        }
        let mut hasher = FileHasher::default();
        let mut piece = Vec::new();
        while hasher.size_bytes() < self.size_bytes {
            attend()?;
            let offset = hasher.size_bytes();
            piece.resize((self.size_bytes - offset).min(PIECE_BYTES) as usize, 0);
            if read_at(file, offset, &mut piece)?.is_err() {
                return Ok(None);
            }
            hasher.update(&piece);
        }
        Ok(Some(hasher.finish().leaves))
    }

    /// What is wrong with the file as a whole; `None` when every byte is proven and none is too
    /// many.
    pub(super) fn fault(&mut self, attend: Attend<'_>) -> Result<Option<String>> {
        if let Some(reason) = &self.lost {
            return Ok(Some(reason.clone()));
        }
        let Some(file) = &self.file else { return Ok(Some("it is missing".to_owned())) };
        let found = file.size_bytes();
        let readable = self.readable_end();
        let blocks = block_count(self.size_bytes);
        let whole = if readable == self.size_bytes { blocks } else { readable / BLOCK_BYTES };
        let mut damaged = Vec::new();
        let mut damaged_total = blocks - whole;
        for block in 0..whole {
            if block.is_multiple_of(PIECE_BYTES / BLOCK_BYTES) {
                attend()?;
            }
            if self.load(block)?.is_err() {
                damaged_total += 1;
                if damaged.len() < BLOCKS_NAMED {
                    damaged.push(block.to_string());
                }
            }
        }
        let size = self.size_bytes;
        Ok(match (damaged_total, damaged.is_empty()) {
            (0, _) if found == size => None,
            (0, _) => Some(format!("it has {found} bytes; expected {size}")),
            (_, true) => Some(format!("it ends at byte {found}; expected {size} bytes")),
            (_, false) => {
                let more = if damaged_total > damaged.len() as u64 { ", ..." } else { "" };
                let blocks_named = damaged.join(", ");
                Some(format!(
                    "{damaged_total} of {blocks} blocks are damaged: {blocks_named}{more}"
                ))
            }
        })
    }

    /// Where the blocks end that are on disk as a whole.
    fn readable_end(&self) -> u64 {
        let found = self.bytes_there();
        if found >= self.size_bytes { self.size_bytes } else { found - found % BLOCK_BYTES }
    }

    /// The proven bytes of one block that is on disk, in `kept`.
    fn load(&mut self, block: u64) -> Result<std::result::Result<(), String>> {
        if self.kept.as_ref().is_some_and(|(kept, _)| *kept == block) {
            return Ok(Ok(()));
        }
        let Some(file) = &self.file else { return Ok(Err("it is missing".to_owned())) };
        let start = block.saturating_mul(BLOCK_BYTES);
        let end = start.saturating_add(BLOCK_BYTES).min(self.size_bytes);
        let mut bytes = self.kept.take().map(|(_, bytes)| bytes).unwrap_or_default();
        bytes.resize((end - start) as usize, 0);
        if let Err(reason) = read_at(file, start, &mut bytes)? {
            return Ok(Err(format!("block {block} cannot be read: {reason}")));
        }
        let expected = match &self.proof {
            Proof::Root(root) => Some(root),
            Proof::Leaves(leaves) => leaves.get(block as usize),
            Proof::None => None,
        };
        let is_right = match (&self.proof, expected) {
            (Proof::None, _) => true,
            (_, expected) => expected == Some(&block_digest(block, &bytes, self.size_bytes)),
        };
        if !is_right {
            return Ok(Err(format!("block {block} (bytes {start} to {end}) is damaged")));
        }
        self.kept = Some((block, bytes));
        Ok(Ok(()))
    }

    /// The bytes of `range`, as far as they are proven.
    pub(super) fn region(&mut self, range: Range<u64>, attend: Attend<'_>) -> Result<Region> {
        let mut region = Region {
            name: self.name.clone(),
            start: range.start,
            bytes: Vec::new(),
            holes: Vec::new(),
        };
        if let Some(reason) = &self.lost {
            region.holes.push((0..u64::MAX, reason.clone()));
            return Ok(region);
        }
        if range.start > range.end || range.end > self.size_bytes {
            let reason = format!("bytes {range:?} lie outside of it");
            region.holes.push((0..u64::MAX, reason));
            return Ok(region);
        }
        let readable = self.readable_end().min(range.end);
        if readable < range.end {
            let found = self.bytes_there();
            let reason = format!("it ends at byte {found}; expected {} bytes", self.size_bytes);
            region.holes.push((readable..u64::MAX, reason));
        }
        reserve(&mut region.bytes, readable.saturating_sub(range.start))?;
        let mut at = range.start;
        while at < readable {
            let block = at / BLOCK_BYTES;
            if block.is_multiple_of(PIECE_BYTES / BLOCK_BYTES) {
                attend()?;
            }
            let first = block * BLOCK_BYTES;
            let end = (first + BLOCK_BYTES).min(readable);
            let loaded = self.load(block)?;
            let part = (at - first) as usize..(end - first) as usize;
            match (loaded, self.kept.as_ref().and_then(|(_, bytes)| bytes.get(part.clone()))) {
                (Ok(()), Some(bytes)) => region.bytes.extend_from_slice(bytes),
                (Ok(()), None) => return Err(Error::internal("a block is shorter than it is")),
                (Err(reason), _) => {
                    region.holes.push((at..end, reason));
                    region.bytes.resize(region.bytes.len() + part.len(), 0);
                }
            }
            at = end;
        }
        Ok(region)
    }

    /// The bytes of `range`, all of them proven.
    pub(super) fn read(&mut self, range: Range<u64>, attend: Attend<'_>) -> Result<Found<Vec<u8>>> {
        let region = self.region(range.clone(), attend)?;
        Ok(region.get(range).map(|_| ()).map(|()| region.bytes))
    }
}

/// Damaged blocks named one by one.
const BLOCKS_NAMED: usize = 8;

/// The open file, or why it is lost: it is not there, or is no regular file.
fn open(path: &Path) -> Result<std::result::Result<ReadFile, String>> {
    match ReadFile::open(path, IoMode::Pread) {
        Ok(file) => Ok(Ok(file)),
        Err(error) => match error.kind() {
            Kind::NotFound => Ok(Err("it is missing".to_owned())),
            Kind::Corrupt => {
                Ok(Err("it is not a regular file (links are not followed)".to_owned()))
            }
            _ => Err(error),
        },
    }
}

/// Fills `out`, or says why the disk does not give these bytes.
pub(super) fn read_at(
    file: &ReadFile,
    offset: u64,
    out: &mut [u8],
) -> Result<std::result::Result<(), String>> {
    match file.read_at(offset, out) {
        Ok(()) => Ok(Ok(())),
        // A sector that is gone is damage like any other.
        Err(error) if error.kind() == Kind::Unavailable => Ok(Err(error.message().to_owned())),
        Err(error) if error.kind() == Kind::Corrupt => {
            Ok(Err("the file ends before it".to_owned()))
        }
        Err(error) => Err(error),
    }
}

fn zeros(len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reserve(&mut bytes, len)?;
    bytes.resize(len as usize, 0);
    Ok(bytes)
}

/// Room for `len` bytes more; a refusal instead of an abort if there is none.
pub(super) fn reserve(bytes: &mut Vec<u8>, len: u64) -> Result<()> {
    let room = usize::try_from(len).unwrap_or(usize::MAX);
    bytes.try_reserve(room).map_err(|_| {
        Error::new(Kind::Exhausted, format!("no memory for {len} bytes; free some and retry"))
    })
}
