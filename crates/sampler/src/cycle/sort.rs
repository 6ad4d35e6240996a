//! Sorting that can be stopped; knows nothing of what the numbers mean.

use super::error::CycleError;

/// Numbers sorted or parted between two looks whether to go on: about five milliseconds of work.
pub(super) const PIECE: usize = 65_536;

/// Numbers whose median parts others in two.
const SAMPLES: usize = 31;

/// Sorts different numbers, in place.
///
/// # Errors
/// [`CycleError::Stopped`] when `go_on` said no.
pub(super) fn sort(
    numbers: &mut [u128],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), CycleError> {
    let mut parts = vec![numbers];
    while let Some(part) = parts.pop() {
        if part.len() <= PIECE {
            look(go_on)?;
            part.sort_unstable();
            continue;
        }
        let middle = partition(part, go_on)?;
        let (low, high) = part.split_at_mut(middle);
        // The smaller one next: the list of the others stays short.
        let (small, large) = if low.len() < high.len() { (low, high) } else { (high, low) };
        parts.push(large);
        parts.push(small);
    }
    Ok(())
}

/// Moves numbers below a median of some to the front, and counts them: neither none nor all.
fn partition(part: &mut [u128], go_on: &mut dyn FnMut() -> bool) -> Result<usize, CycleError> {
    let pivot = median(part);
    let mut low = 0;
    for start in (0..part.len()).step_by(PIECE) {
        look(go_on)?;
        for i in start..part.len().min(start + PIECE) {
            // Without a branch, which would be guessed wrong every other time.
            let is_low = part[i] < pivot;
            part.swap(low, i);
            low += usize::from(is_low);
        }
    }
    Ok(low)
}

/// The median of some numbers at places without a period: weights may have one.
fn median(part: &[u128]) -> u128 {
    /// 2^64 over the golden ratio.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut samples = [0; SAMPLES];
    for (i, sample) in (1..).zip(&mut samples) {
        let place = (u128::from(STEP.wrapping_mul(i)) * part.len() as u128) >> 64;
        *sample = part[place as usize];
    }
    samples.sort_unstable();
    samples[SAMPLES / 2]
}

/// Whether to go on.
///
/// # Errors
/// [`CycleError::Stopped`] when not.
pub(super) fn look(go_on: &mut dyn FnMut() -> bool) -> Result<(), CycleError> {
    if go_on() { Ok(()) } else { Err(CycleError::Stopped) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Different numbers in orders that a sort may stumble over.
    fn inputs(len: u128) -> [Vec<u128>; 5] {
        let scattered = |i: u128| (i * 0x9e37_79b9_7f4a_7c15) & 0xffff_ffff_ffff;
        [
            (0..len).collect(),
            (0..len).rev().collect(),
            (0..len).map(|i| scattered(i) << 64 | i).collect(),
            // Two values in turn, but for the last bits.
            (0..len).map(|i| (i % 2) << 90 | i).collect(),
            (0..len).map(|i| i.min(len - i) << 64 | i).collect(),
        ]
    }

    #[test]
    fn numbers_in_any_order_are_sorted() {
        for len in [0, 1, 2, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3] {
            for mut numbers in inputs(len as u128) {
                let mut expected = numbers.clone();
                expected.sort_unstable();
                sort(&mut numbers, &mut || true).unwrap();
                assert_eq!(numbers, expected, "{len}");
            }
        }
    }

    #[test]
    fn a_look_comes_with_every_piece_and_stops_the_work() {
        let [.., mut numbers] = inputs(20 * PIECE as u128);
        let mut looks = 0;
        sort(&mut numbers.clone(), &mut || {
            looks += 1;
            true
        })
        .unwrap();
        assert!(looks > 60, "{looks}");
        for at in [1, looks / 2, looks] {
            let mut left = at;
            let stopped = sort(&mut numbers, &mut || {
                left -= 1;
                left > 0
            });
            assert_eq!((stopped, left), (Err(CycleError::Stopped), 0));
        }
    }
}
