"""Topics: made, widened, deleted, described."""

from ..rows import TopicId, case
from .common import FIXED, UNKNOWN_ID, create

SERIAL = {"ReplicationFactor": 1, "NumPartitions": 1}


def made(title, *topics, before=(), versions=None, **more):
    rows = [{**SERIAL, "Name": "new-{n}", **t} for t in topics]
    return case("CreateTopics", title, {"Topics": rows, "timeoutMs": 15000, **more}, before, versions)


def given(*assignments, partitions=-1, replicas=-1):
    rows = [{"PartitionIndex": i, "BrokerIds": brokers} for i, brokers in assignments]
    return {"NumPartitions": partitions, "ReplicationFactor": replicas, "Assignments": rows}


def config(**settings):
    return {"Configs": [{"Name": k.replace("_", "."), "Value": v} for k, v in settings.items()]}


def widen(title, count, topic="wide-{n}", before=None, validate=False, **more):
    before = [create("wide-{n}")] if before is None else before
    rows = [{"Name": topic, "Count": count, "Assignments": None, **more}]
    return case("CreatePartitions", title, {"Topics": rows, "TimeoutMs": 15000, "ValidateOnly": validate}, before)


def delete(title, names, before=(), versions=range(0, 6)):
    return case("DeleteTopics", title, {"TopicNames": names, "TimeoutMs": 15000}, before, versions)


def delete6(title, rows, before=()):
    return case("DeleteTopics", title, {"Topics": rows, "TimeoutMs": 15000}, before, range(6, 99))


def metadata(title, rows, **more):
    versions = more.pop("versions", range(4, 99))
    return case("Metadata", title, {"Topics": rows, "AllowAutoTopicCreation": False, **more}, versions=versions)


