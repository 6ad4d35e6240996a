//! How the cursor of a dataset hangs together with those of other processes. Knows no table but
//! its number, and no process but its own.
//!
//! A worker of a loader is to read the epoch that its trainer set last. Whoever moves a cursor
//! writes it into a page of memory that its children see; a child follows that page until it moves
//! its cursor itself. A page is made before a fork, by [`Lineage::share_with_forks`], or for a
//! process that is started anew, by [`Lineage::share_with_started`]: a cursor that nobody follows
//! costs nothing. Children of children get the pages of all whom their parent follows.
//!
//! A page has two places for the cursor and a counter that tells which one holds: the writer fills
//! the other one and counts up. A reader is disturbed only if the writer goes on while it reads,
//! and never waits for a writer that died.

use std::array;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use dataset_rt_sampler::Cursor;
use dataset_rt_storage::store::SharedPage;
use dataset_rt_storage::{Error, Result};

use crate::fork_gate;

const COUNTER: usize = 0;
/// Cache lines of their own, so that a reader of one place is not disturbed by the other.
const PLACES: [usize; 2] = [8, 16];
const FIELDS: usize = 6;

const LEN_WAS_SET: u64 = 1;
const FOLLOWS_ANOTHER: u64 = 2;

/// What one process tells others about its cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notice {
    cursor: Cursor,
    /// Number of the table it belongs to.
    table: u64,
    /// It only repeats what another page says.
    follows_another: bool,
}

impl Notice {
    fn write(self, page: &SharedPage) {
        let words = page.words();
        let next = words[COUNTER].load(SeqCst).wrapping_add(1);
        let flags = if self.cursor.len_was_set { LEN_WAS_SET } else { 0 }
            | if self.follows_another { FOLLOWS_ANOTHER } else { 0 };
        let Cursor { position, epoch, len, read, .. } = self.cursor;
        let place = PLACES[(next & 1) as usize];
        for (i, value) in [flags, position, epoch, len, read, self.table].into_iter().enumerate() {
            words[place + i].store(value, SeqCst);
        }
        words[COUNTER].store(next, SeqCst);
    }

    fn read(page: &SharedPage) -> Self {
        let words = page.words();
        loop {
            let count = words[COUNTER].load(SeqCst);
            let place = PLACES[(count & 1) as usize];
            let [flags, position, epoch, len, read, table]: [u64; FIELDS] =
                array::from_fn(|i| words[place + i].load(SeqCst));
            // The writer touches this place again only after it has counted up.
            if words[COUNTER].load(SeqCst) == count {
                let len_was_set = flags & LEN_WAS_SET != 0;
                let cursor = Cursor { position, epoch, len, len_was_set, read };
                return Self { cursor, table, follows_another: flags & FOLLOWS_ANOTHER != 0 };
            }
            std::hint::spin_loop();
        }
    }
}

/// Whom a cursor follows, and who may follow it.
pub struct Lineage {
    /// The process whose `page` this is.
    process: u32,
    /// Number of the table that this process reads: grows with each one handed in.
    table: u64,
    /// What the children of this process follow.
    page: Option<Arc<SharedPage>>,
    /// Pages of the processes this one descends from, nearest first.
    parents: Vec<Arc<SharedPage>>,
    /// It follows nobody any more. The pages of its parents stay: their descriptors may be on
    /// their way to a process that is being started.
    is_apart: bool,
    /// Why children cannot follow.
    failed: Option<Error>,
}

impl Lineage {
    /// Of a cursor that follows nobody.
    pub fn new() -> Self {
        Self::following(Vec::new(), 0)
    }

    /// Of a cursor that follows pages, nearest first, as long as they speak of table number
    /// `table`.
    pub fn following(parents: Vec<Arc<SharedPage>>, table: u64) -> Self {
        let process = fork_gate::process();
        Self { process, table, page: None, parents, is_apart: false, failed: None }
    }

    /// Number of the table, for [`Lineage::following`].
    pub fn table(&self) -> u64 {
        self.table
    }

    fn followed(&self) -> &[Arc<SharedPage>] {
        if self.is_apart { &[] } else { &self.parents }
    }

    /// Brings `cursor` to where the process that is followed left it.
    ///
    /// # Errors
    /// `Conflict` when its table is another one now, `Exhausted` when it could not be shared.
    pub fn follow(&mut self, cursor: &mut Cursor) -> Result<()> {
        if self.process != fork_gate::process() {
            self.become_child()?;
        }
        let mut nearest = None;
        for page in self.followed() {
            let notice = Notice::read(page);
            nearest = Some(notice);
            if !notice.follows_another {
                break;
            }
        }
        let Some(notice) = nearest else { return Ok(()) };
        if notice.table != self.table {
            return Err(Error::conflict(
                "the table of this dataset was replaced in the process that this one was started \
                 from, and this one has the old table; start new workers (for a DataLoader with \
                 persistent workers: make a new DataLoader)",
            ));
        }
        *cursor = notice.cursor;
        Ok(())
    }

    fn become_child(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.process = fork_gate::process();
        if std::mem::take(&mut self.is_apart) {
            self.parents.clear();
        }
        if let Some(page) = self.page.take() {
            self.parents.insert(0, page);
        }
        Ok(())
    }

    /// Follows nobody from now on. Call [`Lineage::tell`] then.
    pub fn part(&mut self) {
        self.is_apart = true;
    }

