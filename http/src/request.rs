//! A request as handlers see it: the raw path in segments, the query decoded, the body whole.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use hyper::Method;
use percent_encoding::percent_decode_str;
use queen_engine::names;
use serde::Deserialize;

use crate::limits;
use crate::problem::Problem;

/// A body that cannot be understood, in words for its sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub String);

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Problem {
        Problem::bad_body(error.0)
    }
}

/// One request.
pub struct Call {
    pub method: Method,
    /// The path as it came, still encoded.
    pub path: String,
    pub query: Query,
    pub body: Bytes,
    /// `Content-Type: application/x-queen-push`.
    pub binary: bool,
    /// `Accept` names a text form, as Prometheus' scraper does.
    pub accepts_text: bool,
    /// Another node hands it on; it must not go any further.
    pub forwarded: bool,
    /// What is left of a long poll's wait, milliseconds, when it has waited elsewhere before.
    pub wait_ms_max: Option<u64>,
}

impl Call {
    /// The body as JSON whatever its content type; nothing means `{}`.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        self.parse().map_err(Problem::from)
    }

    /// The same with a plain error.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, BodyError> {
        let bytes: &[u8] = if self.body.iter().all(u8::is_ascii_whitespace) {
            b"{}"
        } else {
            &self.body
        };
        serde_json::from_slice(bytes).map_err(|error| BodyError(format!("bad body: {error}")))
    }
}

/// Percent-decodes one path segment; `+` is itself there.
pub fn segment(raw: &str) -> String {
    percent_decode_str(raw).decode_utf8_lossy().into_owned()
}

/// Joins and decodes the tail of a route whose last part may contain `/`.
pub fn tail(raw: &[&str]) -> String {
    segment(&raw.join("/"))
}

/// A decoded query string.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
    present: bool,
}

impl Query {
    /// Reads the part behind `?`; both `+` and `%20` are a space.
    pub fn parse(text: Option<&str>) -> Query {
        let Some(text) = text else {
            return Query::default();
        };
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (Query::decode(name), Query::decode(value))
            })
            .collect();
        Query {
            pairs,
            present: !text.is_empty(),
        }
    }

    fn decode(raw: &str) -> String {
        let spaced: Cow<'_, str> = if raw.contains('+') {
            raw.replace('+', " ").into()
        } else {
            raw.into()
        };
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    }

    /// Whether there was a query at all.
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// The same, the empty text read as absent.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// A whole number; anything else is refused.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Problem> {
        self.get(name)
            .map(|value| {
                value
                    .trim()
                    .parse()
                    .map_err(|_| Problem::bad_request(format!("{name} must be an integer")))
            })
            .transpose()
    }

    /// `true` or `false`; anything else is refused.
    pub fn switch(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None => Ok(false),
            Some("true" | "1" | "yes") => Ok(true),
            Some("false" | "0" | "no") => Ok(false),
            Some(_) => Err(Problem::bad_request(format!(
                "{name} must be true or false"
            ))),
        }
    }

    /// A page size, clamped into `1..=max`.
    pub fn limit(&self, default: usize, max: usize) -> Result<usize, Problem> {
        let limit = self
            .integer("limit")?
            .map_or(default, |n| usize::try_from(n).unwrap_or(0));
        Ok(limit.clamp(1, max))
    }

    /// How many rows to skip.
    pub fn offset(&self) -> Result<usize, Problem> {
        let offset = self.integer("offset")?.unwrap_or(0);
        Ok(usize::try_from(offset)
            .unwrap_or(0)
            .min(limits::PAGE_OFFSET_MAX))
    }
}

/// Collects a body up to `max` bytes; `None` when it is longer.
pub async fn read_body<B>(mut body: B, max: usize) -> Result<Option<Bytes>, B::Error>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    use http_body_util::BodyExt as _;
    if body.size_hint().lower() > max as u64 {
        linger(&mut body).await;
        return Ok(None);
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if first.len() + all.len() + data.len() > max {
            linger(&mut body).await;
            return Ok(None);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(Some(if all.is_empty() { first } else { all.freeze() }))
}

/// Reads on for a moment and forgets what comes: a connection that is closed with unread bytes is
/// reset, and the client would never see why.
async fn linger<B>(body: &mut B)
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    use http_body_util::BodyExt as _;
    let mut left = limits::LINGER_BYTES;
    let drain = async {
        while let Some(Ok(frame)) = body.frame().await
            && left > 0
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    // Out of time or bytes: the client has had its chance.
    let _ = tokio::time::timeout(limits::LINGER, drain).await;
}

/// Checks a queue's name and the budget it shares with a lane or group.
pub fn check_names(queue: &str, others: &[&str]) -> Result<(), Problem> {
    let longest = others.iter().map(|name| name.len()).max().unwrap_or(0);
    if queue.len() + longest > names::NAME_BYTES_MAX {
        return Err(Problem::name_too_long(
            "queue, partition or group name too long",
        ));
    }
    // Clients fold dot segments away, so such a queue could not be addressed again.
    if matches!(queue, "." | "..") {
        return Err(Problem::bad_request("queue must not be a dot segment"));
    }
    if std::iter::once(&queue)
        .chain(others)
        .any(|name| name.chars().any(char::is_control))
    {
        return Err(Problem::bad_request(
            "names must not contain control characters",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_take_both_spaces_and_refuse_wrong_types() {
        let query = Query::parse(Some("a=x+y&b=x%20y&c=%2B&n=5&bad=abc&t=true&e="));
        assert_eq!(query.get("a"), Some("x y"));
        assert_eq!(query.get("b"), Some("x y"));
        assert_eq!(query.get("c"), Some("+"));
        assert_eq!(query.integer("n").ok().flatten(), Some(5));
        assert!(query.integer("bad").is_err());
        assert!(query.switch("t").is_ok_and(|on| on));
        assert!(query.switch("bad").is_err());
        assert_eq!(query.text("e"), None);
        assert!(!Query::parse(None).is_present());
        assert!(!Query::parse(Some("")).is_present());
    }

    #[test]
    fn segments_decode_after_the_split() {
        assert_eq!(segment("a%2Fb+c%20d%25"), "a/b+c d%");
        assert_eq!(segment("%ff"), "\u{fffd}");
        assert_eq!(tail(&["a", "b%2Fc"]), "a/b/c");
    }

    #[test]
    fn names_share_a_budget() {
        assert!(check_names("", &[]).is_ok());
        assert!(check_names("q", &[&"p".repeat(410)]).is_ok());
        assert!(check_names("qq", &[&"p".repeat(410)]).is_err());
        assert!(check_names("a\0b", &[]).is_err());
        assert!(check_names("..", &[]).is_err());
    }

    #[tokio::test]
    async fn bodies_are_bounded() {
        let body = http_body_util::Full::new(Bytes::from_static(b"12345"));
        assert_eq!(read_body(body.clone(), 5).await.unwrap().unwrap(), "12345");
        assert!(read_body(body, 4).await.unwrap().is_none());
    }
}
