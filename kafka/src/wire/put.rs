//! Kafka's primitive types, written by hand for the answers that the codec crate would copy.

use bytes::{BufMut, BytesMut};

/// Writes the primitives of one message; flexible versions use compact lengths and tag sections.
pub(crate) struct Put<'a> {
    pub(crate) out: &'a mut BytesMut,
    pub(crate) flexible: bool,
}

impl Put<'_> {
    pub(crate) fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }

    /// The length of an array or, in flexible versions, one more than it as a varint.
    pub(crate) fn array(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        if self.flexible {
            self.varint(len.saturating_add(1));
        } else {
            self.out.put_u32(len);
        }
    }

    /// The length of a byte string; the bytes follow elsewhere.
    pub(crate) fn bytes_length(&mut self, len: usize) {
        self.array(len);
    }

    pub(crate) fn null_array(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        } else {
            self.out.put_i32(-1);
        }
    }

    pub(crate) fn string(&mut self, text: &str) {
        if self.flexible {
            self.varint(
                u32::try_from(text.len())
                    .unwrap_or(u32::MAX)
                    .saturating_add(1),
            );
        } else {
            self.out
                .put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        }
        self.out.put_slice(text.as_bytes());
    }

    pub(crate) fn nullable_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.string(text),
            None if self.flexible => self.out.put_u8(0),
            None => self.out.put_i16(-1),
        }
    }

    /// The end of a struct without tagged fields.
    pub(crate) fn no_tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }
}
