//! Inputs read as choices and as changes to valid bytes. Knows no format.

/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 20] = [
    0,
    1,
    u64::MAX,
    u64::MAX - 7,
    i64::MAX as u64,
    i64::MIN as u64,
    i64::MAX as u64 - 63,
    1 << 31,
    (1 << 31) - 1,
    (1 << 31) - 64,
    1 << 32,
    (1 << 32) - 1,
    1 << 40,
    1 << 53,
    8,
    64,
    65_536,
    65_535,
    1 << 20,
    127,
];

/// An input, taken from its front. Behind its end everything is zero.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn long(&mut self) -> u64 {
        let mut bytes = [0; 8];
        bytes.fill_with(|| self.byte());
        u64::from_le_bytes(bytes)
    }

    /// An edge, or any number.
    pub fn number(&mut self) -> u64 {
        let choice = usize::from(self.byte());
        EDGES.get(choice).copied().unwrap_or_else(|| self.long())
    }

    /// One of `items`, which are not none.
    pub fn pick<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[usize::from(self.byte()) % items.len()]
    }

    /// At most `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Takes one change from `input` and applies it.
pub fn edit(input: &mut Input<'_>, bytes: &mut Vec<u8>) {
    let choice = input.byte();
    let distance = usize::from(input.short()) % (bytes.len() + 1);
    let at = if choice & 0x80 == 0 { distance } else { bytes.len() - distance };
    match choice & 0x0f {
        0 | 1 => {
            let len = usize::from(input.byte());
            overwrite(bytes, at, input.bytes(len));
        }
        2 => {
            let len = usize::from(input.byte());
            bytes.splice(at..at, input.bytes(len).iter().copied());
        }
        3 => {
            let end = at + usize::from(input.byte()).min(bytes.len() - at);
            bytes.drain(at..end);
        }
        4 | 5 => overwrite(bytes, at & !7, &input.number().to_le_bytes()),
        6 | 7 => overwrite(bytes, at & !3, &(input.number() as u32).to_le_bytes()),
        8 | 9 => {
            let at = at & !7;
            let old = bytes.get(at..at + 8).and_then(|old| old.try_into().ok());
            let delta = i64::from(input.byte() as i8) as u64;
            let new = u64::from_le_bytes(old.unwrap_or_default()).wrapping_add(delta);
            overwrite(bytes, at, &new.to_le_bytes());
        }
        10 => bytes.truncate(at),
        11 => {
            let from = usize::from(input.short()).min(bytes.len());
            let end = from + usize::from(input.byte()).min(bytes.len() - from);
            let piece = bytes[from..end].to_vec();
            overwrite(bytes, at, &piece);
        }
        12 => *bytes = input.rest().to_vec(),
        13 => bytes.extend(input.rest()),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (input.byte() % 8);
            }
        }
    }
}

/// Puts `new` over the bytes at `at`, as far as there are some.
fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (old, new) in bytes.iter_mut().skip(at).zip(new) {
        *old = *new;
    }
}

/// All changes that `input` holds, at most `most`.
pub fn edit_all(input: &mut Input<'_>, bytes: &mut Vec<u8>, most: usize) {
    for _ in 0..most {
        if input.is_empty() {
            break;
        }
        edit(input, bytes);
    }
}
