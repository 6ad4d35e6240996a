//! New `bytes` objects that several threads fill. Knows payloads by their sizes.
//!
//! Making an object of some megabytes costs next to nothing; copying into it costs the time of
//! many samples, and needs no interpreter lock as long as nobody has seen the object. So workers
//! fill objects while the consumer uses those before them, and the consumer helps when it would
//! have to wait.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;

use dataset_rt_runtime::{PayloadRun, Pieces, WorkerPool};
use dataset_rt_storage::Result;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{Attention, without_lock};

/// Bytes of a piece: a tenth of a millisecond, far above what beginning one costs.
const PIECE_BYTES: usize = 1024 * 1024;
/// Mean size of payloads from which on it pays to share the work.
const PAYLOAD_BYTES_MIN: usize = 16 * 1024;
/// Workers that fill the objects of one run: more than this wait for the same memory.
const HELPERS_MAX: usize = 3;
/// Pieces passed between two looks for signals: hundredths of a second.
const PIECES_UNATTENDED: usize = 32;

/// Objects for a run of payloads, on their way to be handed out in order.
pub struct Filling {
    /// Dropped before the objects: from then on nobody writes into them.
    pieces: Pieces,
    /// Each with its pieces.
    objects: VecDeque<(Py<PyBytes>, Range<usize>)>,
    /// Pieces passed since the last look for signals.
    unattended: usize,
}

/// Where the bytes of each object are.
struct Targets(Vec<NonNull<u8>>);

// SAFETY: the addresses are only used to write the parts of objects that `Pieces` gives to one
// thread each, while `Filling` keeps the objects alive and to itself.
unsafe impl Send for Targets {}
// SAFETY: as above; parts of different pieces do not overlap.
unsafe impl Sync for Targets {}

impl Targets {
    /// Writes `part` at `offset` of object `i`.
    ///
    /// # Safety
    /// The object is alive, nobody else reads or writes these bytes of it, and it reaches that far.
    unsafe fn write(&self, i: usize, offset: usize, part: &[u8]) {
        // SAFETY: what the caller vouches for; the source is a mapping or an arena.
        unsafe {
            self.0[i].add(offset).copy_from_nonoverlapping(NonNull::from(part).cast(), part.len())
        };
    }
}

impl Filling {
    /// Whether several threads are worth their agreement for a run of `len` payloads.
    pub fn is_worth_it(len: usize, size_bytes: usize) -> bool {
        size_bytes > PIECE_BYTES && size_bytes / len.max(1) >= PAYLOAD_BYTES_MIN
    }

    /// Makes the objects and lets workers of `pool` begin.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn new(py: Python<'_>, pool: &WorkerPool, run: PayloadRun) -> PyResult<Self> {
        let mut objects = VecDeque::with_capacity(run.len());
        let mut targets = Vec::with_capacity(run.len());
        for i in 0..run.len() {
            let place = run.place(i);
            let (object, memory) = unfilled(py, place.len())?;
            targets.push(memory);
            let pieces = place.start / PIECE_BYTES..place.end.div_ceil(PIECE_BYTES);
            objects.push_back((object, pieces));
        }
        let (size, targets) = (run.size_bytes(), Targets(targets));
        let fill = move |piece: usize| -> Result<()> {
            let start = piece * PIECE_BYTES;
            run.copy(start..size.min(start + PIECE_BYTES), |i, offset, part| {
                // SAFETY: `Filling` hands objects out once their pieces are done, and drops others
                // after `Pieces`: this one is alive and unseen. It has the size of payload `i`, of
                // which `part` is the part at `offset`, and no other piece has these bytes.
                unsafe { targets.write(i, offset, part) };
            })
        };
        let helpers = pool.num_workers().saturating_sub(1).clamp(1, HELPERS_MAX);
        let pieces = Pieces::new(pool, helpers, size.div_ceil(PIECE_BYTES), fill);
        Ok(Self { pieces, objects, unattended: 0 })
    }

    /// Objects not yet handed out.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// The next object, filled. The outer error is that of a signal handler: the next call goes on.
    ///
    /// # Errors
    /// `Conflict` when a file changed while open: no object of this filling can be trusted.
    pub fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Result<Option<Bound<'py, PyBytes>>>> {
        let Some((_, pieces)) = self.objects.front() else { return Ok(Ok(None)) };
        for piece in pieces.clone() {
            if let Err(error) = self.finish(py, piece)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(self.objects.pop_front().map(|(object, _)| object.into_bound(py))))
    }

    /// What became of `piece`, which is waited for; this thread helps meanwhile.
    fn finish(&mut self, py: Python<'_>, piece: usize) -> PyResult<Result<()>> {
        loop {
            self.attend(py)?;
            if let Some(outcome) = self.pieces.outcome(piece) {
                return Ok(outcome);
            }
            if !self.pieces.help() {
                let mut attention = Attention::new();
                let (pieces, attend) = (&self.pieces, &mut attention);
                let waited = without_lock(py, move || pieces.wait(piece, &mut || attend.check()));
                waited.map_err(|error| attention.explain(py, &error))?;
            }
        }
    }

    fn attend(&mut self, py: Python<'_>) -> PyResult<()> {
        self.unattended += 1;
        if self.unattended < PIECES_UNATTENDED {
            return Ok(());
        }
        self.unattended = 0;
        py.check_signals()
    }
}

/// A `bytes` object of `len` bytes that nobody has written yet, and where they are.
fn unfilled(py: Python<'_>, len: usize) -> PyResult<(Py<PyBytes>, NonNull<u8>)> {
    // SAFETY: without a source Python makes an object of `len` bytes, to be filled before anybody
    // sees it; it is owned at once. An empty one is shared by all, and has nothing to be written.
    let object = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), len as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
    };
    // SAFETY: `object` is a `bytes` object and alive.
    let bytes = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast::<u8>();
    match NonNull::new(bytes) {
        Some(bytes) => Ok((object.unbind(), bytes)),
        None => Err(PyErr::fetch(py)),
    }
}
