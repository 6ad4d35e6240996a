//! The border for everything that goes wrong: error kinds to exception classes, panics, signals,
//! and the gate that keeps forks away from native work. Decides no kind itself.

use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use dataset_rt_runtime::{Check, fork_gate, panic_error, run_apart};
use dataset_rt_storage::{Error, Kind, Result};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

pub use crate::ending::without_lock;
use crate::ending::{Inside, with_lock};

/// The exception for an error of the core.
pub fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|failed| failed)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let classes = py.import("dataset_rt.errors")?;
    let class = classes.getattr(class_name(error.kind(), error.os_code().is_some()))?;
    let exception = class.call1((error.message(),))?;
    if let Some(code) = error.os_code() {
        exception.setattr("errno", code)?;
    }
    Ok(PyErr::from_value(exception))
}

/// One class for each kind, and one more for kinds that the file system can cause.
fn class_name(kind: Kind, is_from_system: bool) -> &'static str {
    match (kind, is_from_system) {
        (Kind::InvalidInput, _) => "InvalidInputError",
        (Kind::NotFound, _) => "NotFoundError",
        (Kind::SampleNotFound, _) => "SampleNotFoundError",
        (Kind::Corrupt, _) => "CorruptError",
        (Kind::Unsupported, false) => "UnsupportedError",
        (Kind::Unsupported, true) => "FileUnsupportedError",
        (Kind::Conflict, false) => "ConflictError",
        (Kind::Conflict, true) => "FileConflictError",
        (Kind::Unavailable, false) => "UnavailableError",
        (Kind::Unavailable, true) => "FileUnavailableError",
        (Kind::Exhausted, false) => "ExhaustedError",
        (Kind::Exhausted, true) => "FileExhaustedError",
        (Kind::Internal, _) => "InternalError",
        // `Kind` may grow; a test walks every kind through Python and would notice.
        _ => "InternalError",
    }
}

/// A source raised after `samples` samples.
pub fn source_error(py: Python<'_>, name: &str, samples: u64, cause: PyErr) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let text = cause.value(py).str().map_or_else(
            |_| "no text, since its __str__ failed".to_owned(),
            // A message need not carry a payload that somebody put into an exception.
            |text| text.to_string().chars().take(2000).collect(),
        );
        let class = py.import("dataset_rt.errors")?.getattr("SourceError")?;
        let kind = cause.get_type(py).name()?.to_string();
        let error = PyErr::from_value(class.call1((format!(
            "source {name:?} raised {kind}: {text} (after {samples} samples)"
        ),))?);
        error.set_cause(py, Some(cause.clone_ref(py)));
        Ok(error)
    };
    build().unwrap_or_else(|failed| failed)
}

/// Runs `work`; a panic becomes an `InternalError`.
pub fn guarded<R>(py: Python<'_>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let _inside = Inside::enter(py);
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(to_py(py, &panic_error(panic.as_ref()))))
}

thread_local! {
    /// Whether a panic on this thread is foreseen and told in another way.
    static IS_FORESEEN: Cell<bool> = const { Cell::new(false) };
}

/// Panics arrive as exceptions; on the standard error they leave one line, whatever
/// `RUST_BACKTRACE` says. The hook is that of this module alone.
pub fn keep_panics_short() {
    std::panic::set_hook(Box::new(|panic| {
        if !IS_FORESEEN.get() {
            let text = panic.to_string().replace('\n', " ");
            let _ = writeln!(std::io::stderr(), "dataset_rt {text}");
        }
    }));
}

/// Runs `work`, in which others' code may panic over a user's data; `None` when it did.
pub fn foreseen<R>(work: impl FnOnce() -> R) -> Option<R> {
    let before = IS_FORESEEN.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_FORESEEN.set(before);
    outcome.ok()
}

/// Runs native work without the interpreter lock, out of reach of forks. `work` must neither
/// wait for another thread's work nor take the interpreter lock.
pub fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    let result = without_lock(py, move || {
        catch_unwind(AssertUnwindSafe(move || {
            let _inside = fork_gate::enter();
            work()
        }))
        .unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
    });
    result.map_err(|error| to_py(py, &error))
}

