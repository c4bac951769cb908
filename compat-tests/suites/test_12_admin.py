"""Every read-only admin call of confluent-kafka and kafka-python: an answer with substance, or the client's own word for "not served"."""

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin as ca
from harness import kafka as k
from harness.http import unique
from harness.java import LIBS
from harness.wire import Connection
from kafka import KafkaAdminClient, TopicPartition
from kafka import admin as ka
from kafka.errors import UnsupportedVersionError

# Each family at its newest when this was written (December 2026). `.cache/venv/bin/pip list --outdated` names what has come since:
# raise the pin in requirements.txt and the line here, and mend what fails.
NEWEST = {"confluent-kafka": "2.16.2", "librdkafka in it": "2.16.0", "kafka-python": "3.0.12", "Apache Kafka": "4.3.1", "kcat's librdkafka": "2.0.2"}
SECONDS = 15
RECORDS = 7


def test_the_newest_clients_are_the_ones_that_are_tried():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (Path(__file__).parents[1] / "requirements.txt").read_text(), re.M))
    pom = (Path(__file__).parents[1] / "java" / "pom.xml").read_text()
    banner = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=10).stdout
    tried = {
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka in it": ck.libversion()[0],
        "kafka-python": version("kafka-python"),
        "Apache Kafka": re.search(r"<artifactId>kafka-tools</artifactId>\s*<version>([\d.]+)<", pom)[1],
        "kcat's librdkafka": re.search(r"librdkafka (\d+\.\d+\.\d+)", banner)[1],
    }
    print("clients tried:", ", ".join(f"{name} {number}" for name, number in tried.items()))
    assert tried == NEWEST
    assert {name: pins[name] for name in ("confluent-kafka", "kafka-python")} == {name: tried[name] for name in ("confluent-kafka", "kafka-python")}
    jars = {path.name for path in LIBS.glob("kafka-clients-*.jar")} if LIBS.exists() else set()
    assert jars <= {f"kafka-clients-{NEWEST['Apache Kafka']}.jar"}


@pytest.fixture(scope="module")
def world(_broker):
    """A topic of two partitions with records, and a group that has read three of them."""
    topic, group = unique("admin"), unique("group")
    with Connection(_broker.kafka) as wire:
        k.create_topic(wire, topic, 2)
        k.append(wire, topic, 0, [(b"k", b"%d" % i) for i in range(RECORDS)])
        k.ensure_coordinator(wire, group)
    reader = ck.Consumer({"bootstrap.servers": _broker.kafka, "group.id": group})
    reader.commit(offsets=[ck.TopicPartition(topic, 0, 3)], asynchronous=False)
    reader.close()
    return topic, group


def settled(value):
    """What the futures in an answer came to."""
    if isinstance(value, dict):
        return {key: settled(one) for key, one in value.items()}
    return value.result(SECONDS) if hasattr(value, "result") else value


def only(answer):
    (one,) = answer.values()
    return one


# --- confluent-kafka ----------------------------------------------------------------------------


