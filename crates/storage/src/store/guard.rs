//! Survives the loss of pages under a mapping: a file that shrank, a disk that fails. Knows no
//! format and no file; decision 0009 has the reasons.
//!
//! A page that cannot be read raises SIGBUS in whoever touches it. Inside a [`guarded`] section
//! the handler puts zeros there, so that the copy or hash under way comes to its end; the section
//! then throws the outcome away and returns an error. Outside, the signal goes where it would
//! have gone without us: nobody is shown zeros in place of data.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::regions::{self, Region};
use crate::{Error, Result};

/// How often a section starts again because another thread met a loss meanwhile. One loss
/// disturbs a section at most twice; more means that files vanish one after another, for longer
/// than a tenth of a second.
const ATTEMPTS: usize = 100;
/// Attempts without a pause in between.
const ATTEMPTS_AT_ONCE: usize = 4;
/// Pause before each later attempt.
const PAUSE: Duration = Duration::from_millis(1);
/// Threads that can be in other people's handlers at once; further ones die as if unhandled.
const CHAINED_MAX: usize = 64;

thread_local! {
    /// Sections this thread is in. Never allocated late: the handler only looks at it for a fault
    /// in our memory, which this thread reached through a section or is not ours to handle.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Losses this thread met that no section has reported yet.
    static MET: Cell<u32> = const { Cell::new(0) };
    static LAST: Cell<Option<&'static Region>> = const { Cell::new(None) };
    /// How many of all losses this thread caused.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// Whether there ever was something to guard.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// Address of the handler that was there before ours; 0 and 1 are the system's own.
static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// Threads that are putting zeros in the place of lost pages.
static IN_HANDLER: AtomicUsize = AtomicUsize::new(0);
/// Threads inside the previous handler, by `pthread_self`.
static CHAINED: [AtomicUsize; CHAINED_MAX] = [const { AtomicUsize::new(0) }; CHAINED_MAX];

/// Proof of being inside a guarded section, on this thread: what mapped bytes are given out for,
/// and no longer than it lasts.
#[derive(Clone, Copy)]
pub struct Section<'a> {
    _not_for_other_threads: PhantomData<(*const (), &'a ())>,
}

/// Runs `work`, which may touch mapped bytes, and again if another thread met a loss meanwhile:
/// what `work` keeps outside its result must allow that. Sections may be nested.
///
/// # Errors
/// Those of `work`; `Conflict` when a mapped file could not be read. Nothing that `work` made
/// is returned then.
pub fn guarded<T>(mut work: impl FnMut(Section<'_>) -> Result<T>) -> Result<T> {
    for number in 1..ATTEMPTS {
        if let Some(outcome) = attempt(&mut work) {
            return outcome;
        }
        if number < ATTEMPTS_AT_ONCE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE);
        }
    }
    guarded_once(work)
}

