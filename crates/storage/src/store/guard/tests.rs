//! Losses of mapped pages, and handlers of others, in one process.

use std::fs::{self, OpenOptions};
use std::sync::atomic::AtomicU32;
use std::sync::{Barrier, Mutex, MutexGuard};

use super::*;
use crate::Kind;
use crate::store::{IoMode, ReadFile};

const BYTES: usize = 1 << 20;

/// Handlers belong to the process: tests about them take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Cut {
    directory: tempfile::TempDir,
    file: ReadFile,
}

/// A mapped file of ones.
fn mapped() -> Cut {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ones");
    fs::write(&path, vec![1_u8; BYTES]).unwrap();
    Cut { file: ReadFile::open(&path, IoMode::Mmap).unwrap(), directory }
}

impl Cut {
    fn cut(&self) {
        let path = self.directory.path().join("ones");
        OpenOptions::new().write(true).open(path).unwrap().set_len(BYTES as u64 / 2).unwrap();
    }

    fn bytes<'a>(&'a self, section: Section<'a>) -> Result<&'a [u8]> {
        self.file.mapped().unwrap().bytes(section)
    }

    fn last(&self) -> Result<u8> {
        guarded(|section| Ok(self.bytes(section)?[BYTES - 1]))
    }
}

#[test]
fn a_loss_ends_as_an_error_of_its_section_alone() {
    let _turn = turn();
    let (cut, whole) = (mapped(), mapped());
    let view = cut.file.mapped().unwrap().view().unwrap();
    cut.cut();
    let outer = guarded(|_| {
        let inner = cut.last().unwrap_err();
        assert_eq!(inner.kind(), Kind::Conflict, "{inner}");
        assert!(inner.message().contains("ones"), "{inner}");
        whole.last()
    });
    assert_eq!(outer.unwrap(), 1);
    let refused = guarded(|section| Ok(cut.bytes(section)?[0]));
    assert_eq!(refused.unwrap_err().kind(), Kind::Conflict, "refused ever after");
    assert_eq!(cut.file.mapped().unwrap().view().unwrap_err().kind(), Kind::Conflict);
    assert_eq!(view[BYTES / 2 - 1], 1, "a view of what is left goes on");
}

#[test]
fn a_view_of_lost_pages_is_never_read_as_zeros_in_a_section() {
    let _turn = turn();
    let cut = mapped();
    let view = cut.file.mapped().unwrap().view().unwrap();
    cut.cut();
    cut.last().unwrap_err();
    assert!(!regions::find(view.as_ptr() as usize).unwrap().is_zeroed());
    // Each read of a view meets the loss again.
    for _ in 0..3 {
        assert_eq!(guarded(|_| Ok(view[BYTES - 1])).unwrap_err().kind(), Kind::Conflict);
    }
    drop(cut);
    assert_eq!(guarded(|_| Ok(view[BYTES - 1])).unwrap_err().kind(), Kind::Conflict);
}

/// Each section would otherwise start again as often as those within it, all together thousands of
/// times, and meet the same loss each time.
#[test]
fn a_loss_within_a_section_is_met_once_by_the_sections_around_it() {
    let _turn = turn();
    let cut = mapped();
    let view = cut.file.mapped().unwrap().view().unwrap();
    cut.cut();
    let mut attempts = 0;
    let outcome = guarded(|_| {
        guarded(|_| {
            guarded(|_| {
                attempts += 1;
                Ok(std::hint::black_box(view[BYTES - 1]))
            })
        })
    });
    assert_eq!((outcome.unwrap_err().kind(), attempts), (Kind::Conflict, 1));
}

#[test]
fn threads_that_read_the_zeros_of_others_start_again() {
    let _turn = turn();
    let cut = mapped();
    let view = cut.file.mapped().unwrap().view().unwrap();
    cut.cut();
    let step = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut attempts = 0;
            let outcome = guarded(|_| {
                attempts += 1;
                if attempts == 1 {
                    step.wait();
                    step.wait();
                    // No fault: the other thread's zeros are there.
                    let read = std::hint::black_box(view[BYTES - 1]);
                    step.wait();
                    return Ok(read);
                }
                Ok(view[0])
            });
            (attempts, outcome)
        });
        // Begins once the other is in its section.
        step.wait();
        let lost = guarded(|_| {
            let read = std::hint::black_box(view[BYTES - 1]);
            step.wait();
            step.wait();
            Ok(read)
        });
        assert_eq!(lost.unwrap_err().kind(), Kind::Conflict);
        let (attempts, outcome) = other.join().unwrap();
        match outcome {
            Ok(byte) => {
                assert!(attempts > 1, "zeros were taken for data");
                assert_eq!(byte, 1);
            }
            // A section of another test made the pages fail again in between.
            Err(error) => assert_eq!(error.kind(), Kind::Conflict),
        }
    });
}

static FOREIGN: AtomicU32 = AtomicU32::new(0);

extern "C" fn foreign(_: c_int) {
    // A fault that nobody absorbs comes again for ever.
    if FOREIGN.fetch_add(1, Ordering::SeqCst) > 100 {
        std::process::abort();
    }
}

/// What other libraries do.
fn install_foreign() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a valid `sigaction`; the handler only counts.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = foreign as extern "C" fn(c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGBUS, action.as_ptr(), std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_handler_put_in_the_place_of_ours_has_its_signals_and_we_have_ours() {
    let _turn = turn();
    let cut = mapped();
    cut.cut();
    install_foreign();
    let before = FOREIGN.load(Ordering::SeqCst);
    assert_eq!(cut.last().unwrap_err().kind(), Kind::Conflict);
    assert_eq!(FOREIGN.load(Ordering::SeqCst), before, "a loss of ours is not its business");
    // SAFETY: a signal that another process might send as well; the handler only counts.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(FOREIGN.load(Ordering::SeqCst), before + 1);
}

#[test]
fn threads_lose_files_at_the_same_time() {
    let _turn = turn();
    let whole = mapped();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let cut = mapped();
                    cut.cut();
                    assert_eq!(cut.last().unwrap_err().kind(), Kind::Conflict);
                    // Others may disturb it too often; never may it be another byte.
                    match whole.last() {
                        Ok(byte) => assert_eq!(byte, 1),
                        Err(error) => assert_eq!(error.kind(), Kind::Conflict),
                    }
                }
            });
        }
    });
}