def confluent_calls(client, broker, topic, group):
    """Call by call: what is asked, and what makes its answer good; None where the broker does not serve it."""
    place = ck.TopicPartition(topic, 0)

    def config(kind, name):
        return client.describe_configs([ca.ConfigResource(kind, name)], request_timeout=SECONDS)

    def offset(spec):
        return client.list_offsets({place: spec}, isolation_level=ck.IsolationLevel.READ_COMMITTED, request_timeout=SECONDS)

    kind, everything = ca.ConfigResource.Type, ca.AclBindingFilter(
        ca.ResourceType.ANY, None, ca.ResourcePatternType.ANY, None, None, ca.AclOperation.ANY, ca.AclPermissionType.ANY)
    return {
        "list_topics": (lambda: client.list_topics(timeout=SECONDS), lambda a: len(a.topics[topic].partitions) == 2 and broker.node in a.brokers),
        "list_topics of one": (lambda: client.list_topics(topic, timeout=SECONDS), lambda a: list(a.topics) == [topic] and not a.topics[topic].error),
        "list_groups": (lambda: client.list_groups(timeout=SECONDS), lambda a: group in [g.id for g in a]),
        "list_groups of one": (lambda: client.list_groups(group, timeout=SECONDS), lambda a: [(g.id, g.state) for g in a] == [(group, "Empty")]),
        "cluster_id": (lambda: client.cluster_id(SECONDS), lambda a: len(a) == 22),
        "describe_topics": (
            lambda: client.describe_topics(ck.TopicCollection([topic]), include_authorized_operations=True, request_timeout=SECONDS),
            lambda a: [(p.id, p.leader.id) for p in a[topic].partitions] == [(0, broker.node), (1, broker.node)]
            and len(a[topic].authorized_operations) == 8),
        "describe_configs of a topic": (lambda: config(kind.TOPIC, topic), lambda a: only(a)["cleanup.policy"].value == "delete"),
        "describe_configs of a broker": (lambda: config(kind.BROKER, str(broker.node)), lambda a: "num.partitions" in only(a)),
        "describe_configs of a group": (lambda: config(kind.GROUP, group), lambda a: isinstance(only(a), dict)),
        "list_consumer_groups": (
            lambda: client.list_consumer_groups(request_timeout=SECONDS), lambda a: not a.errors and group in [g.group_id for g in a.valid]),
        "list_consumer_groups by state": (
            lambda: client.list_consumer_groups(states={ck.ConsumerGroupState.STABLE}, request_timeout=SECONDS),
            lambda a: not a.errors and group not in [g.group_id for g in a.valid]),
        "list_consumer_groups by type": (
            lambda: client.list_consumer_groups(types={ck.ConsumerGroupType.CLASSIC}, request_timeout=SECONDS),
            lambda a: not a.errors and group in [g.group_id for g in a.valid]),
        "describe_consumer_groups": (
            lambda: client.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=SECONDS),
            lambda a: a[group].state == ck.ConsumerGroupState.EMPTY and a[group].coordinator.id == broker.node
            and len(a[group].authorized_operations) == 5),
        "list_consumer_group_offsets": (
            lambda: client.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)], request_timeout=SECONDS),
            lambda a: [(p.topic, p.partition, p.offset) for p in a[group].topic_partitions] == [(topic, 0, 3)]),
        "list_consumer_group_offsets of one partition": (
            lambda: client.list_consumer_group_offsets(
                [ck.ConsumerGroupTopicPartitions(group, [place])], require_stable=True, request_timeout=SECONDS),
            lambda a: [p.offset for p in a[group].topic_partitions] == [3]),
        "list_offsets latest": (lambda: offset(ca.OffsetSpec.latest()), lambda a: only(a).offset == RECORDS),
        "list_offsets earliest": (lambda: offset(ca.OffsetSpec.earliest()), lambda a: only(a).offset == 0),
        "list_offsets of the largest time stamp": (lambda: offset(ca.OffsetSpec.max_timestamp()), lambda a: 0 <= only(a).offset < RECORDS),
        "list_offsets by time": (lambda: offset(ca.OffsetSpec.for_timestamp(5)), lambda a: only(a).offset == 0),
        "describe_cluster": (
            lambda: client.describe_cluster(include_authorized_operations=True, request_timeout=SECONDS),
            lambda a: [n.id for n in a.nodes] == [broker.node] and a.controller.id == broker.node
            and len(a.cluster_id) == 22 and len(a.authorized_operations) == 7),
        "describe_acls": (lambda: client.describe_acls(everything, request_timeout=SECONDS), None),
        "describe_user_scram_credentials": (lambda: client.describe_user_scram_credentials(request_timeout=SECONDS), None),
        "describe_user_scram_credentials of one": (lambda: client.describe_user_scram_credentials(["somebody"], request_timeout=SECONDS), None),
    }


CONFLUENT = list(confluent_calls(None, None, "topic", "group"))


@pytest.fixture(scope="module")
def confluent(_broker):
    return ca.AdminClient({"bootstrap.servers": _broker.kafka, "socket.timeout.ms": SECONDS * 1000})


@pytest.mark.filterwarnings("ignore:list_groups")
@pytest.mark.parametrize("name", CONFLUENT)
def test_confluent_kafka(broker, confluent, world, name):
    ask, is_good = confluent_calls(confluent, broker, *world)[name]
    try:
        answer = settled(ask())
    except ck.KafkaException as error:
        code = error.args[0].name()
        assert is_good is None, f"{code}: {error}"
        # Apache Kafka answers these: without an authorizer, without that user.
        assert code in (("SECURITY_DISABLED", "RESOURCE_NOT_FOUND") if broker.is_peer else ("_UNSUPPORTED_FEATURE",))
    else:
        assert is_good(answer) if is_good else broker.is_peer, answer


def test_every_reading_call_of_confluent_kafka_is_made():
    calls = {name for name in dir(ca.AdminClient) if re.match("list_|describe_|cluster_id", name)}
    assert calls == {name.split()[0] for name in CONFLUENT}


# --- kafka-python -------------------------------------------------------------------------------


