//! Named sections in one piece of shared memory. Knows nothing of what they hold.
//!
//! ```text
//! section, each at a multiple of 64 bytes ... | head: JSON | magic, place and BLAKE3 of the head
//! ```
//! The head has the BLAKE3 of all sections, so that the digest of the head names the contents:
//! whoever was told that name knows by reading the head alone that this is the memory meant.
//! Sections themselves are not hashed again: nobody can change sealed memory.

use std::collections::BTreeMap;
use std::io::{self, Write};

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer, ToByteSlice};
use dataset_rt_storage::store::{MemoryFile, MemoryWriter};
use dataset_rt_storage::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// Of every section, so that numbers in it are aligned whatever their type.
const ALIGNMENT: u64 = 64;
const MAGIC: &[u8; 16] = b"dataset_rt memo\n";
const FOOT_BYTES: usize = 64;

#[derive(Serialize, Deserialize)]
struct Head {
    /// The release that wrote it: only the same one reads it.
    release: String,
    /// Hexadecimal BLAKE3 of everything in front of the head.
    content: String,
    /// Start and length in bytes.
    sections: BTreeMap<String, (u64, u64)>,
    /// What the sections mean.
    meaning: serde_json::Value,
}

/// Memory being filled, section by section.
pub struct SectionWriter {
    memory: MemoryWriter,
    hasher: blake3::Hasher,
    sections: BTreeMap<String, (u64, u64)>,
}

impl SectionWriter {
    /// Nothing yet.
    ///
    /// # Errors
    /// As the system fails.
    pub fn create() -> Result<Self> {
        let memory = MemoryWriter::create()?;
        Ok(Self { memory, hasher: blake3::Hasher::new(), sections: BTreeMap::new() })
    }

    /// Adds a section that `fill` writes.
    ///
    /// # Errors
    /// As `fill` fails.
    pub fn section(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let over = self.memory.size_bytes() % ALIGNMENT;
        if over > 0 {
            let padding = [0; ALIGNMENT as usize];
            self.put(&padding[..(ALIGNMENT - over) as usize])?;
        }
        let start = self.memory.size_bytes();
        fill(self)?;
        self.sections.insert(name.to_owned(), (start, self.memory.size_bytes() - start));
        Ok(())
    }

