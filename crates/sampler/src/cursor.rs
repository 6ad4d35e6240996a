//! Where a stream stands: epochs and windows as arithmetic; knows nothing of rows, keys or ranks.

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// No window may end behind this position (rule S19): positions then fit every signed 64-bit field.
pub const POSITION_LIMIT: u64 = 1 << 63;
/// Most positions of a window: a length, too, fits every signed 64-bit field.
const LEN_MAX: u64 = POSITION_LIMIT - 1;

/// The positions one iterator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// First position.
    pub start: u64,
    /// Number of positions.
    pub len: u64,
    /// Number of the epoch the window belongs to.
    pub epoch: u64,
    /// Positions at its beginning that were read before the state was saved: reading goes on
    /// behind them.
    pub read: u64,
}

impl Window {
    /// The position that reading begins at.
    #[must_use]
    pub const fn begin(&self) -> u64 {
        self.start.saturating_add(self.read)
    }

    /// The position behind the last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        // A window made by a cursor ends at most at POSITION_LIMIT; saturation guards foreign ones.
        self.start.saturating_add(self.len)
    }

    /// All positions that are read, in order.
    #[must_use]
    pub const fn positions(&self) -> Range<u64> {
        self.begin()..self.end()
    }
}

/// Why a cursor refused to move. The cursor is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CursorError {
    /// The stream would pass [`POSITION_LIMIT`], or the epoch number would not fit 64 bits.
    Overflow {
        /// Epoch number the cursor was to take or to leave.
        epoch: u64,
        /// Epoch length involved.
        len: u64,
        /// Position the cursor stood at.
        position: u64,
    },
    /// An epoch must have at least one position.
    EmptyEpoch,
    /// Windows are of fewer positions.
    TooLong {
        /// Epoch length asked for.
        len: u64,
    },
    /// While no length was set, epochs begin at multiples of theirs.
    NoMultiple {
        /// First position of the epoch.
        position: u64,
        /// Its number.
        epoch: u64,
        /// Epoch length.
        len: u64,
    },
    /// More positions of a window were read than leave one.
    ReadBeyond {
        /// Positions read.
        read: u64,
        /// Epoch length.
        len: u64,
    },
}

impl fmt::Display for CursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow { epoch, len, position } => write!(
                f,
                "the stream of samples ends at position 2**63: epoch {epoch} with {len} samples \
                 per epoch, seen from position {position}, lies behind it; choose a smaller epoch \
                 or epoch length"
            ),
            Self::EmptyEpoch => f.write_str("an epoch needs at least 1 sample, found 0"),
            Self::TooLong { len } => {
                write!(f, "an epoch of {len} samples is too long; expected fewer than 2**63")
            }
            Self::NoMultiple { position, epoch, len } => write!(
                f,
                "epoch {epoch} of {len} samples cannot begin at position {position} while no epoch \
                 length was set; expected epoch * length"
            ),
            Self::ReadBeyond { read, len } => write!(
                f,
                "{read} samples of an epoch were read; expected fewer than its {len} samples"
            ),
        }
    }
}

impl Error for CursorError {}

/// The state of a stream: the next window's first position, its epoch number and length.
///
/// Fields are public for saving and reporting; [`Cursor::restore`] checks values from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// First position of the next window.
    pub position: u64,
    /// Epoch number of the next window.
    pub epoch: u64,
    /// Positions per window.
    pub len: u64,
    /// Whether [`Cursor::set_epoch_len`] was ever called; it stays true.
    pub len_was_set: bool,
    /// Positions of the next window that were read before the state was saved.
    pub read: u64,
}

impl Cursor {
    /// The start of a stream over `rows` rows. With no rows every window is empty.
    #[must_use]
    pub const fn new(rows: u64) -> Self {
        Self { position: 0, epoch: 0, len: rows, len_was_set: false, read: 0 }
    }

    /// A cursor with saved fields.
    ///
    /// # Errors
    /// [`CursorError`] when no sequence of calls leads to a cursor like this.
    pub fn restore(
        position: u64,
        epoch: u64,
        len: u64,
        len_was_set: bool,
        read: u64,
    ) -> Result<Self, CursorError> {
        check_len(len)?;
        if read >= len {
            return Err(CursorError::ReadBeyond { read, len });
        }
        let cursor = Self { position, epoch, len, len_was_set, read };
        if !len_was_set && cursor.start_of(epoch, len)? != position {
            return Err(CursorError::NoMultiple { position, epoch, len });
        }
        // Whoever read of a window had claimed it.
        let is_possible = position <= POSITION_LIMIT && (read == 0 || { cursor }.claim().is_ok());
        if is_possible { Ok(cursor) } else { Err(cursor.overflow(epoch, len)) }
    }

    /// The window that the next [`Cursor::claim`] returns.
    ///
    /// Claiming it may still be refused at the end of the stream.
    #[must_use]
    pub const fn peek(&self) -> Window {
        Window { start: self.position, len: self.len, epoch: self.epoch, read: self.read }
    }

    /// Takes the next window: the position moves behind it, the epoch number grows by one.
    ///
    /// # Errors
    /// [`CursorError::Overflow`] at the end of the stream.
    pub fn claim(&mut self) -> Result<Window, CursorError> {
        let window = self.peek();
        let refused = self.overflow(self.epoch, self.len);
        let end = within_limit(self.position.checked_add(self.len)).ok_or(refused)?;
        self.epoch = self.epoch.checked_add(1).ok_or(refused)?;
        self.position = end;
        self.read = 0;
        Ok(window)
    }

