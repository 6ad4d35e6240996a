//! One file for reading: mapped, or read at offsets. Knows no format.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FileType, fadvise, fstat, fstatfs, lstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::guard::{guarded, unreadable};
use super::identity::{Baseline, FileIdentity};
use super::mapping::{HINT_BYTES, Mapping};
use crate::{Error, Result};

/// How files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Mapped on local disks, read at offsets on network file systems.
    #[default]
    Auto,
    /// Always mapped.
    Mmap,
    /// Always read at offsets: every face copies.
    Pread,
}

/// An open file. The descriptor of a mapped one is closed: the mapping does without.
#[derive(Debug)]
pub struct ReadFile {
    path: PathBuf,
    baseline: Baseline,
    access: Access,
}

#[derive(Debug)]
enum Access {
    Mapped(Mapping),
    Offsets(File),
}

impl ReadFile {
    /// Opens a regular file; a symbolic link in its place is refused.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` for anything that is not a regular file.
    pub fn open(path: &Path, io: IoMode) -> Result<Self> {
        let failed = |e: io::Error| Error::from_io("open", path, &e);
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(e) => match fs::symlink_metadata(path) {
                Ok(meta) if !meta.is_file() => return Err(not_a_file(path)),
                _ => return Err(failed(e)),
            },
        };
        let stat = fstat(&file).map_err(|e| failed(e.into()))?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(not_a_file(path));
        }
        let is_mapped = match io {
            IoMode::Mmap => true,
            IoMode::Pread => false,
            IoMode::Auto => !is_on_network(&file),
        };
        // An empty file cannot be mapped; there is nothing to read in it either.
        let access = if is_mapped && stat.st_size > 0 {
            Access::Mapped(Mapping::new(&file, path)?)
        } else {
            Access::Offsets(file)
        };
        let baseline = Baseline::new(FileIdentity::of(&stat));
        Ok(Self { path: path.to_owned(), baseline, access })
    }

    /// Length when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.baseline.opened().size_bytes()
    }

    /// The mapping, unless the file is read at offsets.
    pub fn mapped(&self) -> Option<&Mapping> {
        match &self.access {
            Access::Mapped(mapping) => Some(mapping),
            Access::Offsets(_) => None,
        }
    }

    /// Fills `out` with the bytes at `offset`.
    ///
    /// # Errors
    /// `Corrupt` when the file ended before that when it was opened, `Conflict` when it was cut
    /// short since.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        let short = || {
            Error::corrupt(format!(
                "{} ends before byte {end}; it had {} bytes when it was opened; restore or \
                 rebuild the cache",
                self.path.display(),
                self.size_bytes()
            ))
        };
        if end > self.size_bytes() {
            return Err(short());
        }
        match &self.access {
            Access::Mapped(mapping) => guarded(|section| {
                let range = offset as usize..end as usize;
                out.copy_from_slice(mapping.bytes(section)?.get(range).ok_or_else(short)?);
                Ok(())
            }),
            Access::Offsets(file) => match file.read_exact_at(out, offset) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(unreadable(&self.path.display().to_string()))
                }
                outcome => outcome.map_err(|e| Error::from_io("read", &self.path, &e)),
            },
        }
    }

    /// Which file this is and how it was when opened.
    pub fn identity(&self) -> FileIdentity {
        self.baseline.opened()
    }

    /// Whether the bytes behind this handle may have changed since it was opened. Removing the
    /// file, or putting another one in its place, does not change what is open or mapped.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn changed(&self) -> Result<bool> {
        let stat = match &self.access {
            Access::Offsets(file) => fstat(file),
            Access::Mapped(_) => lstat(&self.path),
        };
        let now = match stat {
            Ok(stat) => FileIdentity::of(&stat),
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(Error::from_io("look at", &self.path, &e.into())),
        };
        Ok(now.is_same_file(&self.identity()) && !self.baseline.holds(now))
    }

    /// Asks the kernel to read `range` ahead; a hint.
    pub fn advise_willneed(&self, range: Range<u64>) {
        let file = match &self.access {
            Access::Mapped(mapping) => return mapping.advise_willneed(range),
            Access::Offsets(file) => file,
        };
        for start in range.clone().step_by(HINT_BYTES) {
            let len = NonZero::new((range.end - start).min(HINT_BYTES as u64));
            let _ = fadvise(file, start, len, Advice::WillNeed);
        }
    }

    /// Whether the byte at `offset` can be had without waiting for the device; true where that
    /// cannot be told. Unlike `mincore`, this asks nothing of the file's owner and mode.
    pub fn is_resident(&self, offset: u64) -> bool {
        let Access::Offsets(file) = &self.access else { return true };
        let mut byte = [0];
        let mut out = [IoSliceMut::new(&mut byte)];
        preadv2(file, &mut out, offset, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
    }
}

fn not_a_file(path: &Path) -> Error {
    Error::corrupt(format!(
        "{} is not a regular file; expected one (links are not followed); rebuild the cache",
        path.display()
    ))
}

/// Magic numbers of `statfs(2)` whose mapped files may fail with SIGBUS when a server does.
///
/// Those of Linux's `magic.h`, and of file systems outside of the kernel as GNU coreutils has them.
const NETWORK_MAGICS: [u64; 13] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
    0x517b,      // SMB
    0x6573_5546, // FUSE
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x1983_0326, // BeeGFS
    0x2003_0528, // OrangeFS
    0xaad7_aaea, // PanFS
];

fn is_on_network(file: &File) -> bool {
    // Cannot be told: reading by copying is always safe.
    fstatfs(file).map_or(true, |stat| NETWORK_MAGICS.contains(&(stat.f_type as u64 & 0xffff_ffff)))
}