    /// Adds a section of numbers.
    ///
    /// # Errors
    /// As the system fails, or what `attend` returned, which is called many times a second.
    pub fn numbers<T: ArrowNativeType>(
        &mut self,
        name: &str,
        numbers: &[T],
        attend: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        const PIECE_NUMBERS: usize = 1 << 19;
        self.section(name, |writer| {
            for piece in numbers.chunks(PIECE_NUMBERS) {
                attend()?;
                writer.put(piece.to_byte_slice())?;
            }
            Ok(())
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(|e| not_written(&e))
    }

    /// Adds what the sections mean, and closes the memory for ever.
    ///
    /// # Errors
    /// As the system fails.
    pub fn finish(mut self, meaning: serde_json::Value) -> Result<(MemoryFile, String)> {
        let head = Head {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            content: self.hasher.finalize().to_hex().to_string(),
            sections: std::mem::take(&mut self.sections),
            meaning,
        };
        let head = serde_json::to_vec(&head).map_err(|e| Error::internal(e.to_string()))?;
        let start = self.memory.size_bytes();
        let name = blake3::hash(&head);
        self.put(&head)?;
        let mut foot = [0; FOOT_BYTES];
        foot[..16].copy_from_slice(MAGIC);
        foot[16..24].copy_from_slice(&start.to_le_bytes());
        foot[24..32].copy_from_slice(&(head.len() as u64).to_le_bytes());
        foot[32..].copy_from_slice(name.as_bytes());
        self.put(&foot)?;
        Ok((self.memory.finish()?, name.to_hex().to_string()))
    }
}

impl Write for SectionWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.memory.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error for memory that could not be written.
pub fn not_written(error: &io::Error) -> Error {
    Error::from_io("write a table into", std::path::Path::new("shared memory"), error)
}

/// Sections of finished memory.
pub struct Sections {
    bytes: Buffer,
    head: Head,
}

impl Sections {
    /// Looks into memory that must be the one called `name`.
    ///
    /// # Errors
    /// `NotFound` when it is another one, `Unsupported` when another release wrote it.
    pub fn read(memory: &MemoryFile, name: &str) -> Result<Self> {
        let bytes = memory.bytes().clone();
        let other = |what: &str| {
            Error::new(
                Kind::NotFound,
                format!(
                    "the shared memory of this dataset's table is not there: {what} (expected the \
                     one named {name}); pickle the dataset again, or use dump_config() to rebuild \
                     it when its process is gone"
                ),
            )
        };
        let foot = bytes.len().checked_sub(FOOT_BYTES).and_then(|start| bytes.get(start..));
        let foot = foot.filter(|foot| foot[..16] == MAGIC[..]).ok_or_else(|| other("no table"))?;
        let number = |at: usize| {
            let word = foot[at..at + 8].try_into().unwrap_or_default();
            usize::try_from(u64::from_le_bytes(word)).unwrap_or(usize::MAX)
        };
        let (start, len) = (number(16), number(24));
        let head = start.checked_add(len).and_then(|end| bytes.get(start..end));
        let head = head.ok_or_else(|| other("its head is not in it"))?;
        let found = blake3::hash(head);
        if foot[32..] != found.as_bytes()[..] || found.to_hex().as_str() != name {
            return Err(other(&format!("found the one named {}", found.to_hex())));
        }
        let head: Head = serde_json::from_slice(head)
            .map_err(|e| other(&format!("its head is damaged: {e}")))?;
        if head.release != env!("CARGO_PKG_VERSION") {
            return Err(Error::unsupported(format!(
                "the dataset was pickled by release {} and is unpickled by {}; use one release in \
                 all processes",
                head.release,
                env!("CARGO_PKG_VERSION")
            )));
        }
        Ok(Self { bytes, head })
    }

    /// What the sections mean.
    pub fn meaning(&self) -> &serde_json::Value {
        &self.head.meaning
    }

    /// The bytes of a section; `None` when there is none of that name.
    pub fn section(&self, name: &str) -> Option<Buffer> {
        let &(start, len) = self.head.sections.get(name)?;
        let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
        let is_inside = start.checked_add(len)? <= self.bytes.len();
        is_inside.then(|| self.bytes.slice_with_length(start, len))
    }

    /// A section of numbers.
    pub fn numbers<T: ArrowNativeType>(&self, name: &str) -> Option<ScalarBuffer<T>> {
        let section = self.section(name)?;
        let is_whole = section.len().is_multiple_of(size_of::<T>())
            && (section.as_ptr() as usize).is_multiple_of(align_of::<T>());
        is_whole.then(|| ScalarBuffer::from(section))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (MemoryFile, String) {
        let mut writer = SectionWriter::create().unwrap();
        let mut attend = || Ok(());
        writer.section("text", |out| out.put(b"abc")).unwrap();
        writer.numbers("numbers", &[1_u64, 2, 3], &mut attend).unwrap();
        writer.finish(serde_json::json!({"rows": 3})).unwrap()
    }

    #[test]
    fn sections_come_back() {
        let (memory, name) = written();
        let sections = Sections::read(&memory, &name).unwrap();
        assert_eq!(sections.meaning()["rows"], 3);
        assert_eq!(sections.section("text").unwrap().as_slice(), b"abc");
        assert_eq!(sections.numbers::<u64>("numbers").unwrap().to_vec(), [1, 2, 3]);
        assert!(sections.section("other").is_none());
        assert!(sections.numbers::<u64>("text").is_none());
    }

    #[test]
    fn other_memory_is_refused() {
        let (memory, name) = written();
        let other = format!("{}{}", if name.starts_with('0') { "1" } else { "0" }, &name[1..]);
        assert_eq!(Sections::read(&memory, &other).err().unwrap().kind(), Kind::NotFound);
        for bytes in [&b""[..], b"short", &[0; 200]] {
            let mut foreign = MemoryWriter::create().unwrap();
            foreign.write_all(bytes).unwrap();
            let found = Sections::read(&foreign.finish().unwrap(), &name);
            assert_eq!(found.err().unwrap().kind(), Kind::NotFound);
        }
    }

    #[test]
    fn any_changed_byte_of_head_and_foot_is_refused() {
        let (memory, name) = written();
        let bytes = memory.bytes().to_vec();
        let foot = bytes.len() - FOOT_BYTES;
        let head = u64::from_le_bytes(bytes[foot + 16..foot + 24].try_into().unwrap());
        for i in head as usize..bytes.len() {
            let mut changed = bytes.clone();
            changed[i] ^= 1;
            let mut foreign = MemoryWriter::create().unwrap();
            foreign.write_all(&changed).unwrap();
            let found = Sections::read(&foreign.finish().unwrap(), &name);
            assert_eq!(found.err().unwrap().kind(), Kind::NotFound, "byte {i}");
        }
    }
}
