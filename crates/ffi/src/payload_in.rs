//! Payload bytes from any C-contiguous Python buffer. Knows no sample.

use dataset_rt_storage::{Error, Result};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyMemoryView};

/// Calls `take` with the bytes of `object`, which must not run Python code.
///
/// # Errors
/// `InvalidInput` for objects that are no buffers of plain bytes (never `bytes(5)`).
pub fn with_bytes<R>(
    object: &Bound<'_, PyAny>,
    take: impl FnOnce(&[u8]) -> Result<R>,
) -> Result<R> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return take(bytes.as_bytes());
    }
    let refused = |why: &str| {
        let type_name = object
            .get_type()
            .fully_qualified_name()
            .map_or_else(|_| "unknown".to_owned(), |name| name.to_string());
        Err(Error::invalid(format!(
            "payload is a {type_name}{why}; expected bytes or another C-contiguous buffer \
             (bytearray, memoryview, numpy array, pyarrow.Buffer, mmap); encode it first \
             (str.encode(), numpy.ascontiguousarray(), an image as PNG or JPEG)"
        )))
    };
    // NumPy scalars export buffers, but count as numbers.
    if object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>() {
        return refused("");
    }
    if is_numpy_scalar(object) && !object.is_instance_of::<PyBytes>() {
        return refused("");
    }
    let Ok(buffer) = PyUntypedBuffer::get(object) else {
        // Zero-dimensional arrays have no shape to look at: let Python make the few bytes.
        let copied = PyMemoryView::from(object).and_then(|view| view.call_method0("tobytes"));
        return match copied.as_ref().map(|bytes| bytes.cast_exact::<PyBytes>()) {
            Ok(Ok(bytes)) if is_zero_dimensional(object) => take(bytes.as_bytes()),
            _ => refused(""),
        };
    };
    if !buffer.is_c_contiguous() {
        return refused(" that is not C-contiguous");
    }
    if holds_pointers(buffer.format().to_bytes()) {
        return refused(" of pointers");
    }
    let len = buffer.len_bytes();
    if len == 0 {
        return take(&[]);
    }
    // SAFETY: the exporter keeps `len` bytes at `buf_ptr` alive and in place until `buffer` is
    // released, which happens after `take` returns; contiguity was checked; `take` runs no
    // Python code, and the interpreter lock is held, so Python cannot write them meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), len) };
    take(bytes)
}

/// Whether a format of the buffer protocol (PEP 3118) has items that are addresses: objects and
/// pointers, strings of C, functions. `Zd` is a complex number; names of fields stand in colons.
fn holds_pointers(format: &[u8]) -> bool {
    let mut codes = format.iter().copied().peekable();
    while let Some(code) = codes.next() {
        match code {
            b':' => while codes.next().is_some_and(|code| code != b':') {},
            b'Z' if codes.next_if(|code| matches!(code, b'f' | b'd' | b'g')).is_some() => {}
            b'O' | b'P' | b'&' | b'z' | b'Z' | b'X' => return true,
            _ => {}
        }
    }
    false
}

fn is_zero_dimensional(object: &Bound<'_, PyAny>) -> bool {
    let is_plain = object
        .getattr("dtype")
        .and_then(|dtype| dtype.getattr("hasobject"))
        .and_then(|has_object| has_object.extract::<bool>())
        .is_ok_and(|has_object| !has_object);
    is_plain && object.getattr("ndim").and_then(|n| n.extract::<usize>()).is_ok_and(|n| n == 0)
}

/// Whether `object` is a NumPy scalar. NumPy is never imported for the question.
pub fn is_numpy_scalar(object: &Bound<'_, PyAny>) -> bool {
    let class = object.get_type();
    class.mro().iter().any(|base| {
        base.getattr("__module__").is_ok_and(|m| m.eq("numpy").unwrap_or(false))
            && base.getattr("__name__").is_ok_and(|n| n.eq("generic").unwrap_or(false))
    })
}
