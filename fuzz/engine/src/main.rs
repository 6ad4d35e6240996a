//! Hands libFuzzer's inputs to the target that `FUZZ_TARGET` names. Knows no target's inside.
#![no_main]

use std::alloc::System;
use std::path::Path;
use std::sync::OnceLock;

use cap::Cap;
use dataset_rt_fuzz_targets::{MEMORY_BYTES_MAX, Target, find, is_panic_caught, write_seeds};
use libfuzzer_sys::fuzz_target;

/// Whoever asks for more than the limit gets no memory, and aborts unless it was ready for that.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MEMORY_BYTES_MAX);

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn start() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = find(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} names no target"));
    if let Some(directory) = std::env::var_os("FUZZ_SEEDS") {
        write_seeds(target, Path::new(&directory)).expect("seeds can be written");
    }
    let _ = TARGET.set(target);
    // libFuzzer's own hook ends the process at any panic.
    let end = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_panic_caught() {
            end(panic);
        }
    }));
}

fuzz_target!(init: start(), |input: &[u8]| {
    if let Some(target) = TARGET.get() {
        (target.run)(input);
    }
});
