"""Apache Kafka 4.3.1's own shell tools, from Maven Central, one at a time."""

import json
import re
import time

import confluent_kafka as ck
import pytest
from harness import kafka as k
from harness import records
from harness.http import unique
from harness.java import tool
from harness.polling import eventually
from harness.records import Record

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def run(broker):
    """Runs a tool against the broker."""

    def call(name, *arguments, **options):
        return tool(name, "--bootstrap-server", broker.kafka, *arguments, **options)

    return call


def described(text):
    """The head line of kafka-topics --describe as a dict, and its partition lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = dict(re.findall(r"(\w+): ([^\t]*)", lines[0]))
    return {name: value.strip() for name, value in head.items()}, lines[1:]


def test_topics_from_creation_to_deletion(run, broker):
    name = unique("tools")
    assert f"Created topic {name}." in run("TopicCommand", "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=86400000")
    assert name in run("TopicCommand", "--list").split()
    head, parts = described(run("TopicCommand", "--describe", "--topic", name))
    assert (head["Topic"], head["PartitionCount"], head["ReplicationFactor"]) == (name, "3", "1")
    assert "retention.ms=86400000" in head["Configs"]
    assert re.fullmatch(r"[\w-]{22}", head["TopicId"]) and head["TopicId"] != "A" * 22
    for partition, line in enumerate(parts):
        assert re.search(rf"Partition: {partition}\tLeader: {broker.node}\tReplicas: {broker.node}\tIsr: {broker.node}\b", line), line
    code, out, err = run("TopicCommand", "--create", "--topic", name, "--partitions", "3", check=False)
    assert code == 1 and "already exists" in out + err
    run("TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    again, parts = described(run("TopicCommand", "--describe", "--topic", name))
    assert again["PartitionCount"] == "5" and len(parts) == 5 and again["TopicId"] == head["TopicId"]
    code, out, err = run("TopicCommand", "--alter", "--topic", name, "--partitions", "4", check=False)
    assert code == 1 and "5" in out + err
    run("TopicCommand", "--delete", "--topic", name)
    assert name not in run("TopicCommand", "--list").split()


def test_console_producer_and_consumer(run):
    name = unique("tools")
    lines = "".join(f"kind:x,n:{i}\tkey-{i % 9}\tvalue {i}\n" for i in range(200))
    run("ConsoleProducer", "--topic", name, "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
        "--compression-codec", "zstd", stdin=lines.encode())
    out = run("consumer.ConsoleConsumer", "--topic", name, "--from-beginning", "--max-messages", "200", "--timeout-ms", "20000",
              "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
    got = [line.split("\t") for line in out.splitlines()]
    assert sorted(got) == sorted([f"kind:x,n:{i}", f"key-{i % 9}", f"value {i}"] for i in range(200))
    for key in range(9):
        assert [int(line[2].split()[1]) for line in got if line[1] == f"key-{key}"] == list(range(key, 200, 9))


def test_the_console_consumer_reads_one_partition_from_an_offset(run, wire):
    name = k.create_topic(wire, unique("tools"), 2)
    k.append(wire, name, 1, [(b"k", b"line %d" % i) for i in range(10)])
    out = run("consumer.ConsoleConsumer", "--topic", name, "--partition", "1", "--offset", "6", "--max-messages", "4", "--timeout-ms", "20000")
    assert out.splitlines() == ["line 6", "line 7", "line 8", "line 9"]


def test_verifiable_producer_and_consumer(run):
    name, group, count = unique("tools"), unique("group"), 4000
    sent = [json.loads(line) for line in run(
        "VerifiableProducer", "--topic", name, "--max-messages", str(count), "--repeating-keys", "40").splitlines()]
    done = [e for e in sent if e["name"] == "producer_send_success"]
    assert len(done) == count and not [e for e in sent if e["name"] == "producer_send_error"]
    assert len({(e["partition"], e["offset"]) for e in done}) == count
    events = [json.loads(line) for line in run(
        "VerifiableConsumer", "--topic", name, "--group-id", group, "--max-messages", str(count), "--verbose").splitlines()]
    got = [e for e in events if e["name"] == "record_data"]
    assert {(e["partition"], e["offset"], e["key"], e["value"]) for e in got} == {(e["partition"], e["offset"], e["key"], e["value"]) for e in done}
    assert len(got) == count
    for partition in {e["partition"] for e in got}:
        offsets = [e["offset"] for e in got if e["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    committed = [e for e in events if e["name"] == "offsets_committed"]
    assert committed and all(e["success"] for e in committed)
    assert {"startup_complete", "partitions_assigned", "shutdown_complete"} <= {e["name"] for e in events}


def test_performance_tools_and_the_group_they_leave(run, wire):
    name, group = k.create_topic(wire, unique("tools"), 4), unique("group")
    out = run("ProducerPerformance", "--topic", name, "--num-records", "50000", "--record-size", "256", "--throughput", "-1")
    assert re.search(r"^50000 records sent, [\d.,]+ records/sec", out, re.M), out
    assert sum(k.list_offset(wire, name, p, k.LATEST).offset for p in range(4)) == 50000
    out = run("ConsumerPerformance", "--topic", name, "--num-records", "50000", "--group", group, "--timeout", "30000", "--hide-header")
    fields = [field.strip() for field in out.strip().splitlines()[-1].split(",")]
    assert int(fields[4]) >= 50000, out
    assert group in run("consumer.group.ConsumerGroupCommand", "--list").split()
    out = run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    rows = [line.split() for line in out.splitlines() if line.startswith(group)]
    assert len(rows) == 4, out
    for row in rows:
        assert row[1] == name and row[3] == row[4] and row[5] == "0", row
    assert re.search(rf"^{group}\s.*\sEmpty\s", run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state"), re.M)


def test_a_living_group_is_described_and_moved(run, broker, wire):
    name, group = k.create_topic(wire, unique("tools"), 2), unique("group")
    for partition in range(2):
        k.append(wire, name, partition, [(b"k", b"%d" % i) for i in range(10)])
    consumer = ck.Consumer({"bootstrap.servers": broker.kafka, "group.id": group, "auto.offset.reset": "earliest", "client.id": "member-one"})
    try:
        consumer.subscribe([name])
        seen = []

        def poll():
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                seen.append(message)
            return len(seen) == 20

        eventually(poll, 40, "20 records", every=0)
        consumer.commit(asynchronous=False)
        out = run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--members", "--verbose")
        row = [line for line in out.splitlines() if line.startswith(group)]
        assert len(row) == 1 and "member-one" in row[0] and f"{name}:0,1" in row[0], out
        out = run("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
        assert out.count("member-one") >= 2, out
    finally:
        consumer.close()
    out = run("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", f"{name}:1", "--to-offset", "4", "--execute")
    assert re.search(rf"^{group}\s+{name}\s+1\s+4\b", out, re.M), out
    assert (k.committed(wire, group, name, 0), k.committed(wire, group, name, 1)) == (10, 4)
    out = run("consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    assert "successful" in out
    assert group not in run("consumer.group.ConsumerGroupCommand", "--list").split()


def test_get_offsets(run, wire):
    name = k.create_topic(wire, unique("tools"), 3)
    now = int(time.time() * 1000)
    # The largest time stamp is not the last one.
    k.append(wire, name, 0, records.batch([Record(b"k", b"v", [], now + d) for d in (-5000, 0, -1000)]))
    k.append(wire, name, 1, records.batch([Record(b"k", b"v", [], now - 9000)]))

    def offsets(when):
        out = run("GetOffsetShell", "--topic", name, "--time", str(when))
        return dict((int(p), int(o)) for p, o in re.findall(rf"^{name}:(\d+):(-?\d+)$", out, re.M))

    assert offsets(-1) == {0: 3, 1: 1, 2: 0}
    assert offsets(-2) == {0: 0, 1: 0, 2: 0}
    assert offsets(-3) == {0: 1, 1: 0}
    assert offsets(now - 2000) == {0: 1}
    assert offsets(now - 20000) == {0: 0, 1: 0}


def test_configs(run, broker, wire):
    name = k.create_topic(wire, unique("tools"), 1, retention_ms=123456789)
    out = run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", name)
    assert "retention.ms=123456789" in out
    out = run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", name, "--all")
    for setting in ("cleanup.policy=delete", "max.message.bytes=", "min.insync.replicas=1", "retention.bytes=-1", "compression.type=producer"):
        assert setting in out, setting
    run("kafka.admin.ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", "retention.ms=86400000")
    run("kafka.admin.ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", "retention.bytes=1000000")
    out = run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", name)
    assert "retention.ms=86400000" in out and "retention.bytes=1000000" in out
    out = run("kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", str(broker.node), "--all")
    assert "num.partitions=" in out


def test_delete_records(run, wire, tmp_path):
    name = k.create_topic(wire, unique("tools"), 1)
    k.append(wire, name, 0, [(b"k", b"%d" % i) for i in range(10)])
    wanted = tmp_path / "records.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 6}]}))
    out = run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert re.search(r"low_watermark: 6", out), out
    assert k.list_offset(wire, name, 0, k.EARLIEST).offset == 6
    assert [r.value for r in k.read_all(wire, name, 0, 6)] == [b"6", b"7", b"8", b"9"]


def test_api_versions_and_groups(run, broker):
    out = run("BrokerApiVersionsCommand")
    assert f"{broker.kafka} (id: {broker.node} rack: null isFenced: false) -> (" in out
    for api in ("Produce(0)", "Fetch(1)", "Metadata(3)", "JoinGroup(11)", "ApiVersions(18)"):
        assert re.search(rf"{re.escape(api)}: \d+ to \d+ \[usable: \d+\]", out), api
    assert "GROUP" in run("GroupsCommand", "--list")


# What the other tests here do not ask of Java's admin client: the tool, and what it prints or why it cannot.
READING = {
    "describe_producers": (["TransactionsCommand", "describe-producers", "--topic", "TOPIC", "--partition", "0"], "ProducerId\tProducerEpoch"),
    "find_hanging": (["TransactionsCommand", "find-hanging", "--broker-id", "NODE"], "Topic\tPartition\tProducerId"),
    "features": (["FeatureCommand", "describe"], ""),
    "log_dirs": (["LogDirsCommand", "--describe", "--topic-list", "TOPIC"], '"partition":"TOPIC-0"'),
    "cluster_id": (["ClusterTool", "cluster-id"], "Cluster ID: "),
    "endpoints": (["ClusterTool", "list-endpoints"], "127.0.0.1"),
    "reassignments": (["reassign.ReassignPartitionsCommand", "--list"], "No partition reassignments found."),
    "configs_of_topics": (["kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics"], "Dynamic configs for topic TOPIC are"),
    "configs_of_brokers": (["kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers"], "Dynamic configs for broker NODE are"),
    "configs_of_groups": (["kafka.admin.ConfigCommand", "--describe", "--entity-type", "groups"], ""),
    "consumer_groups_by_state": (["consumer.group.ConsumerGroupCommand", "--list", "--state"], "GROUP"),
    "share_groups": (["consumer.group.ShareGroupCommand", "--list"], ""),
    "streams_groups": (["streams.StreamsGroupCommand", "--list"], ""),
    "transactions": (["TransactionsCommand", "list"], "LIST_TRANSACTIONS"),
    "one_transaction": (["TransactionsCommand", "describe", "--transactional-id", "nobody"], "DESCRIBE_TRANSACTIONS"),
    "quorum": (["MetadataQuorumCommand", "describe", "--status"], "DESCRIBE_QUORUM"),
    "acls": (["AclCommand", "--list"], "DESCRIBE_ACLS"),
    "quotas": (["kafka.admin.ConfigCommand", "--describe", "--entity-type", "clients"], "DESCRIBE_CLIENT_QUOTAS"),
    "users": (["kafka.admin.ConfigCommand", "--describe", "--entity-type", "users"], "DESCRIBE_CLIENT_QUOTAS"),
    "client_metrics": (["ClientMetricsCommand", "--list"], "LIST_CONFIG_RESOURCES"),
}


@pytest.mark.parametrize("name", READING)
def test_reading_calls_end_in_an_answer_or_in_the_clients_own_refusal(broker, wire, name):
    """What is not served ends at once in UnsupportedVersionException, the way Java's client says it, and not in a timeout."""
    (command, *arguments), expected = READING[name]
    topic = k.create_topic(wire, unique("tools"), 1)
    filled = {"TOPIC": topic, "NODE": str(broker.node)}
    arguments = [filled.get(argument, argument) for argument in arguments]
    where = 1 if command == "ClusterTool" else 0
    arguments[where:where] = ["--bootstrap-server", broker.kafka]
    code, out, err = tool(command, *arguments, check=False, timeout=30)
    unserved = re.fullmatch("[A-Z]+_[A-Z_]+", expected)
    if not unserved:
        assert code == 0, out + err
        assert expected.replace("TOPIC", topic).replace("NODE", str(broker.node)) in out, out + err
    elif not broker.is_peer:
        assert code == 1 and f"The node does not support {expected}" in out + err, out + err
