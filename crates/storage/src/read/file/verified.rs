//! One file of a cache: no byte of it is handed out before its block agreed with the manifest.
//! Knows nothing of what the bytes mean.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;

use super::advice;
use super::chain::Chain;
use super::kept::KeptBlocks;
use super::lazy_file::LazyFile;
use crate::format::digest::{Digest, block_count, block_digest, leaf_count, to_hex};
use crate::format::limits::BLOCK_BYTES;
use crate::store::Section;
use crate::{Error, Result};

/// Unverified blocks read by one `pread`: 1 MiB amortises the call and stays in the L2 cache
/// between reading and hashing.
const BLOCKS_PER_READ: u64 = 16;

/// A file, and which of its blocks this process has checked.
pub(in crate::read) struct VerifiedFile {
    file: LazyFile,
    root: Digest,
    number: usize,
    /// `None` when the caller asked not to verify.
    chain: Option<Arc<Chain>>,
    checks: OnceLock<Checks>,
    kept: OnceLock<KeptBlocks>,
}

/// A mapped file, for many small reads.
#[derive(Clone, Copy)]
pub(in crate::read) struct MappedView<'a> {
    section: Section<'a>,
    file: &'a VerifiedFile,
    bytes: &'a [u8],
    checks: Option<&'a Checks>,
}

/// What the blocks must hash to, and which of them did.
struct Checks {
    /// The file's leaves, 32 bytes each: part of the mapped `digests.bin`, or a copy. Empty for
    /// a file of one block, whose root says all.
    leaves: Buffer,
    /// One bit per block, set once its bytes agreed with the chain.
    verified: Box<[AtomicU64]>,
}

impl VerifiedFile {
    /// File `number` in manifest order, whose BLAKE3 is `root`.
    pub fn new(file: LazyFile, root: Digest, number: usize, chain: Option<Arc<Chain>>) -> Self {
        Self { file, root, number, chain, checks: OnceLock::new(), kept: OnceLock::new() }
    }

    /// Path relative to the cache directory.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// Length in bytes that the manifest states and the file had at open.
    pub fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    /// Whether ranges come from a mapping, without copy. Opens the file.
    pub fn is_mapped(&self) -> Result<bool> {
        self.file.is_mapped()
    }

    /// The verified bytes of `range` of a mapped file.
    pub fn slice<'a>(&'a self, section: Section<'a>, range: Range<u64>) -> Result<&'a [u8]> {
        let mapped = self.file.mapped(section)?;
        let mapped =
            mapped.ok_or_else(|| Error::internal(format!("{} is not mapped", self.name())))?;
        let place = self.file.check_range(&range)?;
        self.verify_mapped(section, mapped, &range)?;
        mapped.get(place).ok_or_else(|| self.file.out_of_range(&range))
    }

    /// The mapped file with what [`VerifiedFile::slice`] looks up each time; `None` where it is
    /// not mapped.
    pub fn view<'a>(&'a self, section: Section<'a>) -> Result<Option<MappedView<'a>>> {
        Ok(match self.file.mapped(section)? {
            None => None,
            Some(bytes) => {
                Some(MappedView { section, file: self, bytes, checks: self.checks(section)? })
            }
        })
    }

    /// [`VerifiedFile::view`] where nothing has to be opened or read for it.
    #[inline]
    pub fn view_at_hand<'a>(&'a self, section: Section<'a>) -> Option<MappedView<'a>> {
        let bytes = self.file.mapped_already(section)?;
        let checks = match &self.chain {
            None => None,
            Some(_) => Some(self.checks.get()?),
        };
        Some(MappedView { section, file: self, bytes, checks })
    }

    /// The verified bytes of `range`: shared with the mapping, or read. What touches shared ones
    /// does so in a section, or is nobody of ours.
    pub fn buffer(&self, section: Section<'_>, range: Range<u64>) -> Result<Buffer> {
        self.file.check_range(&range)?;
        if let Some(mapped) = self.file.mapped(section)? {
            self.verify_mapped(section, mapped, &range)?;
            return self.file.view(&range);
        }
        let mut bytes = Vec::new();
        self.read_append(section, range, &mut bytes, &mut Vec::new())?;
        Ok(Buffer::from_vec(bytes))
    }

    /// `range` of a mapped file, for views into it: whoever makes one verifies what it shows.
    pub fn unverified_view(&self, range: &Range<u64>) -> Result<Buffer> {
        self.file.view(range)
    }

