//! The cursor against a slow model that follows the prose of the specification word for word.

use std::collections::HashSet;

use dataset_rt_sampler::{Cursor, POSITION_LIMIT, Window};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Call {
    Claim,
    SetEpoch(u64),
    SetEpochLen(u64),
    TableReplaced(u64),
    /// A state saved after so many positions of the next window, modulo its length, is loaded.
    Load(u64),
}

/// The stream as the prose tells it: no limits while computing, a verdict at the end.
#[derive(Clone, Debug, Default)]
struct Model {
    k: u128,
    epoch: u128,
    length: u128,
    length_ever_set: bool,
    read: u128,
}

impl Model {
    /// The state after `call` with the window it hands out, or `None` when it must be refused.
    fn after(&self, call: Call) -> Option<(Self, Option<Window>)> {
        let mut next = self.clone();
        let mut window = None;
        match call {
            Call::Claim => {
                let [start, len, epoch] = [self.k, self.length, self.epoch].map(|x| x as u64);
                window = Some(Window { start, len, epoch, read: self.read as u64 });
                next.k += self.length;
                next.epoch += 1;
            }
            Call::Load(read) => {
                let read = u128::from(read) % self.length;
                let claimed = self.after(Call::Claim).is_some();
                return (read == 0 || claimed).then_some((Self { read, ..next }, None));
            }
            Call::SetEpoch(epoch) => {
                next.epoch = epoch.into();
                next.k = next.epoch * self.length;
            }
            Call::SetEpochLen(length) => {
                next.k += self.read;
                next.length = length.into();
                next.length_ever_set = true;
            }
            Call::TableReplaced(rows) => {
                next.length = rows.into();
                let start = self.epoch * next.length;
                next.k = start;
                if self.length_ever_set && self.k + self.read > start {
                    next.k = self.k + self.read;
                }
            }
        }
        next.read = 0;
        let legal = next.length > 0
            && next.length < POSITION_LIMIT.into()
            && next.k <= POSITION_LIMIT.into()
            && next.epoch <= u64::MAX.into();
        legal.then_some((next, window))
    }

    fn assert_equals(&self, cursor: &Cursor) {
        let fields = [cursor.position, cursor.epoch, cursor.len, cursor.read].map(u128::from);
        assert_eq!(fields, [self.k, self.epoch, self.length, self.read]);
        assert_eq!(cursor.len_was_set, self.length_ever_set);
    }
}