    /// Jumps to the start of epoch `epoch`, that is position `epoch * len`.
    ///
    /// # Errors
    /// [`CursorError::Overflow`] when that lies behind the end of the stream.
    pub fn set_epoch(&mut self, epoch: u64) -> Result<(), CursorError> {
        self.position = self.start_of(epoch, self.len)?;
        self.epoch = epoch;
        self.read = 0;
        Ok(())
    }

    /// Gives later windows `len` positions; the stream goes on where it is.
    ///
    /// # Errors
    /// [`CursorError::EmptyEpoch`] for zero, [`CursorError::TooLong`] from 2^63 on.
    pub fn set_epoch_len(&mut self, len: u64) -> Result<(), CursorError> {
        check_len(len)?;
        self.position = self.peek().begin();
        self.read = 0;
        self.len = len;
        self.len_was_set = true;
        Ok(())
    }

    /// Adapts to an active table of `rows` rows: windows get that length, the epoch number stays.
    ///
    /// The position becomes `epoch * rows`, so that contents, table, seed and epoch alone decide
    /// what an epoch reads. Once an epoch length was ever set, positions are no longer multiples of
    /// a length: then it never moves back, so that no position is read twice.
    ///
    /// # Errors
    /// [`CursorError`] for an empty table, or when the position lies behind the end of the stream.
    pub fn table_replaced(&mut self, rows: u64) -> Result<(), CursorError> {
        check_len(rows)?;
        let start = self.start_of(self.epoch, rows)?;
        self.position = if self.len_was_set { start.max(self.peek().begin()) } else { start };
        self.read = 0;
        self.len = rows;
        Ok(())
    }

    fn start_of(&self, epoch: u64, len: u64) -> Result<u64, CursorError> {
        within_limit(epoch.checked_mul(len)).ok_or_else(|| self.overflow(epoch, len))
    }

    const fn overflow(&self, epoch: u64, len: u64) -> CursorError {
        CursorError::Overflow { epoch, len, position: self.position }
    }
}

const fn check_len(len: u64) -> Result<(), CursorError> {
    match len {
        0 => Err(CursorError::EmptyEpoch),
        1..=LEN_MAX => Ok(()),
        _ => Err(CursorError::TooLong { len }),
    }
}

fn within_limit(position: Option<u64>) -> Option<u64> {
    position.filter(|&position| position <= POSITION_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_stops_exactly_at_the_end_of_the_stream() {
        let mut cursor = Cursor::restore(POSITION_LIMIT - 7, 3, 7, true, 0).unwrap();
        let before_last = cursor;
        assert_eq!(cursor.claim().unwrap().end(), POSITION_LIMIT);
        let at_end = cursor;
        assert!(cursor.claim().is_err());
        assert_eq!(cursor, at_end);
        cursor = before_last;
        cursor.set_epoch_len(8).unwrap();
        assert!(cursor.claim().is_err());
        assert_eq!(cursor.peek().start, POSITION_LIMIT - 7);
    }

    #[test]
    fn refused_moves_leave_the_cursor_unchanged() {
        let mut cursor = Cursor::new(1 << 40);
        cursor.set_epoch(1 << 22).unwrap();
        let before = cursor;
        assert!(cursor.set_epoch((1 << 23) + 1).is_err());
        assert!(cursor.set_epoch(u64::MAX).is_err());
        assert!(cursor.table_replaced(1 << 42).is_err());
        assert_eq!(cursor.table_replaced(0), Err(CursorError::EmptyEpoch));
        assert_eq!(cursor.set_epoch_len(0), Err(CursorError::EmptyEpoch));
        assert_eq!(cursor, before);
    }

    #[test]
    fn the_last_epoch_number_cannot_be_left() {
        let mut cursor = Cursor::restore(0, u64::MAX, 1, true, 0).unwrap();
        assert!(cursor.claim().is_err());
        assert_eq!(cursor, Cursor::restore(0, u64::MAX, 1, true, 0).unwrap());
    }

    #[test]
    fn restore_refuses_what_no_cursor_can_be() {
        assert!(Cursor::restore(POSITION_LIMIT, 0, 1, true, 0).is_ok());
        assert!(Cursor::restore(POSITION_LIMIT + 1, 0, 1, true, 0).is_err());
        assert_eq!(Cursor::restore(0, 0, 0, false, 0), Err(CursorError::EmptyEpoch));
        assert!(Cursor::restore(0, 0, 5, false, 4).is_ok());
        let refused = Err(CursorError::ReadBeyond { read: 5, len: 5 });
        assert_eq!(Cursor::restore(0, 0, 5, false, 5), refused);
        assert!(Cursor::restore(POSITION_LIMIT - 4, 0, 5, true, 1).is_err());
        let refused = Err(CursorError::NoMultiple { position: 6, epoch: 1, len: 5 });
        assert_eq!(Cursor::restore(6, 1, 5, false, 0), refused);
        let refused = Err(CursorError::TooLong { len: POSITION_LIMIT });
        assert_eq!(Cursor::restore(0, 0, POSITION_LIMIT, true, 0), refused);
        assert_eq!(
            Cursor::new(1).set_epoch_len(POSITION_LIMIT),
            Err(CursorError::TooLong { len: POSITION_LIMIT })
        );
    }

    #[test]
    fn messages_name_the_numbers() {
        let text = Cursor::new(3).set_epoch(u64::MAX).unwrap_err().to_string();
        assert!(text.contains("18446744073709551615") && text.contains("3 samples"), "{text}");
    }
}