    /// The verified bytes of `range`: borrowed from the mapping, or read.
    pub fn read<'a>(&'a self, section: Section<'a>, range: Range<u64>) -> Result<Cow<'a, [u8]>> {
        if self.is_mapped()? {
            return self.slice(section, range).map(Cow::Borrowed);
        }
        self.file.check_range(&range)?;
        let mut bytes = Vec::new();
        self.read_append(section, range, &mut bytes, &mut Vec::new())?;
        Ok(Cow::Owned(bytes))
    }

    /// The verified bytes of a small `range` of a file that is not mapped, from the blocks that are
    /// kept; `None` when it is in none of them.
    pub fn kept(&self, section: Section<'_>, range: &Range<u64>) -> Result<Option<&[u8]>> {
        let block = range.start / BLOCK_BYTES;
        let place = self.block_range(block);
        if range.end > place.end || range.start >= range.end {
            return Ok(None);
        }
        let blocks = match self.kept.get() {
            Some(blocks) => blocks,
            None => {
                let _ = self.kept.set(KeptBlocks::new(block_count(self.size_bytes())));
                let Some(blocks) = self.kept.get() else { return Ok(None) };
                blocks
            }
        };
        let read = || {
            let mut bytes = Vec::new();
            self.read_append(section, place.clone(), &mut bytes, &mut Vec::new())?;
            Ok(bytes)
        };
        let found = match blocks.get(block) {
            Some(found) => Some(found),
            None => blocks.keep(block, place.end - place.start, read)?,
        };
        let part = (range.start - place.start) as usize..(range.end - place.start) as usize;
        Ok(found.and_then(|found| found.get(part)))
    }

    /// Whether the first byte of `range` is in memory; true where that cannot be told.
    pub fn is_resident(&self, range: &Range<u64>) -> bool {
        self.file.is_resident(range.start)
    }

    /// Appends the verified bytes of `range` to `out`; `scratch` holds blocks met for the first
    /// time, which are read whole so that the bytes hashed are the bytes handed out.
    pub fn read_append(
        &self,
        section: Section<'_>,
        range: Range<u64>,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let place = self.file.check_range(&range)?;
        out.try_reserve(place.len())
            .map_err(|_| crate::read::expansion::too_large(place.len() as u64))?;
        if self.is_mapped()? {
            out.extend_from_slice(self.slice(section, range)?);
            return Ok(());
        }
        let start = out.len();
        out.resize(start + place.len(), 0);
        self.read_into(section, range, out.get_mut(start..).unwrap_or_default(), scratch)
    }

    /// Fills `target` with the verified bytes of `range`, which is as long, of a file that is not
    /// mapped; `scratch` as in [`VerifiedFile::read_append`].
    pub fn read_into(
        &self,
        section: Section<'_>,
        range: Range<u64>,
        target: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        match self.checks(section)? {
            None => self.file.read_at(range.start, target),
            Some(checks) => self.read_checked(section, checks, range, target, scratch),
        }
    }

