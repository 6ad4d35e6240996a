//! Two pieces of one step on two threads: hashing takes as long as copying into the system's
//! cache does. Knows neither.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use crate::Result;

/// Fewer bytes are hashed before a thread for them has started.
const THREAD_BYTES: usize = 512 * 1024;

/// Does both for `bytes` bytes: `beside` on a thread of its own if that pays and there is one.
///
/// # Errors
/// Those of `here`, then those of `beside`.
pub(super) fn side_by_side(
    bytes: usize,
    here: impl FnOnce() -> Result<()>,
    beside: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let mut waiting = Some(beside);
    let mut done = Ok(());
    let outcome = scope(|scope| {
        let (waiting, done) = (&mut waiting, &mut done);
        let work = move || *done = waiting.take().map_or(Ok(()), |work| work());
        let thread = (bytes >= THREAD_BYTES)
            .then(|| Builder::new().name("dataset-rt-hash".to_owned()).spawn_scoped(scope, work))
            .and_then(std::io::Result::ok);
        let outcome = here();
        if let Some(Err(panic)) = thread.map(|thread| thread.join()) {
            resume_unwind(panic);
        }
        outcome
    });
    outcome.and(done).and_then(|()| waiting.map_or(Ok(()), |work| work()))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::Error;

    #[test]
    fn both_are_done_and_either_may_fail() {
        for bytes in [0, THREAD_BYTES] {
            let (mut here, mut beside) = (0, 0);
            let count = |counter: &mut i32| {
                *counter += 1;
                Ok(())
            };
            side_by_side(bytes, || count(&mut here), || count(&mut beside)).unwrap();
            assert_eq!((here, beside), (1, 1));
            let failed = || Err(Error::invalid("no"));
            assert!(side_by_side(bytes, failed, || Ok(())).is_err());
            assert!(side_by_side(bytes, || Ok(()), failed).is_err());
        }
    }

    #[test]
    fn a_panic_beside_arrives_here() {
        let panics = || side_by_side(THREAD_BYTES, || Ok(()), || std::panic::panic_any("beside"));
        let panic = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"beside"));
    }
}