CASES = [
    made("create: plain", {}),
    made("create: three partitions", {"NumPartitions": 3}),
    made("create: default partitions", {"NumPartitions": -1, "ReplicationFactor": -1}, versions=range(4, 99)),
    made("create: validate only", {}, validateOnly=True),
    made("create: exists", {"Name": FIXED}),
    made("create: exists, validate only", {"Name": FIXED}, validateOnly=True),
    made("create: twice in one request", {}, {}),
    made("create: twice beside another", {}, {}, {"Name": "other-{n}"}),
    made("create: dot where an underscore exists", {"Name": "dot-{n}.b"}, before=[create("dot-{n}_b")]),
    made("create: underscore where a dot exists", {"Name": "dot-{n}_b"}, before=[create("dot-{n}.b")]),
    made("create: colliding names in one request", {"Name": "col-{n}.b"}, {"Name": "col-{n}_b"}),
    made("create: collision, validate only", {"Name": "dot-{n}.b"}, before=[create("dot-{n}_b")], validateOnly=True),
    made("create: empty name", {"Name": ""}),
    made("create: name dot", {"Name": "."}),
    made("create: name two dots", {"Name": ".."}),
    made("create: name with a blank", {"Name": "new {n}"}),
    made("create: name with a slash", {"Name": "new/{n}"}),
    made("create: name of 249", {"Name": "{n}".ljust(249, "x")[:249]}, validateOnly=True),
    made("create: name of 250", {"Name": "x" * 250}),
    made("create: name of letters outside ASCII", {"Name": "größe"}),
    made("create: no partitions", {"NumPartitions": 0}),
    made("create: negative partitions", {"NumPartitions": -2}),
    made("create: no replicas", {"ReplicationFactor": 0}),
    made("create: negative replicas", {"ReplicationFactor": -2}),
    made("create: more replicas than nodes", {"ReplicationFactor": 3}),
    made("create: assignment", given((0, [1]), (1, [1]))),
    made("create: assignment, validate only", given((0, [1])), validateOnly=True),
    made("create: assignment to an unknown broker", given((0, [7]))),
    made("create: assignment to a broker twice", given((0, [1, 1]))),
    made("create: assignment to a negative broker", given((0, [-1]))),
    made("create: assignment to no broker", given((0, []))),
    made("create: assignments of different length", given((0, [1]), (1, []))),
    made("create: assignment and a partition count", given((0, [1]), partitions=1)),
    made("create: assignment and a replication factor", given((0, [1]), replicas=1)),
    made("create: assignment and both", given((0, [1]), partitions=1, replicas=1)),
    made("create: assignment from one", given((1, [1]), (2, [1]))),
    made("create: assignment with a gap", given((0, [1]), (2, [1]))),
    made("create: assignment with a partition twice", given((0, [1]), (0, [1]))),
    made("create: assignment of a negative partition", given((-1, [1]))),
    made("create: assignment out of order", given((1, [1]), (0, [1]))),
    made("create: config", config(retention_ms="1000")),
    made("create: unknown config", config(no_such="1")),
    made("create: config without a value", config(retention_ms=None)),
    made("create: config of a wrong kind", config(retention_ms="soon")),
    made("create: config out of range", config(retention_ms="-2")),
    made("create: config not among the choices", config(cleanup_policy="keep")),
    made("create: one good, one bad", {}, {"Name": "bad {n}"}),
    widen("widen: three", 3),
    widen("widen: validate only", 3, validate=True),
    widen("widen: same count", 2),
    widen("widen: fewer", 1),
    widen("widen: none", 0),
    widen("widen: negative", -1),
    widen("widen: unknown topic", 3, topic="unknown", before=[]),
    widen("widen: illegal name", 3, topic="not legal", before=[]),
    widen("widen: assignment", 3, Assignments=[{"BrokerIds": [1]}]),
    widen("widen: assignment to an unknown broker", 3, Assignments=[{"BrokerIds": [7]}]),
    widen("widen: too many assignments", 3, Assignments=[{"BrokerIds": [1]}, {"BrokerIds": [1]}]),
    widen("widen: too few assignments", 4, Assignments=[{"BrokerIds": [1]}]),
    widen("widen: assignment to no broker", 3, Assignments=[{"BrokerIds": []}]),
    widen("widen: empty assignments", 3, Assignments=[]),
    case("CreatePartitions", "widen: twice in one request",
         {"Topics": [{"Name": FIXED, "Count": 5}, {"Name": FIXED, "Count": 6}], "TimeoutMs": 15000}),
    delete("delete: one", ["gone-{n}"], [create("gone-{n}")]),
    delete("delete: unknown", ["unknown"]),
    delete("delete: illegal name", ["not legal"]),
    delete("delete: empty name", [""]),
    delete("delete: one twice", ["gone-{n}", "gone-{n}"], [create("gone-{n}")]),
    delete("delete: one twice and another", ["gone-{n}", "gone-{n}", "other-{n}"], [create("gone-{n}"), create("other-{n}")]),
    delete("delete: an unknown one twice", ["unknown", "unknown"]),
    delete("delete: none", []),
    delete6("delete: by name", [{"Name": "gone-{n}"}], [create("gone-{n}")]),
    delete6("delete: by id", [{"Name": None, "TopicId": TopicId("gone-{n}")}], [create("gone-{n}")]),
    delete6("delete: by unknown id", [{"Name": None, "TopicId": UNKNOWN_ID}]),
    delete6("delete: by name and id", [{"Name": "gone-{n}", "TopicId": TopicId("gone-{n}")}], [create("gone-{n}")]),
    delete6("delete: by neither", [{"Name": None}]),
    delete6("delete: by name twice", [{"Name": "gone-{n}"}, {"Name": "gone-{n}"}], [create("gone-{n}")]),
    delete6("delete: by id twice", [{"Name": None, "TopicId": TopicId("gone-{n}")}] * 2, [create("gone-{n}")]),
    delete6("delete: by name, then by its id", [{"Name": "gone-{n}"}, {"Name": None, "TopicId": TopicId("gone-{n}")}], [create("gone-{n}")]),
    delete6("delete: by unknown id twice", [{"Name": None, "TopicId": UNKNOWN_ID}] * 2),
    metadata("metadata: one topic", [{"Name": FIXED}]),
    metadata("metadata: one topic twice", [{"Name": FIXED}, {"Name": FIXED}]),
    metadata("metadata: unknown topic", [{"Name": "unknown"}]),
    metadata("metadata: illegal name", [{"Name": "not legal"}]),
    metadata("metadata: illegal name, creation allowed", [{"Name": "not legal"}], AllowAutoTopicCreation=True),
    metadata("metadata: empty name", [{"Name": ""}]),
    metadata("metadata: none", []),
    metadata("metadata: by id", [{"Name": None, "TopicId": TopicId(FIXED)}], versions=range(12, 99)),
    metadata("metadata: by unknown id", [{"Name": None, "TopicId": UNKNOWN_ID}], versions=range(12, 99)),
    metadata("metadata: by name and id", [{"Name": FIXED, "TopicId": TopicId(FIXED)}], versions=range(12, 99)),
    metadata("metadata: operations", [{"Name": FIXED}], IncludeTopicAuthorizedOperations=True, IncludeClusterAuthorizedOperations=True),
    case("DescribeTopicPartitions", "describe: one topic", {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": 10}),
    case("DescribeTopicPartitions", "describe: unknown topic", {"Topics": [{"Name": "unknown"}], "ResponsePartitionLimit": 10}),
    case("DescribeTopicPartitions", "describe: illegal name", {"Topics": [{"Name": "not legal"}], "ResponsePartitionLimit": 10}),
    case("DescribeTopicPartitions", "describe: one partition a page", {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": 1}),
    case("DescribeTopicPartitions", "describe: from the second partition on",
         {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": 10, "Cursor": {"TopicName": FIXED, "PartitionIndex": 1}}),
    case("DescribeTopicPartitions", "describe: from behind the last partition on",
         {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": 10, "Cursor": {"TopicName": FIXED, "PartitionIndex": 9}}),
    case("DescribeTopicPartitions", "describe: from a negative partition on",
         {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": 10, "Cursor": {"TopicName": FIXED, "PartitionIndex": -1}}),
    case("DescribeTopicPartitions", "describe: limit of zero", {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": 0}),
    case("DescribeTopicPartitions", "describe: negative limit", {"Topics": [{"Name": FIXED}], "ResponsePartitionLimit": -1}),
    case("DescribeCluster", "cluster: brokers", {"EndpointType": 1}),
    case("DescribeCluster", "cluster: operations", {"EndpointType": 1, "IncludeClusterAuthorizedOperations": True}),
    case("DescribeCluster", "cluster: controllers", {"EndpointType": 2}, versions=range(1, 99)),
    case("DescribeCluster", "cluster: unknown endpoint type", {"EndpointType": 9}, versions=range(1, 99)),
    case("ListPartitionReassignments", "reassignments: one topic", {"TimeoutMs": 5000, "Topics": [{"Name": FIXED, "PartitionIndexes": [0]}]}),
    case("ListPartitionReassignments", "reassignments: unknown topic", {"TimeoutMs": 5000, "Topics": [{"Name": "unknown", "PartitionIndexes": [0]}]}),
    case("ListPartitionReassignments", "reassignments: all", {"TimeoutMs": 5000, "Topics": None}),
    case("DescribeLogDirs", "log dirs: one topic", {"Topics": [{"Topic": FIXED, "Partitions": [0, 1]}]}),
    case("DescribeLogDirs", "log dirs: unknown topic", {"Topics": [{"Topic": "unknown", "Partitions": [0]}]}),
    case("ApiVersions", "api versions: bad software name", {"ClientSoftwareName": "", "ClientSoftwareVersion": "1"}, versions=range(3, 99)),
    case("ApiVersions", "api versions: software name with a blank", {"ClientSoftwareName": "a b", "ClientSoftwareVersion": "1"}, versions=range(3, 99)),
    case("ApiVersions", "api versions: good", {"ClientSoftwareName": "suite", "ClientSoftwareVersion": "1"}),
]
