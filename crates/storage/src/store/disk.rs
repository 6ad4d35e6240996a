//! A model of a disk that loses power, for tests. Knows nothing of caches.
//!
//! What is assumed of a disk and its file system:
//! - Durable is the content of a file at its last `sync`, and the entries of a directory at its
//!   last `sync_dir`. A file's `sync` does not make its name durable, nor a directory's the
//!   contents of the files in it.
//! - Everything else is kept or lost, each independent of all others and of the order in which it
//!   was done. Of a file's unsynced end may be there: nothing, the first half, zeros of the full
//!   length, all of it.
//! - One change of a directory (an entry made or removed, a rename, an exchange) is there as a
//!   whole or not at all: journals and copy on write keep to that.
//! - Removing a tree is one change per entry, so a loss may fall between any two.
//! - A failed `sync` made nothing durable; a lock does not outlive its process.
//!
//! Not modelled: durable bytes that rot, disks that lie about flushes, renames between
//! directories (refused, so that a test cannot miss them).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{EntryKind, LocalStore, Store, read_file};
use crate::{Error, Result};

/// Files with their bytes, and directories (`None`), by path below the root.
pub type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// What becomes of one unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As if it had not happened.
    Lost,
    /// The first half of the unsynced bytes; a change of a directory is lost.
    Half,
    /// Zeros in place of the unsynced bytes; a change of a directory is lost.
    Zeros,
    /// All of it.
    Kept,
}

/// The disk at one moment: what is durable, and what is not yet.
#[derive(Clone, Default)]
pub struct Disk {
    nodes: Vec<Node>,
}

#[derive(Clone)]
enum Node {
    File { bytes: Vec<u8>, durable_len: usize },
    Directory { now: Entries, durable: Entries, changes: Vec<Change> },
}

type Entries = BTreeMap<OsString, usize>;
/// Names set to a node, or removed, in one step.
type Change = Vec<(OsString, Option<usize>)>;

const ROOT: usize = 0;

impl Disk {
    /// Unsynced changes in a fixed order: of each, whether it is an unsynced end of a file.
    fn unsynced(&self) -> Vec<bool> {
        let mut found = Vec::new();
        for node in &self.nodes {
            match node {
                Node::File { bytes, durable_len } if bytes.len() > *durable_len => found.push(true),
                Node::File { .. } => {}
                Node::Directory { changes, .. } => found.extend(changes.iter().map(|_| false)),
            }
        }
        found
    }

    /// Ways to lose power now, one [`Fate`] per unsynced change: everything lost, everything
    /// kept, each change the only one kept and the only one lost (a file's end in each way),
    /// and `random` ways that depend on `seed` alone.
    pub fn losses(&self, random: usize, seed: u64) -> Vec<Vec<Fate>> {
        let unsynced = self.unsynced();
        let all = |fate| vec![fate; unsynced.len()];
        let mut losses = vec![all(Fate::Lost), all(Fate::Kept)];
        for (i, &is_file) in unsynced.iter().enumerate() {
            for others in [Fate::Lost, Fate::Kept] {
                for fate in fates(is_file).iter().filter(|fate| **fate != others) {
                    let mut loss = all(others);
                    loss[i] = *fate;
                    losses.push(loss);
                }
            }
        }
        let mut state = seed;
        for _ in 0..random {
            losses.push(
                unsynced
                    .iter()
                    .map(|&is_file| {
                        let fates = fates(is_file);
                        fates[split_mix(&mut state) as usize % fates.len()]
                    })
                    .collect(),
            );
        }
        losses
    }

    /// What is there after a power loss.
    pub fn after_loss(&self, loss: &[Fate]) -> Tree {
        let mut loss = loss.iter().copied();
        let mut next = || loss.next().unwrap_or(Fate::Lost);
        let survivors: Vec<Node> = self.nodes.iter().map(|node| node.survivor(&mut next)).collect();
        let mut tree = Tree::new();
        let mut waiting = vec![(PathBuf::new(), ROOT)];
        while let Some((path, node)) = waiting.pop() {
            match survivors.get(node) {
                Some(Node::File { bytes, .. }) => {
                    tree.insert(path, Some(bytes.clone()));
                }
                Some(Node::Directory { now, .. }) => {
                    waiting.extend(now.iter().map(|(name, node)| (path.join(name), *node)));
                    tree.insert(path, None);
                }
                None => {}
            }
        }
        tree
    }

