//! The Fetch answer, versions 4-18, written so that stored batches are never copied: the message
//! and the patched batch headers go into buffers of our own, everything behind a batch header is
//! a slice of the log, and the socket takes both together. Tested for every version against the
//! codec crate's own encoder.

use bytes::{BufMut, Bytes, BytesMut};
use queen_engine::batch::HEADER_LEN;
use uuid::Uuid;

use crate::wire::Frame;
use crate::wire::put::Put;

/// The records of one partition: patched headers and untouched rests, alternating.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    parts: Vec<([u8; HEADER_LEN], Bytes)>,
    bytes: usize,
}

impl Records {
    /// Adds a batch: its patched header and what stands behind it.
    pub(crate) fn push(&mut self, header: [u8; HEADER_LEN], rest: Bytes) {
        self.bytes += HEADER_LEN + rest.len();
        self.parts.push((header, rest));
    }

    /// Bytes of all batches.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// All in one piece, for tests.
    #[cfg(test)]
    pub(crate) fn concat(&self) -> Bytes {
        let mut out = BytesMut::new();
        for (header, rest) in &self.parts {
            out.put_slice(header);
            out.put_slice(rest);
        }
        out.freeze()
    }
}

/// A broker as an answer names it (KIP-951).
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
}

/// One partition's answer.
#[derive(Clone, Debug)]
pub(crate) struct PartitionAnswer {
    pub(crate) index: i32,
    pub(crate) error: i16,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start: i64,
    /// Leader and its epoch, sent from v12 on when the client asked the wrong node.
    pub(crate) leader: Option<(i32, i32)>,
    /// A follower that the client should read this partition from (KIP-392), sent from v11 on.
    pub(crate) preferred_replica: Option<i32>,
    pub(crate) records: Records,
    /// Whether the list of aborted transactions is empty and not null.
    pub(crate) aborted_known: bool,
}

/// One topic's answer; the name up to v12, the id from v13 on.
#[derive(Clone, Debug)]
pub(crate) struct TopicAnswer {
    pub(crate) name: String,
    pub(crate) id: Uuid,
    pub(crate) partitions: Vec<PartitionAnswer>,
}

/// A whole Fetch answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct FetchAnswer {
    pub(crate) error: i16,
    pub(crate) session: i32,
    pub(crate) topics: Vec<TopicAnswer>,
    pub(crate) endpoint: Option<Endpoint>,
}

/// The answer as a frame.
pub(crate) fn encode(correlation_id: i32, version: i16, answer: &FetchAnswer) -> Frame {
    let mut writer = Writer {
        done: Vec::new(),
        out: BytesMut::with_capacity(512),
        version,
    };
    writer.out.put_i32(0);
    writer.out.put_i32(correlation_id);
    writer.put().no_tags();
    // Throttle time.
    writer.out.put_i32(0);
    if version >= 7 {
        writer.out.put_i16(answer.error);
        writer.out.put_i32(answer.session);
    }
    writer.put().array(answer.topics.len());
    for topic in &answer.topics {
        writer.topic(topic);
    }
    writer.end(answer.endpoint.as_ref())
}

struct Writer {
    /// Finished byte strings, in order; `out` follows them.
    done: Vec<Bytes>,
    out: BytesMut,
    version: i16,
}

impl Writer {
    fn put(&mut self) -> Put<'_> {
        Put {
            flexible: self.version >= 12,
            out: &mut self.out,
        }
    }

    fn topic(&mut self, topic: &TopicAnswer) {
        if self.version >= 13 {
            self.out.put_slice(topic.id.as_bytes());
        } else {
            self.put().string(&topic.name);
        }
        self.put().array(topic.partitions.len());
        for partition in &topic.partitions {
            self.partition(partition);
        }
        self.put().no_tags();
    }

    fn partition(&mut self, partition: &PartitionAnswer) {
        self.out.put_i32(partition.index);
        self.out.put_i16(partition.error);
        self.out.put_i64(partition.high_watermark);
        self.out.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            self.out.put_i64(partition.log_start);
        }
        // No aborted transactions: null where the partition was read, empty where it was not found
        // or only committed records were asked for, as in Kafka.
        if partition.aborted_known {
            self.put().array(0);
        } else {
            self.put().null_array();
        }
        if self.version >= 11 {
            self.out.put_i32(partition.preferred_replica.unwrap_or(-1));
        }
        self.put().bytes_length(partition.records.len());
        for (header, rest) in &partition.records.parts {
            self.out.put_slice(header);
            if !rest.is_empty() {
                self.done.push(self.out.split().freeze());
                self.done.push(rest.clone());
            }
        }
        match partition.leader {
            Some((id, epoch)) if self.version >= 12 => {
                // One tagged field, number 1: id, epoch, no tags within.
                self.out.put_slice(&[1, 1, 9]);
                self.out.put_i32(id);
                self.out.put_i32(epoch);
                self.out.put_u8(0);
            }
            _ => self.put().no_tags(),
        }
    }

    fn end(mut self, endpoint: Option<&Endpoint>) -> Frame {
        match endpoint {
            Some(endpoint) if self.version >= 16 => {
                let mut field = BytesMut::new();
                let mut put = Put {
                    out: &mut field,
                    flexible: true,
                };
                put.array(1);
                put.out.put_i32(endpoint.id);
                put.string(&endpoint.host);
                put.out.put_i32(endpoint.port);
                put.nullable_string(endpoint.rack.as_deref());
                put.no_tags();
                self.out.put_slice(&[1, 0]);
                self.put()
                    .varint(u32::try_from(field.len()).unwrap_or(u32::MAX));
                self.out.put_slice(&field);
            }
            _ => self.put().no_tags(),
        }
        self.done.push(self.out.freeze());
        let bytes: usize = self.done.iter().map(Bytes::len).sum();
        // Answers are bounded far below 2 GiB by the fetch limits.
        let length = i32::try_from(bytes - 4).unwrap_or(i32::MAX);
        patch_length(&mut self.done, length);
        self.done
    }
}

