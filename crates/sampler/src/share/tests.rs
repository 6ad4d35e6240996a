//! Shares of ranks and lanes against slow readings of the rules.

use proptest::prelude::*;

use super::*;

fn partition(rank: u64, world: u64, global_batch: Option<u64>, drop_last: bool) -> Partition {
    Partition::new(rank, world, global_batch, drop_last).unwrap()
}

fn positions(share: &Share) -> Vec<u64> {
    let mut out = vec![0; share.rows() as usize];
    share.positions_into(0, &mut out);
    out
}

#[test]
fn a_span_reaches_from_the_first_to_the_last_position() {
    let lane = partition(1, 3, Some(5), false).share(10..97).lane(1, 2, 3);
    for share in [Share::all(10..97), partition(2, 3, None, false).share(10..97), lane] {
        let positions = positions(&share);
        for first in 0..positions.len() {
            for end in first + 1..positions.len() + 1 {
                let expected = positions[first]..positions[end - 1] + 1;
                assert_eq!(share.span(first as u64..end as u64), expected);
            }
        }
        let rows = share.rows();
        assert_eq!(share.span(rows - 1..rows + 9).end, positions[positions.len() - 1] + 1);
        assert!(share.span(rows..rows + 9).is_empty() && share.span(3..3).is_empty());
    }
    assert!(partition(1, 3, None, false).share(0..1).span(0..1).is_empty());
}

#[test]
fn without_a_global_batch_ranks_take_turns() {
    let share = partition(1, 3, None, false).share(10..18);
    assert_eq!(positions(&share), [11, 14, 17]);
    assert_eq!(positions(&partition(2, 3, None, false).share(10..18)), [12, 15]);
    assert_eq!(positions(&partition(1, 3, None, true).share(10..18)), [11, 14]);
}

#[test]
fn the_first_ranks_take_one_more() {
    let parts = [0, 1, 2].map(|rank| positions(&partition(rank, 3, Some(5), false).share(0..8)));
    assert_eq!(parts, [vec![0, 1, 5, 6], vec![2, 3, 7], vec![4]]);
}

#[test]
fn three_samples_on_eight_ranks_are_one_step() {
    for rank in 0..8 {
        let all = partition(rank, 8, None, false);
        let share = all.share(0..3);
        assert_eq!(positions(&share), (rank..3.min(rank + 1)).collect::<Vec<_>>());
        assert_eq!(all.batches(0..3, 4).unwrap().batches, 1);
        assert_eq!(partition(rank, 8, None, true).batches(0..3, 1).unwrap().batches, 0);
        // Who has nothing cannot tell the beginning from the end before it was told.
        let resumed = if rank < 3 { Some(3) } else { Some(0) };
        assert_eq!(share.resume_position(share.rows(), false), resumed);
        assert_eq!(share.resume_position(share.rows(), true), Some(3));
    }
}

#[test]
fn refusals_name_the_numbers() {
    let text = Partition::new(2, 2, None, false).unwrap_err().to_string();
    assert!(text.contains("rank 2") && text.contains("world_size 2"), "{text}");
    assert_eq!(
        Partition::new(0, 0, None, false).unwrap_err(),
        PartitionError::Rank { rank: 0, world_size: 0 }
    );
    assert_eq!(Partition::new(0, 1, Some(0), false), Err(PartitionError::EmptyBatch));
    let text = partition(0, 2, Some(5), false).batches(0..9, 2).unwrap_err().to_string();
    assert!(text.contains("batch_size 2") && text.contains("expected 3"), "{text}");
}

