//! Memory with a descriptor, which other processes map instead of getting a copy. Knows nothing of
//! what lies in it.
//!
//! On Linux it is a `memfd`, sealed when it is complete: nobody, not even its maker, can write to
//! it, cut it short or make it longer any more, so that mapped bytes are what they were and no
//! page of them can be lost. It needs no name and no place on a disk, and is gone with the last
//! process that holds it, however that ends. Elsewhere it is a temporary file without a name, whose
//! readers copy it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use arrow_buffer::{Buffer, MutableBuffer};

use super::mapping::Mapping;
use crate::{Error, Kind, Result};

/// Shown by the kernel in `/proc`, and asked for by whoever opens one there.
#[cfg(target_os = "linux")]
const NAME: &str = "dataset_rt";

/// A memory file being written.
pub struct MemoryWriter {
    file: File,
    size: u64,
}

impl MemoryWriter {
    /// An empty one.
    ///
    /// # Errors
    /// As the system fails.
    pub fn create() -> Result<Self> {
        Ok(Self { file: create().map_err(|e| failed("make", &e))?, size: 0 })
    }

    /// Bytes written so far.
    pub fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Ends writing for ever.
    ///
    /// # Errors
    /// As the system fails.
    pub fn finish(self) -> Result<MemoryFile> {
        seal(&self.file).map_err(|e| failed("seal", &e))?;
        MemoryFile::new(self.file)
    }
}

impl Write for MemoryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A complete memory file.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    bytes: Buffer,
}

impl MemoryFile {
    fn new(file: File) -> Result<Self> {
        let size = file.metadata().map_err(|e| failed("look at", &e))?.len();
        let bytes = if size > 0 && is_sealed(&file) {
            Mapping::new(&file, &place())?.view()?
        } else {
            copied(&file, size)?
        };
        Ok(Self { file, bytes })
    }

    /// The memory file behind an open descriptor, which stays the caller's.
    ///
    /// # Errors
    /// As the system fails, for example when nothing is open there.
    pub fn from_descriptor(descriptor: RawFd) -> Result<Self> {
        Self::new(duplicate(descriptor)?)
    }

    /// The memory file that another living process of this user has open as `descriptor`.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Unsupported` where processes cannot be looked into.
    #[cfg(target_os = "linux")]
    pub fn of_process(process: u32, descriptor: RawFd) -> Result<Self> {
        let path = PathBuf::from(format!("/proc/{process}/fd/{descriptor}"));
        // Looked at before it is opened: opening a device or a pipe would do something.
        let link = std::fs::read_link(&path).map_err(|e| Error::from_io("find", &path, &e))?;
        if !link.to_string_lossy().starts_with(&format!("/memfd:{NAME}")) {
            let text = format!("{} is {}, not shared memory", path.display(), link.display());
            return Err(Error::new(Kind::NotFound, text));
        }
        let file = File::open(&path).map_err(|e| Error::from_io("open", &path, &e))?;
        let meta = file.metadata().map_err(|e| Error::from_io("look at", &path, &e))?;
        if !meta.is_file() || meta.nlink() != 0 || !is_sealed(&file) {
            let text = format!("{} is not shared memory of ours", path.display());
            return Err(Error::new(Kind::NotFound, text));
        }
        Self::new(file)
    }

    /// The memory file that another living process of this user has open as `descriptor`.
    ///
    /// # Errors
    /// `Unsupported`: only Linux lets processes be looked into.
    #[cfg(not(target_os = "linux"))]
    pub fn of_process(_process: u32, _descriptor: RawFd) -> Result<Self> {
        Err(Error::unsupported(
            "this system hands tables over to processes only while they are started",
        ))
    }

    /// The same memory behind a descriptor of its own.
    ///
    /// # Errors
    /// As the system fails.
    pub fn try_clone(&self) -> Result<Self> {
        let file = self.file.try_clone().map_err(|e| failed("duplicate", &e))?;
        Ok(Self { file, bytes: self.bytes.clone() })
    }

    /// Its descriptor, open as long as this lives.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// All its bytes: mapped where nobody can change them, otherwise copied.
    pub fn bytes(&self) -> &Buffer {
        &self.bytes
    }
}