    /// Everything below `root`, as durable.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut disk = Self::default();
        disk.read_directory(root)?;
        Ok(disk)
    }

    fn read_directory(&mut self, path: &Path) -> Result<usize> {
        let made = self.nodes.len();
        self.nodes.push(Node::directory());
        let mut entries = Entries::new();
        for name in LocalStore.list_dir(path)? {
            let below = path.join(&name);
            let node = match LocalStore.kind(&below)? {
                Some(EntryKind::Directory) => self.read_directory(&below)?,
                _ => {
                    let bytes = read_file(&below, u64::MAX)?;
                    self.nodes.push(Node::File { durable_len: bytes.len(), bytes });
                    self.nodes.len() - 1
                }
            };
            entries.insert(name.into_os_string(), node);
        }
        let durable = entries.clone();
        self.nodes[made] = Node::Directory { now: entries, durable, changes: Vec::new() };
        Ok(made)
    }

    pub(super) fn find(&self, path: &Path) -> Option<usize> {
        path.iter().try_fold(ROOT, |node, name| match self.nodes.get(node) {
            Some(Node::Directory { now, .. }) => now.get(name).copied(),
            _ => None,
        })
    }

    pub(super) fn create_directory(&mut self, path: &Path) -> Result<()> {
        self.create(path, Node::directory()).map(drop)
    }

    /// Gives the number of the file, which stays through renames.
    pub(super) fn create_file(&mut self, path: &Path) -> Result<usize> {
        self.create(path, Node::File { bytes: Vec::new(), durable_len: 0 })
    }

    pub(super) fn append(&mut self, file: usize, more: &[u8]) -> Result<()> {
        match self.nodes.get_mut(file) {
            Some(Node::File { bytes, .. }) => {
                bytes.extend_from_slice(more);
                Ok(())
            }
            _ => Err(Error::internal("not a recorded file")),
        }
    }

    pub(super) fn sync_file(&mut self, file: usize) -> Result<()> {
        match self.nodes.get_mut(file) {
            Some(Node::File { bytes, durable_len }) => {
                *durable_len = bytes.len();
                Ok(())
            }
            _ => Err(Error::internal("not a recorded file")),
        }
    }

    fn create(&mut self, path: &Path, node: Node) -> Result<usize> {
        let made = self.nodes.len();
        self.nodes.push(node);
        self.change(path, vec![(name_of(path), Some(made))])?;
        Ok(made)
    }

    /// Changes entries of the directory that holds `path`.
    pub(super) fn change(&mut self, path: &Path, change: Change) -> Result<()> {
        let directory = self.find(path.parent().unwrap_or(Path::new("")));
        match directory.and_then(|node| self.nodes.get_mut(node)) {
            Some(Node::Directory { now, changes, .. }) => {
                apply(now, &change);
                changes.push(change);
                Ok(())
            }
            _ => Err(unknown(path)),
        }
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> Result<()> {
        match self.find(path).and_then(|node| self.nodes.get_mut(node)) {
            Some(Node::Directory { now, durable, changes }) => {
                durable.clone_from(now);
                changes.clear();
                Ok(())
            }
            _ => Err(unknown(path)),
        }
    }
}

impl Node {
    fn directory() -> Self {
        let [now, durable] = [Entries::new(), Entries::new()];
        Self::Directory { now, durable, changes: Vec::new() }
    }

    /// Itself after a power loss; `next` gives the fate of each unsynced change.
    fn survivor(&self, next: &mut dyn FnMut() -> Fate) -> Self {
        match self {
            Self::File { bytes, durable_len } if bytes.len() > *durable_len => {
                let mut bytes = bytes.clone();
                match next() {
                    Fate::Lost => bytes.truncate(*durable_len),
                    Fate::Half => bytes.truncate(durable_len + (bytes.len() - durable_len) / 2),
                    Fate::Zeros => bytes[*durable_len..].fill(0),
                    Fate::Kept => {}
                }
                Self::File { durable_len: bytes.len(), bytes }
            }
            Self::File { .. } => self.clone(),
            Self::Directory { durable, changes, .. } => {
                let mut entries = durable.clone();
                for change in changes {
                    if next() == Fate::Kept {
                        apply(&mut entries, change);
                    }
                }
                Self::Directory { now: entries.clone(), durable: entries, changes: Vec::new() }
            }
        }
    }
}

fn apply(entries: &mut Entries, change: &Change) {
    for (name, node) in change {
        match node {
            Some(node) => entries.insert(name.clone(), *node),
            None => entries.remove(name),
        };
    }
}

fn fates(is_file: bool) -> &'static [Fate] {
    if is_file {
        &[Fate::Lost, Fate::Half, Fate::Zeros, Fate::Kept]
    } else {
        &[Fate::Lost, Fate::Kept]
    }
}

pub(super) fn name_of(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}

pub(super) fn unknown(path: &Path) -> Error {
    Error::internal(format!("{} is not in the recorded directory", path.display()))
}

/// One step of SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