#[test]
fn the_ends_of_the_stream_do_not_overflow() {
    let end = crate::POSITION_LIMIT;
    for world in [1, 2, u64::MAX] {
        let all = partition(world - 1, world, None, false);
        let share = all.share(0..end);
        assert!(share.rows() == 0 || share.position(share.rows() - 1) < end);
        let lane = share.lane(1, 2, u64::MAX);
        assert!(lane.rows() <= share.rows());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The union of all ranks' steps is the stretch, step by step and in order.
    #[test]
    fn ranks_together_read_the_stretch(
        begin in 0..50_u64, len in 0..60_u64, world in 1..10_u64,
        global_batch in prop::option::of(1..20_u64), drop_last: bool,
    ) {
        let step = global_batch.unwrap_or(world);
        let dealt = if drop_last { len / step * step } else { len };
        let mut read = Vec::new();
        let shares: Vec<Share> = (0..world)
            .map(|rank| partition(rank, world, global_batch, drop_last).share(begin..begin + len))
            .collect();
        let mut taken = vec![0; shares.len()];
        for t in 0..len.div_ceil(step) {
            for (share, taken) in shares.iter().zip(&mut taken) {
                let within = |i: &u64| (share.position(*i) - begin) / step == t;
                let mine = (*taken..share.rows()).take_while(within);
                read.extend(mine.clone().map(|i| share.position(i)));
                *taken += mine.count() as u64;
            }
            // All ranks say the same at the end of a step that all of them took part in.
            for (share, &taken) in shares.iter().zip(&taken) {
                if (t + 1) * step <= dealt {
                    let last = (t + 1) * step == dealt;
                    let next = if last { begin + len } else { begin + (t + 1) * step };
                    prop_assert!(share.width == 0
                        || share.resume_position(taken, false) == Some(next));
                }
                prop_assert_eq!(share.resume_position(taken, true), Some(begin + len));
            }
        }
        prop_assert_eq!(read, (begin..begin + dealt).collect::<Vec<_>>());
    }

    #[test]
    fn batches_hold_the_share_and_are_equally_many(
        len in 0..60_u64, world in 1..10_u64, batch in 1..6_u64, drop_last: bool,
    ) {
        let steps = if drop_last { len / world } else { len.div_ceil(world) };
        let expected = if drop_last { steps / batch } else { steps.div_ceil(batch) };
        for rank in 0..world {
            let all = partition(rank, world, None, drop_last);
            let batching = all.batches(3..3 + len, batch).unwrap();
            let Batching { share, rows, batches, .. } = batching;
            prop_assert_eq!((rows, batches), (batch, expected));
            for n in 0..=batches {
                let taken = batching.batch(n).start;
                let next = if n < batches { 3 + n * batch * world } else { 3 + len };
                prop_assert_eq!(batching.resume_position(n, taken), Some(next));
            prop_assert_eq!(batching.begin_of(n), next);
            }
            let kept = if drop_last { batches * batch } else { u64::MAX };
            let read: Vec<u64> = positions(&all.share(3..3 + len)).into_iter()
                .take(kept as usize).collect();
            prop_assert_eq!(positions(&share), read);
            prop_assert!(share.rows() <= rows * batches);
        }
    }

    /// Lanes deal out whole units in turn: unit by unit they give the share back.
    #[test]
    fn lanes_take_turns(
        len in 0..80_u64, world in 1..4_u64, lanes in 1..5_u64, unit in 1..7_u64,
    ) {
        let whole = partition(0, world, None, false).share(0..len);
        let mut readers: Vec<_> = (0..lanes)
            .map(|lane| positions(&whole.lane(lane, lanes, unit)).into_iter())
            .collect();
        let mut read = Vec::new();
        for turn in 0..whole.rows().div_ceil(unit) {
            read.extend(readers[(turn % lanes) as usize].by_ref().take(unit as usize));
        }
        prop_assert_eq!(read, positions(&whole));
        prop_assert!(readers.iter_mut().all(|reader| reader.next().is_none()));
    }

    #[test]
    fn inside_a_step_there_is_no_place_to_resume(
        steps in 1..6_u64, global_batch in 2..9_u64, taken in 0..60_u64,
    ) {
        let share = partition(0, 1, Some(global_batch), false).share(0..steps * global_batch);
        let taken = taken.min(share.rows());
        let expected = (taken % global_batch == 0).then_some(taken);
        prop_assert_eq!(share.resume_position(taken, false), expected);
    }
}