fn apply(cursor: &mut Cursor, call: Call) -> Option<Option<Window>> {
    match call {
        Call::Claim => cursor.claim().ok().map(Some),
        Call::SetEpoch(epoch) => cursor.set_epoch(epoch).ok().map(|()| None),
        Call::SetEpochLen(len) => cursor.set_epoch_len(len).ok().map(|()| None),
        Call::TableReplaced(rows) => cursor.table_replaced(rows).ok().map(|()| None),
        Call::Load(read) => {
            let Cursor { position, epoch, len, len_was_set, .. } = *cursor;
            *cursor = Cursor::restore(position, epoch, len, len_was_set, read % len).ok()?;
            Some(None)
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..20_u64, 1 => any::<u64>(), 2 => (0..64_u32).prop_map(|bit| 1 << bit)]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => Just(Call::Claim),
        1 => number().prop_map(Call::SetEpoch),
        1 => number().prop_map(Call::SetEpochLen),
        2 => number().prop_map(Call::TableReplaced),
        2 => number().prop_map(Call::Load),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_calls_agree_with_the_model(
        rows in 1..20_u64, calls in prop::collection::vec(call(), 0..40),
    ) {
        let mut cursor = Cursor::new(rows);
        let mut model = Model { length: rows.into(), ..Model::default() };
        for call in calls {
            let promised = cursor.peek();
            match (model.after(call), apply(&mut cursor, call)) {
                (Some((next, expected)), Some(window)) => {
                    prop_assert_eq!(window, expected);
                    prop_assert!(window.is_none_or(|window| window == promised));
                    model = next;
                }
                (None, None) => {}
                (expected, found) => prop_assert!(false, "{call:?}: {expected:?} but {found:?}"),
            }
            model.assert_equals(&cursor);
            let Cursor { position, epoch, len, len_was_set, read } = cursor;
            prop_assert_eq!(Cursor::restore(position, epoch, len, len_was_set, read), Ok(cursor));
        }
    }

    /// Without jumps nobody reads a position of one table twice: windows of one row count are
    /// disjoint, and once a length was set all windows are.
    #[test]
    fn no_position_is_read_twice(
        rows in 1..6_u64, len in 1..6_u64,
        steps in prop::collection::vec((0..3_u8, 1..6_u64), 0..60),
        set_len_first: bool,
    ) {
        let mut cursor = Cursor::new(rows);
        let mut table = rows;
        let mut read = HashSet::new();
        if set_len_first {
            cursor.set_epoch_len(len).unwrap();
        }
        for (step, number) in steps {
            match step {
                0 => { cursor.table_replaced(number).unwrap(); table = number; }
                1 if set_len_first => cursor.set_epoch_len(number).unwrap(),
                _ => for k in cursor.claim().unwrap().positions() {
                    // Another row count is another table, hence another stream.
                    let stream = if set_len_first { 0 } else { table };
                    prop_assert!(read.insert((stream, k)), "position {} again", k);
                },
            }
        }
    }
}

fn window(start: u64, len: u64, epoch: u64) -> Window {
    Window { start, len, epoch, read: 0 }
}

#[test]
fn every_epoch_starts_at_a_multiple_of_the_length() {
    let mut cursor = Cursor::new(5);
    for epoch in 0..4 {
        assert_eq!(cursor.claim().unwrap(), window(epoch * 5, 5, epoch));
    }
    cursor.set_epoch(2).unwrap();
    assert_eq!(cursor.claim().unwrap(), window(10, 5, 2));
}

/// Hard example mining: every epoch gets a table of its own, and going back to an old table
/// continues instead of replaying.
#[test]
fn reapplying_a_table_does_not_replay_an_old_epoch() {
    let mut cursor = Cursor::new(10);
    assert_eq!(cursor.claim().unwrap(), window(0, 10, 0));
    cursor.table_replaced(4).unwrap();
    assert_eq!(cursor.claim().unwrap(), window(4, 4, 1));
    cursor.table_replaced(10).unwrap();
    assert_eq!(cursor.claim().unwrap(), window(20, 10, 2));
}

#[test]
fn what_an_epoch_reads_does_not_depend_on_how_it_was_reached() {
    let mut walked = Cursor::new(10);
    for rows in [3, 8, 6] {
        walked.claim().unwrap();
        walked.table_replaced(rows).unwrap();
    }
    let mut jumped = Cursor::new(6);
    jumped.set_epoch(3).unwrap();
    assert_eq!(walked, jumped);
}

#[test]
fn a_set_length_keeps_the_position_and_survives_no_table() {
    let mut cursor = Cursor::new(10);
    cursor.claim().unwrap();
    cursor.set_epoch_len(100).unwrap();
    assert_eq!(cursor.claim().unwrap(), window(10, 100, 1));
    cursor.table_replaced(7).unwrap();
    // 2 * 7 lies before 110: going there would read positions twice.
    assert_eq!(cursor.claim().unwrap(), window(110, 7, 2));
    cursor.table_replaced(1000).unwrap();
    assert_eq!(cursor.claim().unwrap(), window(3000, 1000, 3));
    cursor.set_epoch(0).unwrap();
    assert_eq!(cursor.peek(), window(0, 1000, 0));
}

#[test]
fn what_was_read_of_a_window_is_not_read_again() {
    let saved = Cursor::restore(20, 2, 10, false, 4).unwrap();
    let mut cursor = saved;
    assert_eq!(cursor.peek().start, 20, "indices still count from the window's start");
    assert_eq!(cursor.claim().unwrap().positions(), 24..30);
    assert_eq!(cursor.claim().unwrap(), window(30, 10, 3));
    cursor = saved;
    cursor.set_epoch_len(3).unwrap();
    assert_eq!(cursor.peek(), window(24, 3, 2));
    cursor = saved;
    cursor.set_epoch(2).unwrap();
    assert_eq!(cursor.peek(), window(20, 10, 2), "a jump reads the whole epoch");
}
