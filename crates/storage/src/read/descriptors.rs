//! Few open descriptors for many files: those unused the longest are closed and reopened on need.
//! Knows nothing of caches.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use crate::store::{IoMode, ReadFile};
use crate::{Error, Result};

/// Descriptors kept open in this process: a quarter of the usual limit of 1,024, so that 10,000
/// shards or 1,000 caches never exhaust it.
const OPEN_MAX: usize = 256;

/// Open files, the one opened first in front.
static OPEN: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

type Slot = Mutex<Option<Arc<ReadFile>>>;

/// A file that is read by copying and may be closed between two reads.
pub(super) struct Descriptor {
    path: PathBuf,
    first: ReadFileStamp,
    slot: Arc<Slot>,
}
