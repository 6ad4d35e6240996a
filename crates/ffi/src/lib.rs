//! The compiled module `dataset_rt._native`: converts, calls, converts. No rule lives here.
//!
//! ```text
//! into the core   payload_in, values, source, tables     Python objects -> bytes, cells, batches
//! out of it       cells, samples, single, payload_out, tables    blocks, samples -> Python objects
//! classes         runtime (write), dataset, iterator, batches (shared), batching, faces, cache, repair
//! border          failure, ending                        errors, panics, signals, fork, exit
//! ```
//! `unsafe` only in `payload_in`, `payload_out`, `samples`, `faces` and `ending`.

mod batches;
mod batching;
mod cache;
mod capsules;
mod cells;
mod collector;
mod dataset;
mod ending;
mod faces;
mod failure;
mod filling;
mod iterator;
mod payload_in;
mod payload_out;
mod payloads;
mod repair;
mod runtime;
mod samples;
mod shared;
mod single;
mod source;
mod tables;
mod values;
mod write;

use std::path::PathBuf;

use dataset_rt_runtime::{Form, LoadedFiles, LoadedTable, load_files as load};
use dataset_rt_storage::format::name::normalise_names;
use dataset_rt_storage::store::LocalStore;
use dataset_rt_storage::write::{
    UnfinishedWrite, remove_unfinished_write as remove, unfinished_writes as unfinished,
};
use dataset_rt_validator::{Level, verify_cache_attended};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure::{apart, attended, detached, guarded, to_py};

/// NFC forms of the names of one call.
#[pyfunction]
fn check_source_names(py: Python<'_>, names: Vec<String>) -> PyResult<Vec<String>> {
    guarded(py, || normalise_names(names.iter().map(String::as_str)).map_err(|e| to_py(py, &e)))
}

/// A verification report as JSON.
#[pyfunction]
fn verify_cache(py: Python<'_>, path: PathBuf, level: &str) -> PyResult<String> {
    guarded(py, || {
        let level = Level::from_name(level).ok_or_else(|| {
            to_py(
                py,
                &dataset_rt_storage::Error::invalid(format!(
                    "unknown level {level:?}; expected \"quick\", \"full\" or \"deep\""
                )),
            )
        })?;
        apart(py, move |check| verify_cache_attended(&path, level, check)?.to_json())
    })
}

/// Name, directory, samples, bytes and whether it is running.
type UnfinishedFields = (String, PathBuf, u64, u64, bool);

/// The unfinished writes below a directory.
#[pyfunction]
fn unfinished_writes(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<UnfinishedFields>> {
    let found = guarded(py, || detached(py, || unfinished(&LocalStore, &directory)))?;
    let fields = |w: UnfinishedWrite| (w.name, w.path, w.samples, w.size_bytes, w.is_running);
    Ok(found.into_iter().map(fields).collect())
}

/// Removes the unfinished write of one name.
#[pyfunction]
fn remove_unfinished_write(py: Python<'_>, directory: PathBuf, name: &str) -> PyResult<()> {
    guarded(py, || detached(py, || remove(&LocalStore, &directory, name)))
}

/// Processors this process may use.
#[pyfunction]
fn cpus_usable() -> usize {
    dataset_rt_runtime::resources::cpus_usable()
}

/// Works out what children would each work out anew, then closes the gate before a fork; registered
/// with `os.register_at_fork`.
#[pyfunction]
fn before_fork(py: Python<'_>) {
    failure::attended_before_fork(py, dataset_rt_runtime::prepare_orders);
    py.detach(dataset_rt_runtime::fork_gate::before_fork);
    dataset_rt_runtime::share_cursors();
}

/// Opens the gate after a fork, in the parent.
#[pyfunction]
fn after_fork_in_parent() {
    dataset_rt_runtime::fork_gate::after_fork();
    failure::end_fork(false);
}

/// Opens the gate after a fork, in the child, which has one thread only.
#[pyfunction]
fn after_fork_in_child() {
    ending::after_fork_in_child();
    dataset_rt_runtime::fork_gate::after_fork();
    failure::end_fork(true);
}

/// Keeps other threads out of Python and of this module from now on; registered with `atexit`.
#[pyfunction]
fn begin_exit(py: Python<'_>) {
    ending::begin_exit(py);
}

/// Contents, and path, bytes, rows and edited columns of the table if there is one.
type LoadedFields<'py> = (String, Option<(PathBuf, Bound<'py, PyBytes>, u64, Vec<String>)>);

/// What was saved together in a directory.
#[pyfunction]
fn load_files<'py>(py: Python<'py>, directory: PathBuf, stem: &str) -> PyResult<LoadedFields<'py>> {
    let LoadedFiles { contents, table } =
        guarded(py, || attended(py, |attend| load(&directory, Form::of_stem(stem)?, attend)))?;
    let fields = |table: LoadedTable| {
        let LoadedTable { path, bytes, rows, edited } = table;
        (path, PyBytes::new(py, &bytes), rows, edited)
    };
    Ok((contents, table.map(fields)))
}

/// Fails as a bug would; the tests show that it arrives as an exception.
#[pyfunction]
#[expect(clippy::panic, reason = "its only purpose")]
fn panic_for_test(py: Python<'_>, in_worker: bool) -> PyResult<()> {
    guarded(py, || {
        if in_worker {
            return detached(py, || panic!("a test asked for this"));
        }
        panic!("a test asked for this")
    })
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    failure::keep_panics_short();
    faces::remember_main_thread(module.py())?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("FORMAT_VERSION", dataset_rt_storage::format::limits::FORMAT_VERSION)?;
    module.add("SAMPLER_VERSION", dataset_rt_sampler::SAMPLER_VERSION)?;
    module.add_function(wrap_pyfunction!(check_source_names, module)?)?;
    module.add_function(wrap_pyfunction!(verify_cache, module)?)?;
    module.add_function(wrap_pyfunction!(repair::examine_cache, module)?)?;
    module.add_function(wrap_pyfunction!(repair::restore_cache, module)?)?;
    module.add_function(wrap_pyfunction!(unfinished_writes, module)?)?;
    module.add_function(wrap_pyfunction!(remove_unfinished_write, module)?)?;
    module.add_function(wrap_pyfunction!(cpus_usable, module)?)?;
    module.add_function(wrap_pyfunction!(before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(begin_exit, module)?)?;
    module.add_function(wrap_pyfunction!(load_files, module)?)?;
    module.add_function(wrap_pyfunction!(panic_for_test, module)?)?;
    module.add_class::<runtime::NativeRuntime>()?;
    module.add_class::<dataset::NativeDataset>()?;
    module.add_class::<iterator::NativeSampleIterator>()?;
    module.add_class::<batches::NativeBatchIterator>()?;
    module.add_class::<batching::NativeBatching>()?;
    module.add_class::<cache::NativeCache>()?;
    module.add_class::<faces::NativeFace>()?;
    module.add_class::<repair::NativeRemains>()?;
    Ok(())
}
