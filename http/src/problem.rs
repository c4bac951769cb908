//! Every error body the listener sends (http-api 1.5 and 8), and the one place where a node's
//! failure becomes a status.

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use queen_engine::outcome::Reject;
use queen_engine::port::Failure;
use serde_json::{Value, json};

use crate::reply::Reply;

/// An answer that says no.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    body: Value,
    retry_after: bool,
    /// Another node leads: certainly nothing was applied, and that one can be asked.
    elsewhere: bool,
}

/// What a handler returns.
pub type Answer = Result<Reply, Problem>;

/// The families whose errors have the shape `{error, reason, detail}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Kv,
    Timers,
}

impl Family {
    /// The prefix of the family's words.
    pub fn word(self) -> &'static str {
        match self {
            Family::Kv => "kv",
            Family::Timers => "timers",
        }
    }
}

/// What there is to say about a failure, before it takes a shape.
struct Facts {
    status: StatusCode,
    code: &'static str,
    /// The failure's word in the families of section 8.
    reason: &'static str,
    retry_after: bool,
}

fn facts(failure: &Failure) -> Facts {
    let (status, code, reason, retry_after) = match failure {
        Failure::NotLeader { .. } => (StatusCode::SERVICE_UNAVAILABLE, "retry", "retry", true),
        Failure::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout", "timeout", true),
        Failure::StorageFull => (
            StatusCode::INSUFFICIENT_STORAGE,
            "storage_full",
            "storage_full",
            false,
        ),
        Failure::Overloaded => (
            StatusCode::TOO_MANY_REQUESTS,
            "overloaded",
            "overloaded",
            true,
        ),
        Failure::TooLarge => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "call_too_large",
            false,
        ),
        Failure::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "retry", "retry", true),
        Failure::Storage(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "internal",
            false,
        ),
    };
    Facts {
        status,
        code,
        reason,
        retry_after,
    }
}

impl Problem {
    /// Any status with `{error, code}`.
    pub fn new(status: StatusCode, code: &str, text: impl Into<String>) -> Problem {
        let text: String = text.into();
        Problem {
            status,
            body: json!({"error": text, "code": code}),
            retry_after: false,
            elsewhere: false,
        }
    }

    /// A body that cannot be read.
    pub fn bad_body(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad_body", text)
    }

    /// A request that can be read and makes no sense.
    pub fn bad_request(text: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad_request", text)
    }

    /// No route: clients take it for an older broker, so nothing else may look like it.
    pub fn no_such_route() -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "no_such_route", "Not Found")
    }

    /// Something that is not there.
    pub fn not_found(text: &str) -> Problem {
        Problem {
            status: StatusCode::NOT_FOUND,
            body: json!({"error": text}),
            retry_after: false,
            elsewhere: false,
        }
    }

    /// A name over the budget.
    pub fn name_too_long(text: &str) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "name_too_long", text)
    }

    /// A ready body.
    pub fn with_body(status: StatusCode, body: Value) -> Problem {
        Problem {
            status,
            body,
            retry_after: false,
            elsewhere: false,
        }
    }

    /// Asks the client to come again in a second.
    pub fn retry_later(mut self) -> Problem {
        self.retry_after = true;
        self
    }

    /// The same no in other words: status, retry hint and what is known of the outcome stay.
    pub fn reworded(mut self, reword: impl FnOnce(&mut Value)) -> Problem {
        reword(&mut self.body);
        self
    }

    /// Whether nothing was applied because another node leads.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// A failure of the node, in the general shape.
    pub fn of(failure: &Failure) -> Problem {
        let facts = facts(failure);
        log(failure);
        let mut body = json!({"error": failure.to_string(), "code": facts.code});
        if let Failure::NotLeader {
            leader: Some(leader),
        } = failure
        {
            body["leader"] = json!(leader);
        }
        Problem {
            status: facts.status,
            body,
            retry_after: facts.retry_after,
            elsewhere: matches!(failure, Failure::NotLeader { .. }),
        }
    }

    /// The same for acks, whose doubt has a word of its own.
    pub fn of_ack(failure: &Failure) -> Problem {
        let mut problem = Problem::of(failure);
        if *failure == Failure::Timeout {
            problem.body["code"] = json!("outcome_unknown");
        }
        problem
    }

    /// The same for pops, whose clients read `success` and `messages`.
    pub fn of_pop(failure: &Failure) -> Problem {
        Problem::of(failure).for_pop()
    }

    /// Adds what a pop's client reads.
    pub fn for_pop(mut self) -> Problem {
        self.body["success"] = json!(false);
        self.body["messages"] = json!([]);
        // A refused parameter has this shape and no code (http-api 5.3).
        if self.body["code"] == "bad_request"
            && let Some(body) = self.body.as_object_mut()
        {
            body.remove("code");
        }
        self
    }

    /// A failure of the node in the shape of section 8.
    pub fn of_family(family: Family, failure: &Failure) -> Problem {
        let facts = facts(failure);
        log(failure);
        let word = family.word();
        let class = match failure {
            Failure::NotLeader { .. } | Failure::Timeout | Failure::Stopping => {
                format!("{word}_unavailable")
            }
            Failure::StorageFull => "storage_full".to_owned(),
            Failure::Overloaded => "rate_limited".to_owned(),
            Failure::TooLarge => "payload_too_large".to_owned(),
            Failure::Storage(_) => format!("{word}_error"),
        };
        let reason = format!("{word}_{}", facts.reason);
        let body = json!({"error": class, "reason": reason, "detail": failure.to_string()});
        Problem {
            status: facts.status,
            body,
            retry_after: facts.retry_after,
            elsewhere: matches!(failure, Failure::NotLeader { .. }),
        }
    }

    /// A refusal of section 8: class, finer reason, prose.
    pub fn family(status: StatusCode, class: &str, reason: &str, detail: &str) -> Problem {
        let body = json!({"error": class, "reason": reason, "detail": detail});
        Problem {
            status,
            body,
            retry_after: false,
            elsewhere: false,
        }
    }

    /// A refusal by the state machine of a whole request.
    pub fn of_reject(reject: &Reject) -> Problem {
        let text = reject_text(reject);
        match reject {
            Reject::UnknownTopic => Problem::not_found("Queue not found"),
            Reject::UnknownPartition => Problem::not_found("Partition not found"),
            Reject::UnknownGroup => Problem::not_found("Consumer group not found"),
            Reject::UnknownDeadLetter => Problem::not_found("Message not found"),
            Reject::UnknownTimer => Problem::not_found("Timer not found"),
            Reject::NameTooLong => Problem::name_too_long(text),
            Reject::QueueFull => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", text).retry_later()
            }
            Reject::TooLate | Reject::Stale | Reject::StaleLane => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "retry", text).retry_later()
            }
            Reject::TopicExists
            | Reject::InvalidPartitions
            | Reject::InvalidConfig
            | Reject::InvalidName
            | Reject::OffsetOutOfRange
            | Reject::OutOfOrderSequence
            | Reject::InvalidProducerEpoch
            | Reject::Duplicate
            | Reject::Malformed => Problem::bad_request(text),
        }
    }

    /// An outcome that does not belong to the command: a fault of ours.
    pub fn unexpected(what: &str) -> Problem {
        tracing::error!(what, "an outcome does not fit its command");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "unexpected outcome",
        )
    }

    /// The status.
    #[cfg(test)]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The body.
    #[cfg(test)]
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// The answer on the wire.
    pub fn into_reply(self) -> Reply {
        let reply = Reply::json_with(self.status, &self.body);
        if self.retry_after {
            reply.with_header(RETRY_AFTER, "1")
        } else {
            reply
        }
    }
}

