//! Small pieces of JSON: writing by hand where an answer is hot, reading where clients are loose.

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

/// Appends a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing into a Vec cannot fail, and text always has a JSON form.
    if serde_json::to_writer(&mut *out, text).is_err() {
        out.extend_from_slice(b"\"\"");
    }
}

/// Appends a JSON string or `null`.
pub fn write_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => write_text(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a decimal number.
pub fn write_number(out: &mut Vec<u8>, number: impl Into<i128>) {
    use std::io::Write as _;
    let _ = write!(out, "{}", number.into());
}

/// The bytes as JSON text, if they are one JSON document.
pub fn as_document(bytes: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(bytes).ok()
}

/// A record's value as the HTTP side shows it: JSON as it is, a tombstone as `null`, anything
/// else as an object that says so.
pub fn write_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(bytes) = value else {
        out.extend_from_slice(b"null");
        return;
    };
    match as_document(bytes) {
        Some(document) => out.extend_from_slice(document.get().as_bytes()),
        None => {
            use base64::Engine as _;
            out.extend_from_slice(b"{\"$base64\":\"");
            out.extend_from_slice(
                base64::engine::general_purpose::STANDARD
                    .encode(bytes)
                    .as_bytes(),
            );
            out.extend_from_slice(b"\"}");
        }
    }
}

/// The same as a value that serde can embed.
pub fn value_document(value: Option<&[u8]>) -> Box<RawValue> {
    let mut out = Vec::with_capacity(value.map_or(4, <[u8]>::len));
    write_value(&mut out, value);
    raw(String::from_utf8_lossy(&out).into_owned())
}

/// JSON text as a value that serde can embed; `null` when it is not JSON.
pub fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// JSON text without the white space between its tokens.
pub fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
        } else if c == '"' {
            in_string = true;
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        out.push(c);
    }
    out
}

/// Text that clients also send as a number or a boolean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Text, E> {
        Ok(Text(text))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Text, E> {
        Ok(Text(value.to_string()))
    }
}

/// For a field whose JSON `null` is a value and differs from an absent field.
pub fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Takes the text out, reading the empty text as absent.
pub fn non_empty(text: Option<Text>) -> Option<String> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        write_value(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_shown_byte_for_byte_or_say_what_they_are() {
        assert_eq!(shown(Some(b"{ \"a\" : 1.50e3 }")), "{ \"a\" : 1.50e3 }");
        assert_eq!(shown(None), "null");
        assert_eq!(shown(Some(b"null")), "null");
        assert_eq!(shown(Some(b"plain")), r#"{"$base64":"cGxhaW4="}"#);
        assert_eq!(shown(Some(b"")), r#"{"$base64":""}"#);
        assert_eq!(shown(Some(&[0xff, 0xfe])), r#"{"$base64":"//4="}"#);
        assert_eq!(shown(Some(b"{\"a\":1} trailing")).find("$base64"), Some(2));
    }

    #[test]
    fn compaction_leaves_strings_alone() {
        let text = " { \"a b\" : [ 1 , \"x \\\" y\\\\\" ] }\n";
        assert_eq!(compact(text), r#"{"a b":[1,"x \" y\\"]}"#);
    }

    #[test]
    fn text_is_read_from_scalars_only() {
        let texts: Vec<Text> = serde_json::from_str(r#"["a",1,true,-2]"#).unwrap();
        let texts: Vec<&str> = texts.iter().map(|t| t.0.as_str()).collect();
        assert_eq!(texts, ["a", "1", "true", "-2"]);
        assert!(serde_json::from_str::<Text>("{}").is_err());
        assert_eq!(serde_json::from_str::<Option<Text>>("null").unwrap(), None);
    }
}