/// An open file of our own for a descriptor that stays the caller's.
///
/// # Errors
/// As the system fails, for example when nothing is open there.
pub(super) fn duplicate(descriptor: RawFd) -> Result<File> {
    if descriptor < 0 {
        return Err(Error::invalid(format!("descriptor {descriptor}; expected 0 or more")));
    }
    // SAFETY: it is borrowed for one `dup`, and a number that is not open makes that fail.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let owned = borrowed.try_clone_to_owned().map_err(|e| failed("take over", &e))?;
    Ok(File::from(owned))
}

fn place() -> PathBuf {
    PathBuf::from("shared memory")
}

pub(super) fn failed(verb: &str, error: &io::Error) -> Error {
    Error::from_io(verb, Path::new("shared memory"), error)
}

fn copied(file: &File, size: u64) -> Result<Buffer> {
    let size = usize::try_from(size).map_err(|_| Error::invalid("too large for this machine"))?;
    let mut bytes = MutableBuffer::from_len_zeroed(size);
    file.read_exact_at(bytes.as_slice_mut(), 0).map_err(|e| failed("read", &e))?;
    Ok(bytes.into())
}

/// An empty file without a name, open for reading and writing.
#[cfg(target_os = "linux")]
pub(super) fn create() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Some systems insist on memory that cannot be executed, and some do not know the flag.
    match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => Ok(File::from(memfd_create(NAME, flags)?)),
        made => Ok(File::from(made?)),
    }
}

#[cfg(target_os = "linux")]
fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    Ok(fcntl_add_seals(file, complete() | SealFlags::SEAL)?)
}

#[cfg(target_os = "linux")]
fn complete() -> rustix::fs::SealFlags {
    use rustix::fs::SealFlags;
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE
}

#[cfg(target_os = "linux")]
fn is_sealed(file: &File) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(complete()))
}

/// An empty file without a name, open for reading and writing.
#[cfg(not(target_os = "linux"))]
pub(super) fn create() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".dataset_rt-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::OpenOptions::new();
        match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            opened => {
                let file = opened?;
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn seal(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn is_sealed(_file: &File) -> bool {
    false
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> MemoryFile {
        let mut writer = MemoryWriter::create().unwrap();
        writer.write_all(bytes).unwrap();
        assert_eq!(writer.size_bytes(), bytes.len() as u64);
        writer.finish().unwrap()
    }

    #[test]
    fn a_complete_file_can_no_longer_be_changed_by_anybody() {
        let file = of(b"table");
        let path = format!("/proc/self/fd/{}", file.descriptor());
        let again = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        for outcome in [again.set_len(0), again.set_len(99), (&again).write_all(b"x")] {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(file.bytes().as_slice(), b"table");
    }

    #[test]
    fn descriptors_and_processes_lead_to_the_same_bytes() {
        let file = of(b"table");
        let others = [
            file.try_clone().unwrap(),
            MemoryFile::from_descriptor(file.descriptor()).unwrap(),
            MemoryFile::of_process(std::process::id(), file.descriptor()).unwrap(),
        ];
        drop(file);
        for other in others {
            assert_eq!(other.bytes().as_slice(), b"table");
        }
    }

    #[test]
    fn what_is_no_shared_memory_is_refused() {
        let file = of(b"table");
        let gone = file.descriptor();
        drop(file);
        assert!(MemoryFile::from_descriptor(-1).is_err());
        let plain = tempfile::tempfile().unwrap();
        for descriptor in [gone, plain.as_raw_fd(), i32::MAX] {
            let error = MemoryFile::of_process(std::process::id(), descriptor).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound, "{error}");
        }
        let unsealed = MemoryWriter::create().unwrap();
        let descriptor = unsealed.file.as_raw_fd();
        assert!(MemoryFile::of_process(std::process::id(), descriptor).is_err());
    }

    #[test]
    fn a_file_that_may_still_change_is_copied() {
        let mut unsealed = MemoryWriter::create().unwrap();
        unsealed.write_all(b"table").unwrap();
        let file = MemoryFile::from_descriptor(unsealed.file.as_raw_fd()).unwrap();
        unsealed.file.set_len(0).unwrap();
        assert_eq!(file.bytes().as_slice(), b"table");
    }
}
