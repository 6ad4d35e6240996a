//! How the cursor of a dataset hangs together with those of other processes. Knows no table but
//! its number, and no process but its own.
//!
//! A worker of a loader is to read the epoch that its trainer set last. Whoever moves a cursor
//! writes it into a page of memory that its children see; a child follows that page until it moves
//! its cursor itself. Pages are made before a fork, by [`Lineage::share_with_forks`], and for a
//! process that is started anew, by [`Lineage::share_with_started`]: a cursor that nobody follows
//! costs nothing.
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
    /// The process whose these pages are.
    process: u32,
    /// Number of the table that this process reads: grows with each one handed in.
    table: u64,
    for_forks: Option<Arc<SharedPage>>,
    for_started: Option<Arc<SharedPage>>,
    /// Pages of the processes this one descends from, nearest first; none when it follows nobody.
    followed: Vec<Arc<SharedPage>>,
    /// Why children cannot follow.
    failed: Option<Error>,
}

impl Lineage {
    /// Of a cursor that follows nobody.
    pub fn new() -> Self {
        Self {
            process: fork_gate::process(),
            table: 0,
            for_forks: None,
            for_started: None,
            followed: Vec::new(),
            failed: None,
        }
    }

    /// Of a cursor that follows a page, as long as that speaks of table number `table`.
    pub fn following(page: SharedPage, table: u64) -> Self {
        Self { table, followed: vec![Arc::new(page)], ..Self::new() }
    }

    /// Number of the table, for [`Lineage::following`].
    pub fn table(&self) -> u64 {
        self.table
    }

    /// Brings `cursor` to where the process that is followed left it.
    ///
    /// # Errors
    /// `Conflict` when its table is another one now, `Exhausted` when it could not be shared.
    pub fn follow(&mut self, cursor: &mut Cursor) -> Result<()> {
        if self.process != fork_gate::process() {
            self.become_child()?;
        }
        if self.followed.is_empty() {
            return Ok(());
        }
        let notices = self.followed.iter().map(|page| Notice::read(page));
        let mut nearest = None;
        for notice in notices {
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
        self.for_started = None;
        if let Some(page) = self.for_forks.take() {
            self.followed.insert(0, page);
        }
        Ok(())
    }

    /// Follows nobody from now on. Call [`Lineage::tell`] then.
    pub fn part(&mut self) {
        self.followed.clear();
    }

    /// Another table was handed in.
    pub fn count_table(&mut self) {
        self.table += 1;
    }

    /// Tells all who follow where the cursor stands now.
    pub fn tell(&self, cursor: Cursor) {
        let mut pages = self.for_forks.iter().chain(&self.for_started).peekable();
        // Whoever was forked past our hooks has the pages of its parent.
        if pages.peek().is_none() || self.process != std::process::id() {
            return;
        }
        let follows_another = !self.followed.is_empty();
        let notice = Notice { cursor, table: self.table, follows_another };
        pages.for_each(|page| notice.write(page));
    }

    /// Makes sure that a child which is forked now can follow; it gets an error otherwise.
    pub fn share_with_forks(&mut self, cursor: &mut Cursor) {
        // A stale table is told to whoever asks for a sample.
        let _ = self.follow(cursor);
        if self.for_forks.is_some() || self.process != fork_gate::process() {
            return;
        }
        match SharedPage::anonymous() {
            Ok(page) => {
                self.for_forks = Some(Arc::new(page));
                self.failed = None;
                self.tell(*cursor);
            }
            Err(error) => {
                let place = "the position in the stream could not be shared with this process";
                self.failed = Some(error.within(place));
            }
        }
    }

    /// The descriptor of a page that a process which is started anew can follow. This one follows
    /// nobody from now on.
    ///
    /// # Errors
    /// As the system fails.
    pub fn share_with_started(&mut self, cursor: Cursor) -> Result<RawFd> {
        let page = match &self.for_started {
            Some(page) => Arc::clone(page),
            None => Arc::new(SharedPage::with_descriptor()?),
        };
        let descriptor = page.descriptor();
        self.for_started = Some(page);
        self.part();
        self.tell(cursor);
        descriptor.ok_or_else(|| Error::internal("a page for others has no descriptor"))
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
        let descriptor = parent.share_with_started(cursor).unwrap();
        Lineage::following(SharedPage::from_descriptor(descriptor).unwrap(), parent.table())
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
    fn a_page_that_only_repeats_leads_to_the_next() {
        let mut first = Lineage::new();
        let mut second = started_by(&mut first, at(0));
        second.share_with_forks(&mut at(0));
        // What a fork of the second would inherit.
        let pages = second.for_forks.iter().chain(&second.followed).cloned().collect();
        let mut third = Lineage { followed: pages, ..Lineage::new() };
        let mut seen = at(0);
        first.tell(at(7));
        third.follow(&mut seen).unwrap();
        assert_eq!(seen, at(7));
        second.part();
        second.tell(at(9));
        third.follow(&mut seen).unwrap();
        assert_eq!(seen, at(9));
    }

    #[test]
    fn nobody_reads_half_of_a_cursor() {
        let page = SharedPage::anonymous().unwrap();
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
