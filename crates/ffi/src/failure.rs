//! The border for everything that goes wrong: error kinds to exception classes, panics, signals,
//! and the gate that keeps forks away from native work. Decides no kind itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use dataset_rt_runtime::{fork_gate, panic_error};
use dataset_rt_storage::{Error, Kind, Result};
use pyo3::prelude::*;

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
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(to_py(py, &panic_error(panic.as_ref()))))
}

/// The thread that ends the interpreter, once one does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Threads on their way back into Python.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

/// From now on only this thread goes back into Python; called at exit. Lets those that are on
/// their way in first, a second at most.
pub fn begin_exit(py: Python<'_>) {
    let _ = ENDING.set(std::thread::current().id());
    for _ in 0..1000 {
        if RETURNING.load(Ordering::SeqCst) == 0 {
            return;
        }
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
    }
}

/// Runs `work` without the interpreter lock. While the interpreter ends, other threads stay out
/// for ever: Python would end them inside the lock, by unwinding through frames of ours.
pub fn without_lock<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    let result = py.detach(move || {
        let result = work();
        // Counted before the look, so that `begin_exit` sees whoever did not see it.
        RETURNING.fetch_add(1, Ordering::SeqCst);
        let this = std::thread::current().id();
        if ENDING.get().is_some_and(|ending| *ending != this) {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        result
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    result
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

/// Looks for signals while native code waits, and remembers what Python raised.
#[derive(Default)]
pub struct Attention {
    raised: Option<PyErr>,
}

impl Attention {
    /// Runs pending signal handlers.
    ///
    /// # Errors
    /// A placeholder for the exception that a handler raised; [`Attention::explain`] has it.
    pub fn check(&mut self) -> Result<()> {
        self.run(|py| py.check_signals())
    }

    /// Runs `ask` with the interpreter lock; its exception ends the wait.
    ///
    /// # Errors
    /// As [`Attention::check`].
    pub fn run(&mut self, ask: impl FnOnce(Python<'_>) -> PyResult<()>) -> Result<()> {
        Python::attach(ask).map_err(|raised| {
            self.raised = Some(raised);
            Error::conflict("interrupted")
        })
    }

    /// The exception to raise for `error`: the interrupting one if there was one.
    pub fn explain(self, py: Python<'_>, error: &Error) -> PyErr {
        self.raised.unwrap_or_else(|| to_py(py, error))
    }
}