/// Writes the frame's length into its first bytes, which are always in the first byte string.
fn patch_length(parts: &mut [Bytes], length: i32) {
    let Some(first) = parts.first_mut() else {
        return;
    };
    let mut head = match std::mem::take(first).try_into_mut() {
        Ok(head) => head,
        Err(shared) => BytesMut::from(&shared[..]),
    };
    head[..4].copy_from_slice(&length.to_be_bytes());
    *first = head.freeze();
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::fetch_response::{
        FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
    };
    use kafka_protocol::messages::{BrokerId, FetchResponse};

    use super::*;
    use crate::names::{text, topic_name};
    use crate::wire;

    fn sample() -> FetchAnswer {
        let mut records = Records::default();
        records.push([7; HEADER_LEN], Bytes::from(vec![1; 300]));
        records.push([8; HEADER_LEN], Bytes::new());
        records.push([9; HEADER_LEN], Bytes::from(vec![2; 20_000]));
        let partition = |index, records: &Records, leader| PartitionAnswer {
            index,
            error: if leader { 6 } else { 0 },
            high_watermark: 100,
            last_stable_offset: 100,
            log_start: 3,
            leader: leader.then_some((2, 9)),
            preferred_replica: leader.then_some(3),
            aborted_known: index == 9,
            records: records.clone(),
        };
        let topic = |name: &str, partitions| TopicAnswer {
            name: name.into(),
            id: Uuid::from_u128(name.len() as u128),
            partitions,
        };
        FetchAnswer {
            error: 0,
            session: 77,
            topics: vec![
                topic(
                    "orders",
                    vec![partition(0, &records, false), partition(9, &records, true)],
                ),
                topic("empty", vec![partition(1, &Records::default(), false)]),
                topic("none", vec![]),
            ],
            endpoint: Some(Endpoint {
                id: 2,
                host: "localhost".into(),
                port: 9092,
                rack: Some("r1".into()),
            }),
        }
    }

    /// The same answer as the codec crate's message, without what `version` cannot say.
    fn by_crate(answer: &FetchAnswer, version: i16) -> FetchResponse {
        let partition = |p: &PartitionAnswer| {
            let mut data = PartitionData::default()
                .with_partition_index(p.index)
                .with_error_code(p.error)
                .with_high_watermark(p.high_watermark)
                .with_last_stable_offset(p.last_stable_offset)
                .with_log_start_offset(p.log_start)
                .with_aborted_transactions(p.aborted_known.then(Vec::new))
                .with_records(Some(p.records.concat()));
            if version >= 11 {
                let preferred = p.preferred_replica.unwrap_or(-1);
                data.preferred_read_replica = BrokerId(preferred);
            }
            if let Some((id, epoch)) = p.leader
                && version >= 12
            {
                data.current_leader = LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(id))
                    .with_leader_epoch(epoch);
            }
            data
        };
        let topic = |t: &TopicAnswer| {
            FetchableTopicResponse::default()
                .with_topic(topic_name(&t.name))
                .with_topic_id(t.id)
                .with_partitions(t.partitions.iter().map(partition).collect())
        };
        let mut response = FetchResponse::default()
            .with_error_code(answer.error)
            .with_session_id(if version >= 7 { answer.session } else { 0 })
            .with_responses(answer.topics.iter().map(topic).collect());
        if version >= 16 {
            let endpoint = answer.endpoint.as_ref().unwrap();
            response.node_endpoints = vec![
                NodeEndpoint::default()
                    .with_node_id(BrokerId(endpoint.id))
                    .with_host(text(&endpoint.host))
                    .with_port(endpoint.port)
                    .with_rack(endpoint.rack.as_deref().map(text)),
            ];
        }
        response
    }

    #[test]
    fn every_version_equals_the_codec_crates() {
        let answer = sample();
        for version in 4..=18 {
            let ours: Vec<u8> = encode(42, version, &answer).concat();
            let theirs = wire::encode(42, version, &by_crate(&answer, version)).unwrap();
            assert_eq!(ours, &theirs[..], "version {version}");
        }
        for version in 4..=18 {
            let failed = FetchAnswer {
                error: 70,
                ..FetchAnswer::default()
            };
            let ours: Vec<u8> = encode(1, version, &failed).concat();
            let response = FetchResponse::default().with_error_code(70);
            assert_eq!(ours, &wire::encode(1, version, &response).unwrap()[..]);
        }
    }

    #[test]
    fn stored_bytes_are_not_copied() {
        let stored = Bytes::from(vec![5; 50_000]);
        let mut answer = sample();
        answer.topics.truncate(1);
        answer.topics[0].partitions.truncate(1);
        answer.topics[0].partitions[0].records = Records::default();
        answer.topics[0].partitions[0]
            .records
            .push([0; HEADER_LEN], stored.clone());
        let frame = encode(1, 12, &answer);
        assert!(frame.iter().any(|part| part.as_ptr() == stored.as_ptr()));
    }
}
