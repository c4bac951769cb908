//! Zigzag variable-length integers as Kafka writes them, and a cursor over borrowed bytes.

use super::RecordError;

/// A reader over a record; every read either succeeds or leaves the batch refused.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn byte(&mut self) -> Result<u8, RecordError> {
        let (&byte, rest) = self.rest.split_first().ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], RecordError> {
        let (head, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn varint(&mut self) -> Result<i32, RecordError> {
        // One byte covers most lengths and deltas.
        if let Some((&byte, rest)) = self.rest.split_first()
            && byte < 0x80
        {
            self.rest = rest;
            return Ok(i32::from(byte >> 1) ^ -i32::from(byte & 1));
        }
        let raw = u32::try_from(self.unsigned(5)?).map_err(|_| RecordError::Varint)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    pub(super) fn varlong(&mut self) -> Result<i64, RecordError> {
        let raw = self.unsigned(10)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A length and that many bytes; -1 stands for null.
    pub(super) fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| RecordError::Length)?;
                self.take(length).map(Some)
            }
        }
    }

    fn unsigned(&mut self, bytes_max: u32) -> Result<u64, RecordError> {
        let mut value = 0u64;
        for index in 0..bytes_max {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            let shifted = low << (7 * index);
            // Only the tenth byte can lose bits.
            if shifted >> (7 * index) != low {
                return Err(RecordError::Varint);
            }
            value |= shifted;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordError::Varint)
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_unsigned(
        out,
        u64::from(((value << 1) ^ (value >> 31)).cast_unsigned()),
    );
}

pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes a varint of `value` takes.
pub(super) fn varint_len(value: i32) -> usize {
    len(u64::from(((value << 1) ^ (value >> 31)).cast_unsigned()))
}

/// Bytes a varlong of `value` takes.
pub(super) fn varlong_len(value: i64) -> usize {
    len(((value << 1) ^ (value >> 63)).cast_unsigned())
}

fn len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}