    /// Another table was handed in.
    pub fn count_table(&mut self) {
        self.table += 1;
    }

    /// Tells all who follow where the cursor stands now.
    pub fn tell(&self, cursor: Cursor) {
        let Some(page) = &self.page else { return };
        // Whoever was forked past our hooks has the page of its parent.
        if self.process == std::process::id() {
            let follows_another = !self.followed().is_empty();
            Notice { cursor, table: self.table, follows_another }.write(page);
        }
    }

    /// Makes sure that a child which is forked now can follow; it gets an error otherwise.
    pub fn share_with_forks(&mut self, cursor: &mut Cursor) {
        // A stale table is told to whoever asks for a sample.
        let _ = self.follow(cursor);
        if self.process != fork_gate::process() {
            return;
        }
        let place = "the position in the stream could not be shared with this process";
        self.failed = self.make_page(*cursor).err().map(|error| error.within(place));
    }

    /// Descriptors and numbers of the pages that a process which is started anew can follow,
    /// nearest first; open as long as this lives.
    ///
    /// # Errors
    /// As the system fails; `Unsupported` in a child forked past our hooks, which cannot tell
    /// anybody where it stands.
    pub fn share_with_started(&mut self, cursor: Cursor) -> Result<Vec<(RawFd, usize)>> {
        if self.process != std::process::id() {
            return Err(Error::unsupported(
                "this process was forked without Python's knowledge (os.fork tells it), so a \
                 process that it starts could not follow its dataset; open the dataset here",
            ));
        }
        self.make_page(cursor)?;
        let pages = self.page.iter().chain(self.followed());
        Ok(pages.map(|page| page.place()).collect())
    }

    fn make_page(&mut self, cursor: Cursor) -> Result<()> {
        if self.page.is_none() {
            self.page = Some(Arc::new(SharedPage::new()?));
            self.tell(cursor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn at(epoch: u64) -> Cursor {
        Cursor {
            position: epoch * 10,
            epoch,
            len: 10,
            len_was_set: epoch % 2 == 1,
            read: epoch % 7,
        }
    }

    fn started_by(parent: &mut Lineage, cursor: Cursor) -> Lineage {
        let places = parent.share_with_started(cursor).unwrap();
        let pages = places.iter().map(|&(descriptor, number)| {
            Arc::new(SharedPage::from_descriptor(descriptor, number).unwrap())
        });
        Lineage::following(pages.collect(), parent.table())
    }

    /// What a fork of `parent` would be.
    fn forked_by(parent: &mut Lineage, cursor: Cursor) -> Lineage {
        parent.share_with_forks(&mut cursor.clone());
        let pages = parent.page.iter().chain(parent.followed()).cloned();
        Lineage::following(pages.collect(), parent.table())
    }

    fn seen_by(lineage: &mut Lineage) -> Result<Cursor> {
        let mut seen = at(0);
        lineage.follow(&mut seen).map(|()| seen)
    }

    #[test]
    fn a_child_follows_until_it_parts() {
        let mut parent = Lineage::new();
        let mut child = started_by(&mut parent, at(3));
        let mut seen = at(0);
        child.follow(&mut seen).unwrap();
        assert_eq!(seen, at(3));
        parent.tell(at(4));
        child.follow(&mut seen).unwrap();
        assert_eq!(seen, at(4));
        child.part();
        parent.tell(at(5));
        child.follow(&mut seen).unwrap();
        assert_eq!(seen, at(4));
    }

    #[test]
    fn a_replaced_table_is_noticed() {
        let mut parent = Lineage::new();
        let mut child = started_by(&mut parent, at(0));
        parent.count_table();
        parent.tell(at(1));
        let mut seen = at(0);
        let error = child.follow(&mut seen).unwrap_err();
        assert!(error.to_string().contains("new workers"), "{error}");
        assert_eq!(seen, at(0));
    }

    #[test]
    fn children_of_children_follow_all_whom_their_parent_follows() {
        let ways: [fn(&mut Lineage, Cursor) -> Lineage; 2] = [started_by, forked_by];
        for (one, two) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut first = Lineage::new();
            let mut second = ways[one](&mut first, at(1));
            let mut third = ways[two](&mut second, at(1));
            first.tell(at(7));
            assert_eq!(seen_by(&mut second).unwrap(), at(7));
            assert_eq!(seen_by(&mut third).unwrap(), at(7));
            first.count_table();
            first.tell(at(8));
            assert!(seen_by(&mut second).is_err());
            assert!(seen_by(&mut third).is_err());
            // From here on the nearest one goes its own way, with the table that both have.
            second.part();
            second.tell(at(9));
            assert_eq!(seen_by(&mut third).unwrap(), at(9));
            assert_eq!(seen_by(&mut ways[two](&mut second, at(9))).unwrap(), at(9));
            second.count_table();
            second.tell(at(10));
            assert!(seen_by(&mut third).is_err());
        }
    }

    #[test]
    fn nobody_reads_half_of_a_cursor() {
        let page = SharedPage::new().unwrap();
        let notice = |epoch| Notice { cursor: at(epoch), table: epoch, follows_another: false };
        notice(0).write(&page);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for epoch in 0..200_000 {
                    notice(epoch).write(&page);
                }
                ended.store(true, SeqCst);
            });
            while !ended.load(SeqCst) {
                let found = Notice::read(&page);
                assert_eq!(found, notice(found.table));
            }
        });
    }
}