/// The same for work that cannot be done twice: a loss that any thread met ends it.
///
/// # Errors
/// As [`guarded`].
pub fn guarded_once<T>(work: impl FnOnce(Section<'_>) -> Result<T>) -> Result<T> {
    attempt(work).unwrap_or_else(|| {
        Err(Error::conflict(
            "mapped files were cut short while they were read; restore or rebuild the caches and \
             reopen them",
        ))
    })
}

/// The outcome, unless another thread met a loss meanwhile.
fn attempt<T>(work: impl FnOnce(Section<'_>) -> Result<T>) -> Option<Result<T>> {
    let entered = Entered::new();
    let outcome = work(Section { _not_for_other_threads: PhantomData });
    match entered.leave() {
        Verdict::Undisturbed => Some(outcome),
        Verdict::Lost(name) => Some(Err(unreadable(&name))),
        Verdict::Disturbed => None,
    }
}

/// The error for a mapped file whose pages are gone.
#[cold]
pub(super) fn unreadable(name: &str) -> Error {
    Error::conflict(format!(
        "the file was cut short, or the disk failed, while it was open: it can no longer be read; \
         restore or rebuild the cache and reopen it; seen at {name}"
    ))
}

/// Makes sure that our handler is the one that runs. Called before the first page can be lost.
pub(super) fn arm() {
    IS_ARMED.store(true, Ordering::Relaxed);
    install();
}

enum Verdict {
    Undisturbed,
    /// This thread met a loss.
    Lost(String),
    /// Another thread did, and this one may have read its zeros.
    Disturbed,
}

struct Entered {
    losses: usize,
    own: usize,
    met: u32,
}

impl Entered {
    fn new() -> Self {
        if DEPTH.get() == 0 && IS_ARMED.load(Ordering::Relaxed) {
            // Other libraries put their handlers in the place of ours.
            install();
        }
        // Counted before the look: zeros that come after it change the number.
        let (losses, own) = (regions::losses(), OWN.get());
        if regions::any_zeroed() {
            refuse_zeroed();
        }
        DEPTH.set(DEPTH.get() + 1);
        Self { losses, own, met: MET.get() }
    }

    fn leave(self) -> Verdict {
        if MET.get() != self.met {
            MET.set(self.met);
            refuse_zeroed();
            return Verdict::Lost(LAST.get().map(Region::name).unwrap_or_default());
        }
        // A handler that is not done may have put zeros where this thread made them fail before.
        let is_disturbed = IN_HANDLER.load(Ordering::SeqCst) > 0;
        // A section within this one has told of what this thread met there, and lets it fail
        // again: starting once more would meet it once more.
        let of_all = regions::losses().wrapping_sub(self.losses);
        if is_disturbed || of_all != OWN.get().wrapping_sub(self.own) {
            return Verdict::Disturbed;
        }
        Verdict::Undisturbed
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Lets the lost pages fail again: what holds a view of them is not to read zeros.
#[cold]
fn refuse_zeroed() {
    for region in regions::take_zeroed() {
        let lost = region.lost();
        fail_from_now_on(lost.start, lost.len());
    }
}

#[cfg(target_os = "linux")]
fn fail_from_now_on(start: usize, len: usize) {
    // SAFETY: these pages belong to a mapping of ours that lost bytes, which is never unmapped,
    // so nothing else can be there; they hold nothing any more. Pages behind the end of an empty
    // file raise SIGBUS like the lost ones. The descriptor is ours.
    unsafe {
        let file = libc::memfd_create(c"lost".as_ptr(), libc::MFD_CLOEXEC);
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let place = start as *mut c_void;
        if libc::mmap(place, len, libc::PROT_READ, flags, file, 0) == libc::MAP_FAILED {
            libc::mprotect(place, len, libc::PROT_NONE);
        }
        if file >= 0 {
            libc::close(file);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn fail_from_now_on(start: usize, len: usize) {
    // SAFETY: these pages belong to a mapping of ours that lost bytes, which is never unmapped,
    // so nothing else can be there; they hold nothing any more. Touching them raises SIGBUS.
    unsafe {
        libc::mprotect(start as *mut c_void, len, libc::PROT_NONE);
    }
}

fn handler_address() -> usize {
    on_bus_error as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize
}

/// Puts our handler in front of whichever is there.
fn install() {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the handler in place; `found` has room for it.
    let outcome = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), found.as_mut_ptr()) };
    // SAFETY: all zeros are a valid `sigaction`, and the call wrote another valid one or none.
    let found = unsafe { found.assume_init() }.sa_sigaction;
    if outcome == 0 && found != handler_address() {
        put_in_front_of(found);
    }
}

#[cold]
fn put_in_front_of(found: usize) {
    // Known before ours can run.
    PREVIOUS.store(found, Ordering::SeqCst);
    let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
    let mut replaced = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a valid `sigaction`; its fields are plain data, and the mask is
    // initialised by the call made for that. The handler keeps to what may be done in one.
    let replaced = unsafe {
        let action = ours.as_mut_ptr();
        (*action).sa_sigaction = handler_address();
        // On the alternative stack where there is one; not blocked while a previous handler runs,
        // which may raise the signal again to die of it.
        (*action).sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&raw mut (*action).sa_mask);
        libc::sigaction(libc::SIGBUS, action, replaced.as_mut_ptr());
        replaced.assume_init()
    };
    // Somebody else was faster: another thread with ours, or another library.
    if replaced.sa_sigaction != handler_address() {
        PREVIOUS.store(replaced.sa_sigaction, Ordering::SeqCst);
    }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid `siginfo_t` to a handler with `SA_SIGINFO`; a handler
    // that calls ours passes on its own.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes up to 0 are of signals that a process sent: those have no address.
    let is_fault = code > 0;
    if !(is_fault && absorb(address)) {
        chain(signal, is_fault, info, context);
    }
}

/// Handles the fault if it is one of a guarded section in a mapping of ours.
fn absorb(address: usize) -> bool {
    let Some(region) = regions::find(address) else { return false };
    if DEPTH.get() == 0 {
        return false;
    }
    MET.set(MET.get().wrapping_add(1));
    LAST.set(Some(region));
    IN_HANDLER.fetch_add(1, Ordering::SeqCst);
    let is_absorbed = put_zeros(region, address);
    IN_HANDLER.fetch_sub(1, Ordering::SeqCst);
    is_absorbed
}

/// Makes the rest of a mapping read as zeros from the page of `address` on.
fn put_zeros(region: &Region, address: usize) -> bool {
    // SAFETY: only asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    loop {
        region.lose_from(address & !(page - 1));
        OWN.set(OWN.get().wrapping_add(1));
        let lost = region.lost();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: replaces the rest of a mapping of ours from the page that failed. The thread
        // that touched it uses it, so it is still mapped and nothing else can be there; it lost
        // bytes, so it is never unmapped. `mmap` is a plain system call.
        let zeros = unsafe {
            let start = lost.start as *mut c_void;
            libc::mmap(start, lost.len(), libc::PROT_READ, flags, -1, 0)
        };
        if zeros == libc::MAP_FAILED {
            return false;
        }
        // Else another thread let these pages fail again in between, and may not know of zeros
        // that came after.
        if region.is_zeroed() {
            return true;
        }
    }
}

/// Passes the signal on to whoever would have had it.
fn chain(signal: c_int, is_fault: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.load(Ordering::SeqCst);
    if previous == libc::SIG_IGN && !is_fault {
        return;
    }
    let mark = Mark::set();
    let (Some(_mark), false) = (mark, matches!(previous, libc::SIG_DFL | libc::SIG_IGN)) else {
        return die(signal, is_fault);
    };
    // SAFETY: the address is one that the system gave as a handler for this signal and would have
    // called itself. It hands the same three arguments to handlers of either kind; one that was
    // declared with a single argument does not look at the others.
    unsafe {
        type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        std::mem::transmute::<usize, Handler>(previous)(signal, info, context);
    }
}

/// The default action: ends the process.
fn die(signal: c_int, is_fault: bool) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros are a valid `sigaction` and mean the default one; `signal` is ours to
    // raise. All of them may be called in a handler.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, action.as_ptr(), std::ptr::null_mut());
        // A fault comes again by itself, with a better core dump, unless we are deep in handlers.
        if !is_fault || Mark::is_set() {
            libc::raise(signal);
        }
    }
}

/// This thread is in the previous handler: if the signal comes again, two handlers pass it to
/// each other, or the previous one wants to die of it.
struct Mark(&'static AtomicUsize);

impl Mark {
    fn this_thread() -> usize {
        // SAFETY: only asks which thread this is.
        unsafe { libc::pthread_self() as usize }
    }

    fn is_set() -> bool {
        let this = Self::this_thread();
        CHAINED.iter().any(|place| place.load(Ordering::SeqCst) == this)
    }

    fn set() -> Option<Self> {
        if Self::is_set() {
            return None;
        }
        let this = Self::this_thread();
        let free = |place: &&AtomicUsize| {
            place.compare_exchange(0, this, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        CHAINED.iter().find(free).map(Self)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}