def python_calls(client, broker, topic, group):
    place = TopicPartition(topic, 0)
    kinds, spec = ka.ConfigResourceType, ka.OffsetSpec

    def configs():
        resources = [ka.ConfigResource(kinds.TOPIC, topic), ka.ConfigResource(kinds.BROKER, str(broker.node)), ka.ConfigResource(kinds.GROUP, group)]
        return client.describe_configs(resources, include_synonyms=True, config_filter="all")

    anything = ka.ResourcePatternFilter(ka.ResourceType.ANY, None, ka.ACLResourcePatternType.ANY)
    return {
        "list_topics": (lambda: client.list_topics(), lambda a: topic in a),
        "describe_topics": (lambda: client.describe_topics(), lambda a: [len(t["partitions"]) for t in a if t["name"] == topic] == [2]),
        "describe_topics of one": (lambda: client.describe_topics([topic]), lambda a: [t["name"] for t in a] == [topic]),
        "describe_topic_partitions": (
            lambda: client.describe_topic_partitions([topic]),
            lambda a: [p["partition_index"] for p in a["topics"][0]["partitions"]] == [0, 1]),
        "describe_cluster": (lambda: client.describe_cluster(), lambda a: [b["broker_id"] for b in a["brokers"]] == [broker.node]),
        "describe_features": (lambda: client.describe_features(), lambda a: isinstance(a, dict)),
        "describe_features of the controller": (
            lambda: client.describe_features(send_request_to_controller=True), lambda a: isinstance(a, dict)),
        "api_versions": (lambda: client.api_versions(), lambda a: a[3][1] >= 13),
        "get_broker_version_data": (lambda: client.get_broker_version_data(broker.node), lambda a: a is not None),
        "describe_configs": (configs, lambda a: a["topic"][topic]["cleanup.policy"]["value"] == "delete" and a["broker"][str(broker.node)]),
        "list_groups": (lambda: client.list_groups(), lambda a: group in [g["group_id"] for g in a]),
        "describe_groups": (
            lambda: client.describe_groups([group], include_authorized_operations=True), lambda a: a[group]["group_state"] == "Empty"),
        "list_group_offsets": (lambda: client.list_group_offsets({group: None}), lambda a: [(p, o.offset) for p, o in a[group].items()] == [(place, 3)]),
        "list_group_offsets of one partition": (lambda: client.list_group_offsets({group: [place]}), lambda a: a[group][place].offset == 3),
        "list_partition_offsets latest": (lambda: client.list_partition_offsets({place: spec.LATEST}), lambda a: a[place].offset == RECORDS),
        "list_partition_offsets earliest": (lambda: client.list_partition_offsets({place: spec.EARLIEST}), lambda a: a[place].offset == 0),
        "list_partition_offsets of the largest time stamp": (
            lambda: client.list_partition_offsets({place: spec.MAX_TIMESTAMP}), lambda a: 0 <= a[place].offset < RECORDS),
        "describe_log_dirs": (lambda: client.describe_log_dirs(), lambda a: topic in [t["name"] for d in a[0]["log_dirs"] for t in d["topics"]]),
        "describe_producers": (lambda: client.describe_producers([place]), lambda a: list(a) == [place]),
        "list_partition_reassignments": (lambda: client.list_partition_reassignments(), lambda a: a == {}),
        "list_config_resources": (lambda: client.list_config_resources(), None),
        "describe_acls": (lambda: client.describe_acls(ka.ACLFilter(None, None, ka.ACLOperation.ANY, ka.ACLPermissionType.ANY, anything)), None),
        "describe_metadata_quorum": (lambda: client.describe_metadata_quorum(), None),
        "describe_user_scram_credentials": (lambda: client.describe_user_scram_credentials(), None),
        "describe_transactions": (lambda: client.describe_transactions(["nobody"]), None),
        "list_transactions": (lambda: client.list_transactions(), None),
        "find_hanging_transactions": (lambda: client.find_hanging_transactions(broker_ids=[broker.node]), None),
    }


PYTHON = list(python_calls(None, None, "topic", "group"))


@pytest.fixture(scope="module")
def python(_broker):
    client = KafkaAdminClient(bootstrap_servers=_broker.kafka, request_timeout_ms=SECONDS * 1000)
    yield client
    client.close()


@pytest.mark.parametrize("name", PYTHON)
def test_kafka_python(broker, python, world, name):
    ask, is_good = python_calls(python, broker, *world)[name]
    if is_good is not None:
        assert is_good(ask())
    elif not broker.is_peer:
        with pytest.raises(UnsupportedVersionError):
            ask()


def test_every_reading_call_of_kafka_python_is_made():
    calls = {name for name in dir(KafkaAdminClient) if re.match("list_|describe_|find_|get_|api_versions", name)}
    assert calls == {name.split()[0] for name in PYTHON}