fn log(failure: &Failure) {
    if let Failure::Storage(error) = failure {
        tracing::error!(error, "storage failed a request");
    }
}

/// A refusal in words.
pub fn reject_text(reject: &Reject) -> &'static str {
    match reject {
        Reject::UnknownTopic => "queue not found",
        Reject::UnknownPartition => "partition not found",
        Reject::TopicExists => "the queue exists",
        Reject::InvalidPartitions => "number of partitions out of bounds",
        Reject::InvalidConfig => "invalid option",
        Reject::InvalidName => "invalid name",
        Reject::NameTooLong => "name too long",
        Reject::OffsetOutOfRange => "offset out of range",
        Reject::UnknownGroup => "consumer group not found",
        Reject::TooLate => "the deadline passed before the write",
        Reject::Stale | Reject::StaleLane => "the state moved meanwhile; send it again",
        Reject::OutOfOrderSequence => "sequence out of order",
        Reject::InvalidProducerEpoch => "fenced by a newer producer",
        Reject::QueueFull => "the queue's maxSize is reached",
        Reject::UnknownDeadLetter => "dead letter not found",
        Reject::UnknownTimer => "timer not found",
        Reject::Duplicate => "the transaction id is taken",
        Reject::Malformed => "malformed command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_their_status_and_code() {
        let cases = [
            (Failure::NotLeader { leader: Some(2) }, 503, "retry", true),
            (Failure::Timeout, 503, "timeout", true),
            (Failure::StorageFull, 507, "storage_full", false),
            (Failure::Overloaded, 429, "overloaded", true),
            (Failure::TooLarge, 413, "too_large", false),
            (Failure::Stopping, 503, "retry", true),
            (Failure::Storage("torn".into()), 500, "internal", false),
        ];
        for (failure, status, code, retry_after) in cases {
            let problem = Problem::of(&failure);
            assert_eq!(problem.status.as_u16(), status);
            assert_eq!(problem.body["code"], code);
            assert!(problem.body["error"].is_string());
            assert_eq!(problem.retry_after, retry_after);
        }
        assert_eq!(
            Problem::of(&Failure::NotLeader { leader: Some(2) }).body["leader"],
            2
        );
    }

    #[test]
    fn families_have_their_own_shape() {
        let problem = Problem::of_family(Family::Kv, &Failure::Timeout);
        assert_eq!(problem.body["error"], "kv_unavailable");
        assert_eq!(problem.body["reason"], "kv_timeout");
        let problem = Problem::of_ack(&Failure::Timeout);
        assert_eq!(problem.body["code"], "outcome_unknown");
        let problem = Problem::of_pop(&Failure::Stopping);
        assert_eq!(problem.body["success"], false);
        assert_eq!(problem.body["messages"], json!([]));
    }
}
