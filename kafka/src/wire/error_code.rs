//! The one table from refusals and failures of the node to Kafka's error codes. Exhaustive on
//! purpose: a new refusal does not compile until it has a code here.

use kafka_protocol::ResponseError;
use queen_engine::batch::BatchError;
use queen_engine::outcome::Reject;
use queen_engine::port::Failure;

/// Code of success.
pub(crate) const NONE: i16 = 0;

/// Whose request failed: the same failure has another name per surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Produce, Fetch, ListOffsets: answered by the leader of a partition.
    Data,
    /// Groups and their offsets: answered by the coordinator.
    Group,
    /// Topics and configs: answered by the controller.
    Admin,
}

/// The code of a refusal by the state machine.
pub(crate) fn of_reject(reject: &Reject) -> ResponseError {
    use ResponseError as E;
    match reject {
        Reject::UnknownTopic | Reject::UnknownPartition => E::UnknownTopicOrPartition,
        Reject::TopicExists => E::TopicAlreadyExists,
        Reject::InvalidPartitions => E::InvalidPartitions,
        Reject::InvalidConfig => E::InvalidConfig,
        Reject::InvalidName | Reject::NameTooLong => E::InvalidTopicException,
        Reject::OffsetOutOfRange => E::OffsetOutOfRange,
        Reject::UnknownGroup => E::GroupIdNotFound,
        Reject::TooLate => E::RequestTimedOut,
        // Nothing was appended and the same request may succeed: clients retry this one.
        Reject::Stale | Reject::StaleLane => E::NotEnoughReplicas,
        Reject::OutOfOrderSequence => E::OutOfOrderSequenceNumber,
        Reject::InvalidProducerEpoch => E::InvalidProducerEpoch,
        // Kafka has no code for a full queue; this one is final and carries our text.
        Reject::QueueFull => E::PolicyViolation,
        Reject::UnknownDeadLetter | Reject::UnknownTimer => E::ResourceNotFound,
        Reject::Duplicate | Reject::Malformed => E::InvalidRecord,
    }
}

/// The code of a failure of the node.
pub(crate) fn of_failure(failure: &Failure, surface: Surface) -> ResponseError {
    use ResponseError as E;
    match failure {
        Failure::NotLeader { .. } | Failure::Stopping => match surface {
            Surface::Data => E::NotLeaderOrFollower,
            Surface::Group => E::NotCoordinator,
            Surface::Admin => E::NotController,
        },
        Failure::Timeout => E::RequestTimedOut,
        Failure::StorageFull | Failure::Storage(_) => match surface {
            Surface::Data | Surface::Admin => E::KafkaStorageError,
            Surface::Group => E::CoordinatorNotAvailable,
        },
        // Not appended, try again.
        Failure::Overloaded => match surface {
            Surface::Data => E::NotEnoughReplicas,
            Surface::Group => E::CoordinatorLoadInProgress,
            Surface::Admin => E::RequestTimedOut,
        },
        Failure::TooLarge => match surface {
            Surface::Data => E::RecordListTooLarge,
            Surface::Group => E::InvalidCommitOffsetSize,
            Surface::Admin => E::PolicyViolation,
        },
    }
}

/// The code of a batch that fails its checks (kafka.md 4.3 rows 49 to 53).
pub(crate) fn of_batch(error: &BatchError) -> ResponseError {
    use ResponseError as E;
    match error {
        BatchError::Length | BatchError::Crc => E::CorruptMessage,
        // Formats 0 and 1 existed; nothing else ever did.
        BatchError::Magic(magic) if !(0..=1).contains(magic) => E::CorruptMessage,
        BatchError::TooShort
        | BatchError::Magic(_)
        | BatchError::BaseOffset(_)
        | BatchError::Count
        | BatchError::Sequence(_)
        | BatchError::Control
        | BatchError::Record(_) => E::InvalidRecord,
        BatchError::Codec(_) => E::UnsupportedCompressionType,
        BatchError::TooLarge { .. } => E::MessageTooLarge,
        BatchError::Decompress(_) | BatchError::Compress(_) => E::CorruptMessage,
    }
}