/// [`detached`], for work that may last: `work` calls its check often, and Ctrl-C ends it there.
pub fn attended<R: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<R> + Send,
) -> PyResult<R> {
    let mut attention = Attention::new();
    let attend = &mut attention;
    let result = without_lock(py, move || {
        catch_unwind(AssertUnwindSafe(|| fork_gate::with_breaks(&mut || attend.check(), work)))
            .unwrap_or_else(|panic| Err(panic_error(panic.as_ref())))
    });
    result.map_err(|error| attention.explain(py, &error))
}

thread_local! {
    /// What interrupted this thread before it forked.
    static INTERRUPTED: Cell<Option<Attention>> = const { Cell::new(None) };
}

/// [`attended`], in a hook before a fork, which cannot raise: Ctrl-C ends the work, and
/// [`end_fork`] lets it come up again. Errors are left to those who need the outcome.
pub fn attended_before_fork(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<()> + Send,
) {
    // Between the hooks of this thread others may wait at the gate, in the middle of their work.
    if fork_gate::is_forking() {
        return;
    }
    let _inside = Inside::enter(py);
    let mut attention = Attention::new();
    let attend = &mut attention;
    without_lock(py, move || {
        let with_breaks = || fork_gate::with_breaks(&mut || attend.check(), work);
        let _ = catch_unwind(AssertUnwindSafe(with_breaks));
    });
    // Raised now, it would end in the next hook before the fork, and be lost there.
    INTERRUPTED.set(Some(attention));
}

/// Lets an interrupt that came before the fork come up again in the parent; it is not the child's.
pub fn end_fork(is_child: bool) {
    if let (Some(attention), false) = (INTERRUPTED.take(), is_child) {
        attention.raise_again();
    }
}

/// [`attended`], for work with steps that last and cannot look for signals: a thread of its own
/// takes it, and Ctrl-C ends the wait for it.
pub fn apart<R: Send + 'static>(
    py: Python<'_>,
    work: impl Fn(Check<'_>) -> Result<R> + Send + Sync + 'static,
) -> PyResult<R> {
    attended(py, |attend| run_apart(attend, work))
}

/// Looks for signals while native code waits, and remembers what Python raised.
pub struct Attention {
    raised: Option<PyErr>,
    last: Instant,
}

/// Between two looks for signals: far below what a user notices, far above what a look costs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[expect(clippy::disallowed_methods, reason = "signals are looked for by wall time")]
impl Attention {
    /// Nothing was raised yet.
    pub fn new() -> Self {
        Self { raised: None, last: Instant::now() }
    }

    /// Runs pending signal handlers, unless it did so a moment ago: call it as often as you like.
    ///
    /// # Errors
    /// A placeholder for the exception that a handler raised; [`Attention::explain`] has it.
    pub fn check(&mut self) -> Result<()> {
        if self.last.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        let looked = self.run(|py| py.check_signals());
        self.last = Instant::now();
        looked
    }

    /// Runs `ask` with the interpreter lock; its exception ends the wait.
    ///
    /// # Errors
    /// As [`Attention::check`].
    pub fn run(&mut self, ask: impl FnOnce(Python<'_>) -> PyResult<()>) -> Result<()> {
        with_lock(ask).map_err(|raised| {
            self.raised = Some(raised);
            Error::conflict("interrupted")
        })
    }

    /// Lets an interrupting exception come up again where Python goes on: behind a consumer that
    /// only understands texts. Any but Ctrl-C is reported at once instead.
    pub fn raise_again(self) {
        let Some(raised) = self.raised else { return };
        let _ = with_lock(|py| {
            let signal = py.import("_thread")?;
            if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
                return signal.call_method0("interrupt_main").map(drop);
            }
            raised.write_unraisable(py, None);
            Ok::<(), PyErr>(())
        });
    }

    /// The exception to raise for `error`: the interrupting one if there was one.
    pub fn explain(self, py: Python<'_>, error: &Error) -> PyErr {
        self.raised.unwrap_or_else(|| to_py(py, error))
    }
}
