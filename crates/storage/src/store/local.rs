//! The real file system. Decides no names and no order of operations.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::lock::{DirLock, try_lock};
use super::{EntryKind, Store, StoreFile};
use crate::{Error, Result};

/// Writes through the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalStore;

impl Store for LocalStore {
    fn create_dir(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(|e| Error::from_io("create the directory", path, &e))
    }

    fn create_file(&self, path: &Path) -> Result<Box<dyn StoreFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|e| Error::from_io("create", path, &e))?;
        Ok(Box::new(LocalFile { file, path: path.to_owned(), size: 0, begun: 0, failed: None }))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        match File::open(path).and_then(|directory| directory.sync_all()) {
            // Some file systems keep directories durable themselves and refuse to be asked.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            outcome => outcome.map_err(|e| Error::from_io("sync the directory", path, &e)),
        }
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> Result<()> {
        match rename_with(from, to, RenameFlags::NOREPLACE) {
            Err(e) if is_missing_feature(&e) => {
                if self.kind(to)?.is_some() {
                    let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                    return Err(Error::from_io("publish", to, &exists));
                }
                fs::rename(from, to).map_err(|e| Error::from_io("publish", to, &e))
            }
            outcome => outcome.map_err(|e| Error::from_io("publish", to, &e)),
        }
    }

    fn replace_file(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::from_io("replace", to, &e))
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        rename_with(a, b, RenameFlags::EXCHANGE).map_err(|e| {
            if is_missing_feature(&e) {
                return Error::unsupported(format!(
                    "the file system of {} cannot exchange two directories",
                    b.display()
                ));
            }
            Error::from_io("exchange", b, &e)
        })
    }

    fn remove_tree(&self, path: &Path) -> Result<()> {
        let removed = match fs::symlink_metadata(path) {
            Ok(meta) if !meta.is_dir() => fs::remove_file(path),
            _ => fs::remove_dir_all(path),
        };
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome.map_err(|e| Error::from_io("remove", path, &e)),
        }
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let failed = |e: io::Error| Error::from_io("list", path, &e);
        let mut names: Vec<OsString> = fs::read_dir(path)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.file_name()).map_err(failed))
            .collect::<Result<_>>()?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Ok(names.into_iter().map(PathBuf::from).collect())
    }

    fn kind(&self, path: &Path) -> Result<Option<EntryKind>> {
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_file() => Ok(Some(EntryKind::File { size_bytes: meta.len() })),
            Ok(meta) if meta.is_dir() => Ok(Some(EntryKind::Directory)),
            Ok(_) => Ok(Some(EntryKind::Other)),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(e) => Err(Error::from_io("look at", path, &e)),
        }
    }

    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>> {
        try_lock(path)
    }
}

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    renameat_with(CWD, from, CWD, to, flags).map_err(io::Error::from)
}

/// Old kernels and some file systems know no rename flags.
fn is_missing_feature(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

struct LocalFile {
    file: File,
    path: PathBuf,
    size: u64,
    /// Bytes that the system was asked to bring to the disk.
    begun: u64,
    failed: Option<Error>,
}

/// The system is asked to begin writing after this many bytes each: left to itself it collects
/// gigabytes, and a sync at the end waits for all of them while the processors have nothing to do.
const WRITEBACK_BYTES: u64 = 8 * 1024 * 1024;

impl LocalFile {
    fn run(
        &mut self,
        verb: &str,
        operation: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        operation(&mut self.file).map_err(|e| {
            let error = Error::from_io(verb, &self.path, &e);
            self.failed = Some(error.clone());
            error
        })
    }

    /// Begins to bring new bytes to the disk, without waiting for it. Only a sync makes them
    /// durable, and tells of what failed; a file system that cannot do this does it all then.
    fn begin_writeback(&mut self) {
        let len = self.size - self.begun;
        if len < WRITEBACK_BYTES {
            return;
        }
        #[cfg(target_os = "linux")]
        {
            let (from, len) = (self.begun as libc::off64_t, len as libc::off64_t);
            // SAFETY: it takes numbers only, and the descriptor is open as long as `file` lives.
            // Not asked to wait: that would take the errors which a later sync must report.
            unsafe {
                libc::sync_file_range(
                    self.file.as_raw_fd(),
                    from,
                    len,
                    libc::SYNC_FILE_RANGE_WRITE,
                );
            }
        }
        self.begun = self.size;
    }
}

impl StoreFile for LocalFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.run("write", |file| file.write_all(bytes))?;
        self.size += bytes.len() as u64;
        self.begin_writeback();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.run("sync", |file| file.sync_all())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        // Dropping the file hides what close(2) says; after a sync nothing is left to fail.
        self.run("close", |_| Ok(()))
    }
}
