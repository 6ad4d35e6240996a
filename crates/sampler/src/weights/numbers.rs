//! Numbers of a table, in its own memory or in memory that processes share; knows not which.

use std::fmt;
use std::sync::Arc;

/// Numbers that somebody else keeps: they never change.
pub type SharedNumbers<T> = Arc<dyn AsRef<[T]> + Send + Sync>;

/// A list of numbers.
#[derive(Clone)]
pub(super) enum Numbers<T: 'static> {
    Own(Vec<T>),
    Shared(SharedNumbers<T>),
}

impl<T> Numbers<T> {
    /// All of them. Asked once for many look-ups: behind a shared list is a call.
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::Own(numbers) => numbers,
            Self::Shared(numbers) => (**numbers).as_ref(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Memory of its own.
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Own(numbers) => (numbers.capacity() * size_of::<T>()) as u64,
            Self::Shared(_) => 0,
        }
    }
}

impl<T> fmt::Debug for Numbers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} numbers", self.len())
    }
}
