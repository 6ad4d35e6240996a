//! From the manifest's root of a file down to the digests of its blocks, by way of `digests.bin`.
//! Knows nothing of the blocks themselves.

use arrow_buffer::Buffer;

use super::advice;
use super::lazy_file::LazyFile;
use crate::format::digest::{
    DIGESTS_HEADER_BYTES, Digest, DigestLayout, leaf_count, leaves_match, to_hex,
};
use crate::store::Section;
use crate::{Error, Result};

/// `digests.bin` of an open cache.
pub(in crate::read) struct Chain {
    file: LazyFile,
    layout: DigestLayout,
}

impl Chain {
    /// The digests of files laid out as `layout` says.
    pub fn new(file: LazyFile, layout: DigestLayout) -> Self {
        Self { file, layout }
    }

    /// The leaves of file `number`, 32 bytes each, once they lead to `root`; empty for a file of
    /// one block. They are shared with the mapping: a copy would cost 0.05 % of all data.
    ///
    /// # Errors
    /// `Corrupt` when header or leaves are not those the manifest stands for.
    pub fn leaves(
        &self,
        _inside: Section<'_>,
        number: usize,
        name: &str,
        size_bytes: u64,
        root: &Digest,
    ) -> Result<Buffer> {
        let leaves = leaf_count(size_bytes);
        if leaves == 0 {
            return Ok(Buffer::default());
        }
        self.check_header()?;
        let start = self.layout.start(number);
        let end = start.and_then(|start| leaves.checked_mul(32)?.checked_add(start));
        let bytes = match (start, end) {
            (Some(start), Some(end)) => {
                self.file.advise_willneed(start..end);
                self.file.buffer(start..end)?
            }
            _ => return Err(Error::internal(format!("no place for the leaves of {name}"))),
        };
        let (whole, rest) = bytes.as_chunks::<32>();
        if !rest.is_empty() || !leaves_match(whole, size_bytes, root) {
            return Err(Error::corrupt(format!(
                "{} is damaged: {}; its block digests of {name} do not lead to the digest in the \
                 manifest, expected {}",
                self.file.name(),
                advice(self.file.name()),
                to_hex(root)
            )));
        }
        Ok(bytes)
    }

    fn check_header(&self) -> Result<()> {
        let found = self.file.buffer(0..DIGESTS_HEADER_BYTES)?;
        if found.as_slice() != self.layout.header() {
            return Err(Error::corrupt(format!(
                "{} is damaged: {}; its header is not the one the manifest asks for",
                self.file.name(),
                advice(self.file.name())
            )));
        }
        Ok(())
    }
}