    /// Whether every block of `range` was verified already, so that touching it costs no hashing.
    pub fn is_verified(&self, range: &Range<u64>) -> bool {
        match (&self.chain, self.checks.get()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(_), Some(checks)) => blocks_of(range).all(|block| checks.is_verified(block)),
        }
    }

    /// Asks the kernel to read the blocks of `range` ahead; a hint whose failure costs speed only.
    pub fn advise_willneed(&self, range: &Range<u64>) {
        let blocks = blocks_of(range);
        let end = blocks.end.saturating_mul(BLOCK_BYTES).min(self.size_bytes());
        self.file.advise_willneed(blocks.start.saturating_mul(BLOCK_BYTES)..end);
    }

    /// Fails when the file changed since it was opened: what was copied out of it before this
    /// call may be wrong.
    ///
    /// # Errors
    /// `Conflict` when it changed, `Unavailable` when that cannot be told.
    pub fn check_unchanged(&self) -> Result<()> {
        self.file.check_unchanged()
    }

    fn checks(&self, section: Section<'_>) -> Result<Option<&Checks>> {
        if let Some(checks) = self.checks.get() {
            return Ok(Some(checks));
        }
        let Some(chain) = &self.chain else { return Ok(None) };
        let (name, size) = (self.name(), self.size_bytes());
        let leaves = chain.leaves(section, self.number, name, size, &self.root)?;
        let words = block_count(self.size_bytes()).div_ceil(64) as usize;
        let verified = (0..words).map(|_| AtomicU64::new(0)).collect();
        // Never `get_or_init`: a thread lost to `fork` in the middle of it would block its child.
        let _ = self.checks.set(Checks { leaves, verified });
        Ok(self.checks.get())
    }

    fn verify_mapped(&self, section: Section<'_>, mapped: &[u8], range: &Range<u64>) -> Result<()> {
        let Some(checks) = self.checks(section)? else { return Ok(()) };
        for block in blocks_of(range) {
            if !checks.is_verified(block) {
                let place = self.block_range(block);
                let bytes = mapped.get(place.start as usize..place.end as usize);
                let bytes = bytes.ok_or_else(|| self.file.out_of_range(&place))?;
                self.verify_block(section, checks, block, bytes)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn verify_block(
        &self,
        _leaves: Section<'_>,
        checks: &Checks,
        block: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let found = block_digest(block, bytes, self.size_bytes());
        let expected = if leaf_count(self.size_bytes()) == 0 {
            self.root
        } else {
            let leaf = checks.leaves.as_chunks::<32>().0.get(block as usize).copied();
            leaf.ok_or_else(|| Error::internal(format!("no leaf for block {block}")))?
        };
        if found != expected {
            let place = self.block_range(block);
            return Err(Error::corrupt(format!(
                "{} is damaged in block {block}, bytes {}..{}: {}; found digest {}, expected {}",
                self.name(),
                place.start,
                place.end,
                advice(self.name()),
                to_hex(&found),
                to_hex(&expected)
            )));
        }
        checks.set_verified(block);
        Ok(())
    }

    fn block_range(&self, block: u64) -> Range<u64> {
        let start = block.saturating_mul(BLOCK_BYTES);
        start..start.saturating_add(BLOCK_BYTES).min(self.size_bytes())
    }

    /// Fills `target` with `range`: runs of verified blocks by one read, others whole.
    fn read_checked(
        &self,
        section: Section<'_>,
        checks: &Checks,
        range: Range<u64>,
        target: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let blocks = blocks_of(&range);
        let mut block = blocks.start;
        while block < blocks.end {
            let known = checks.is_verified(block);
            let limit = if known { blocks.end } else { blocks.end.min(block + BLOCKS_PER_READ) };
            let run_end =
                (block + 1..limit).find(|&next| checks.is_verified(next) != known).unwrap_or(limit);
            let run = block.saturating_mul(BLOCK_BYTES)..self.block_range(run_end - 1).end;
            let wanted = run.start.max(range.start)..run.end.min(range.end);
            let place = (wanted.start - range.start) as usize..(wanted.end - range.start) as usize;
            let target = target.get_mut(place).ok_or_else(|| self.file.out_of_range(&wanted))?;
            if known {
                self.file.read_at(wanted.start, target)?;
            } else {
                scratch.resize((run.end - run.start) as usize, 0);
                self.file.read_at(run.start, scratch)?;
                for (index, bytes) in scratch.chunks(BLOCK_BYTES as usize).enumerate() {
                    self.verify_block(section, checks, block + index as u64, bytes)?;
                }
                let from = (wanted.start - run.start) as usize;
                let bytes = scratch.get(from..from + target.len());
                target.copy_from_slice(bytes.ok_or_else(|| self.file.out_of_range(&wanted))?);
            }
            block = run_end;
        }
        Ok(())
    }
}

impl<'a> MappedView<'a> {
    /// The verified bytes of `range`: two comparisons and one atomic load once they were touched.
    #[inline]
    pub fn get(&self, range: Range<u64>) -> Result<&'a [u8]> {
        let last = range.end.wrapping_sub(1) / BLOCK_BYTES;
        let is_known = range.start / BLOCK_BYTES == last
            && self.checks.is_none_or(|checks| checks.is_verified(last));
        match self.bytes.get(range.start as usize..range.end as usize) {
            Some(bytes) if is_known => Ok(bytes),
            _ => {
                // One read of a block instead of one for each page that hashing touches.
                if !self.file.is_verified(&range) {
                    self.file.advise_willneed(&range);
                }
                self.file.slice(self.section, range)
            }
        }
    }
}

impl<'a> MappedView<'a> {
    /// The bytes of `range` where all of its blocks were verified before.
    #[inline]
    pub fn at_hand(&self, range: Range<u64>) -> Option<&'a [u8]> {
        let is_verified =
            |checks: &Checks| blocks_of(&range).all(|block| checks.is_verified(block));
        let bytes = self.bytes.get(range.start as usize..range.end as usize)?;
        self.checks.is_none_or(is_verified).then_some(bytes)
    }
}

impl Checks {
    #[inline]
    fn is_verified(&self, block: u64) -> bool {
        self.verified
            .get((block / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (block % 64) & 1 == 1)
    }

    fn set_verified(&self, block: u64) {
        if let Some(word) = self.verified.get((block / 64) as usize) {
            word.fetch_or(1 << (block % 64), Ordering::Release);
        }
    }
}

/// Blocks that `range` touches; none for an empty range.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    if range.start >= range.end {
        return 0..0;
    }
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}
