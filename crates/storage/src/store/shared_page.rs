//! A few numbers that several processes see at once: pages of shared memory. Knows nothing of what
//! they mean, nor of who may write.
//!
//! Pages lie side by side in one memory file, so that many of them cost one descriptor. A place is
//! never given again, since others may still look at it; the file goes with its last page.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::memory_file::{create, duplicate, failed};
use crate::{Error, Result};

/// Numbers of a page, all 0 when it is made.
pub const PAGE_WORDS: usize = 64;

/// Pages of a memory file.
const PAGES: usize = 128;
const FILE_BYTES: usize = size_of::<[Words; PAGES]>();

type Words = [AtomicU64; PAGE_WORDS];

/// Numbers in shared memory.
#[derive(Debug)]
pub struct SharedPage {
    pages: Arc<Pages>,
    number: usize,
}

/// A memory file of pages.
#[derive(Debug)]
struct Pages {
    words: NonNull<[Words; PAGES]>,
    file: File,
}

// SAFETY: the pages are reached through atomics only, and unmapped by their last owner.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// Where the next page is.
struct Next {
    /// Who may take it: a forked child would take the same as its parent.
    process: u32,
    pages: Arc<Pages>,
    number: usize,
}

static NEXT: Mutex<Option<Next>> = Mutex::new(None);

impl SharedPage {
    /// A page that children forked from now on see, too, and whoever gets its place.
    ///
    /// # Errors
    /// As the system fails.
    pub fn new() -> Result<Self> {
        let process = std::process::id();
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let left = next.as_mut().filter(|next| next.process == process && next.number < PAGES);
        let next = match left {
            Some(next) => next,
            None => next.insert(Next { process, pages: Arc::new(Pages::create()?), number: 0 }),
        };
        next.number += 1;
        Ok(Self { pages: Arc::clone(&next.pages), number: next.number - 1 })
    }

    /// The page at the place that [`SharedPage::place`] gave. The descriptor stays the caller's.
    ///
    /// # Errors
    /// `InvalidInput` for anything but such a place.
    pub fn from_descriptor(descriptor: RawFd, number: usize) -> Result<Self> {
        let file = duplicate(descriptor)?;
        let size = file.metadata().map_err(|e| failed("look at", &e))?.len();
        if size != FILE_BYTES as u64 || number >= PAGES || !has_fixed_size(&file) {
            return Err(Error::invalid(format!(
                "page {number} of descriptor {descriptor} with {size} bytes; expected one of \
                 {PAGES} pages in {FILE_BYTES} bytes of shared memory"
            )));
        }
        Ok(Self { pages: Arc::new(Pages::map(file)?), number })
    }

    /// Descriptor of its file, open as long as this lives, and its number there.
    pub fn place(&self) -> (RawFd, usize) {
        (self.pages.file.as_raw_fd(), self.number)
    }

    /// The numbers.
    pub fn words(&self) -> &[AtomicU64; PAGE_WORDS] {
        // SAFETY: mapped, aligned and of this size from `map` until `drop`; other processes change
        // them as atomics, too, and nobody can take pages away.
        let pages = unsafe { self.pages.words.as_ref() };
        &pages[self.number]
    }
}

impl Pages {
    fn create() -> Result<Self> {
        let file = create().map_err(|e| failed("make", &e))?;
        file.set_len(FILE_BYTES as u64).map_err(|e| failed("size", &e))?;
        fix_size(&file)?;
        Self::map(file)
    }

    fn map(file: File) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (hint, descriptor) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping, wherever the system likes; the descriptor is open.
        let start =
            unsafe { libc::mmap(hint, FILE_BYTES, access, libc::MAP_SHARED, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed("map", &std::io::Error::last_os_error()));
        }
        let words = NonNull::new(start.cast());
        let words = words.ok_or_else(|| Error::internal("pages were mapped at 0"))?;
        Ok(Self { words, file })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `map` made exactly this mapping, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), FILE_BYTES) };
    }
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
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    fn again(page: &SharedPage) -> SharedPage {
        let (descriptor, number) = page.place();
        SharedPage::from_descriptor(descriptor, number).unwrap()
    }

    #[test]
    fn whoever_gets_the_place_sees_the_same_numbers() {
        let page = SharedPage::new().unwrap();
        let other = again(&page);
        page.words()[PAGE_WORDS - 1].store(7, SeqCst);
        drop(page);
        assert_eq!(other.words()[PAGE_WORDS - 1].load(SeqCst), 7);
        assert_eq!(other.words()[0].load(SeqCst), 0);
    }

    #[test]
    fn no_two_pages_are_one() {
        let mut kept = Vec::new();
        for i in 1..=(2 * PAGES as u64 + 1) {
            let page = SharedPage::new().unwrap();
            assert_eq!(page.words()[3].swap(i, SeqCst), 0);
            // Those that nobody here holds any more are not given again, either.
            if i % 3 > 0 {
                kept.push((i, again(&page)));
            }
        }
        assert!(kept.iter().all(|(i, page)| page.words()[3].load(SeqCst) == *i));
    }

    #[test]
    fn other_files_and_numbers_are_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(SharedPage::from_descriptor(file.as_raw_fd(), 0).is_err());
        assert!(SharedPage::from_descriptor(-1, 0).is_err());
        let page = SharedPage::new().unwrap();
        assert!(SharedPage::from_descriptor(page.place().0, PAGES).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn nobody_can_take_pages_away() {
        let page = SharedPage::new().unwrap();
        let file = duplicate(page.place().0).unwrap();
        assert!(file.set_len(0).is_err());
    }
}
