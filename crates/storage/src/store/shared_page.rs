//! A few numbers that several processes see at once: one page of shared memory. Knows nothing of
//! what they mean, nor of who may write.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::memory_file::{create, duplicate, failed};
use crate::{Error, Result};

/// Numbers of a page, all 0 when it is made.
pub const PAGE_WORDS: usize = 64;

const PAGE_BYTES: usize = PAGE_WORDS * size_of::<u64>();

/// Numbers in shared memory.
#[derive(Debug)]
pub struct SharedPage {
    words: NonNull<[AtomicU64; PAGE_WORDS]>,
    file: Option<File>,
}

// SAFETY: the page is reached through atomics only, and unmapped by its last owner.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// A page that children forked from now on see, too.
    ///
    /// # Errors
    /// As the system fails.
    pub fn anonymous() -> Result<Self> {
        Ok(Self { words: map(None)?, file: None })
    }

    /// A page that whoever gets its descriptor sees, too.
    ///
    /// # Errors
    /// As the system fails.
    pub fn with_descriptor() -> Result<Self> {
        let file = create().map_err(|e| failed("make", &e))?;
        file.set_len(PAGE_BYTES as u64).map_err(|e| failed("size", &e))?;
        fix_size(&file)?;
        Ok(Self { words: map(Some(&file))?, file: Some(file) })
    }

    /// The page behind an open descriptor, which stays the caller's.
    ///
    /// # Errors
    /// `InvalidInput` for anything but a page that [`SharedPage::with_descriptor`] made.
    pub fn from_descriptor(descriptor: RawFd) -> Result<Self> {
        let file = duplicate(descriptor)?;
        let size = file.metadata().map_err(|e| failed("look at", &e))?.len();
        if size != PAGE_BYTES as u64 || !has_fixed_size(&file) {
            return Err(Error::invalid(format!(
                "descriptor {descriptor} has {size} bytes; expected {PAGE_BYTES} of shared memory"
            )));
        }
        Ok(Self { words: map(Some(&file))?, file: Some(file) })
    }

    /// Its descriptor, if it has one; open as long as this lives.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The numbers.
    pub fn words(&self) -> &[AtomicU64; PAGE_WORDS] {
        // SAFETY: mapped, aligned and of this size from `map` until `drop`; other processes change
        // them as atomics, too, and nobody can take pages away.
        unsafe { self.words.as_ref() }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), PAGE_BYTES) };
    }
}

fn map(file: Option<&File>) -> Result<NonNull<[AtomicU64; PAGE_WORDS]>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_ANON };
    let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping, wherever the system likes; the descriptor is open or not looked at.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, descriptor, 0) };
    if start == libc::MAP_FAILED {
        return Err(failed("map", &std::io::Error::last_os_error()));
    }
    NonNull::new(start.cast()).ok_or_else(|| Error::internal("a page was mapped at 0"))
}

#[cfg(target_os = "linux")]
fn fix_size(file: &File) -> Result<()> {
    use rustix::fs::{SealFlags, fcntl_add_seals};
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(file, seals).map_err(|e| failed("seal", &e.into()))
}

#[cfg(target_os = "linux")]
fn has_fixed_size(file: &File) -> bool {
    use rustix::fs::{SealFlags, fcntl_get_seals};
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

#[cfg(not(target_os = "linux"))]
fn fix_size(_file: &File) -> Result<()> {
    Ok(())
}

/// Nobody but us knows the file, which has no name.
#[cfg(not(target_os = "linux"))]
fn has_fixed_size(_file: &File) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_ends_of_a_descriptor_see_the_same_numbers() {
        let page = SharedPage::with_descriptor().unwrap();
        let other = SharedPage::from_descriptor(page.descriptor().unwrap()).unwrap();
        page.words()[PAGE_WORDS - 1].store(7, Ordering::SeqCst);
        drop(page);
        assert_eq!(other.words()[PAGE_WORDS - 1].load(Ordering::SeqCst), 7);
        assert_eq!(other.words()[0].load(Ordering::SeqCst), 0);
    }

    #[test]
    fn an_anonymous_page_has_no_descriptor() {
        let page = SharedPage::anonymous().unwrap();
        page.words()[3].store(u64::MAX, Ordering::SeqCst);
        assert_eq!(page.words()[3].load(Ordering::SeqCst), u64::MAX);
        assert_eq!(page.descriptor(), None);
    }

    #[test]
    fn other_files_are_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(SharedPage::from_descriptor(file.as_raw_fd()).is_err());
        assert!(SharedPage::from_descriptor(-1).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn nobody_can_take_the_page_away() {
        let page = SharedPage::with_descriptor().unwrap();
        let file = duplicate(page.descriptor().unwrap()).unwrap();
        assert!(file.set_len(0).is_err());
    }
}
