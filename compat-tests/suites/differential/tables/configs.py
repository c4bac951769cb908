"""Configs: described, replaced, altered one by one."""

from ..rows import Step, case
from .common import FIXED, create

TOPIC, BROKER, GROUP, CLIENT_METRICS, BROKER_LOGGER = 2, 4, 32, 16, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(title, kind, name, keys=None, before=(), **more):
    body = {"Resources": [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}], **more}
    return case("DescribeConfigs", title, body, before)


def resource(*configs, name="set-{n}", kind=TOPIC):
    return {"ResourceType": kind, "ResourceName": name, "Configs": list(configs)}


def replace(title, *resources, before=None, **more):
    return case("AlterConfigs", title, {"Resources": list(resources), **more}, [create("set-{n}")] if before is None else before)


def change(title, *resources, before=None, **more):
    before = [create("set-{n}")] if before is None else before
    return case("IncrementalAlterConfigs", title, {"Resources": list(resources), **more}, before)


def value(name, text):
    return {"Name": name, "Value": text}


def op(code, name, text=None):
    return {"Name": name, "ConfigOperation": code, "Value": text}


def changed(title, *ops):
    """What a topic's configs are after a change."""
    alter = Step("IncrementalAlterConfigs", {"Resources": [resource(*ops)]})
    return describe(title, TOPIC, "set-{n}", before=[create("set-{n}", configs={"segment.ms": "5000"}), alter], IncludeSynonyms=True)


CASES = [
    describe("describe configs: topic", TOPIC, FIXED),
    describe("describe configs: topic with synonyms", TOPIC, FIXED, IncludeSynonyms=True),
    describe("describe configs: one key", TOPIC, FIXED, ["retention.ms"]),
    describe("describe configs: unknown key", TOPIC, FIXED, ["no.such"]),
    describe("describe configs: no keys", TOPIC, FIXED, []),
    describe("describe configs: a value that was set", TOPIC, "set-{n}", before=[create("set-{n}", configs={"retention.ms": "1000"})], IncludeSynonyms=True),
    describe("describe configs: unknown topic", TOPIC, "unknown"),
    describe("describe configs: illegal topic name", TOPIC, "not legal"),
    describe("describe configs: empty topic name", TOPIC, ""),
    describe("describe configs: other broker", BROKER, "7"),
    describe("describe configs: broker by no number", BROKER, "one"),
    describe("describe configs: every broker", BROKER, "", ["log.retention.ms"]),
    describe("describe configs: unknown type", 77, "x"),
    describe("describe configs: type zero", 0, "x"),
    describe("describe configs: group", GROUP, "no-such-group"),
    describe("describe configs: group without a name", GROUP, ""),
    describe("describe configs: client metrics", CLIENT_METRICS, "none"),
    changed("configs after: set", op(SET, "retention.ms", "1000")),
    changed("configs after: set to the default", op(SET, "retention.ms", "604800000")),
    changed("configs after: delete", op(DELETE, "segment.ms")),
    changed("configs after: append", op(APPEND, "cleanup.policy", "compact")),
    changed("configs after: subtract", op(SUBTRACT, "cleanup.policy", "delete")),
    replace("replace configs: one", resource(value("retention.ms", "1000"))),
    replace("replace configs: none", resource()),
    replace("replace configs: validate only", resource(value("retention.ms", "1000")), ValidateOnly=True),
    replace("replace configs: unknown config", resource(value("no.such", "1"))),
    replace("replace configs: wrong kind", resource(value("retention.ms", "soon"))),
    replace("replace configs: out of range", resource(value("retention.ms", "-2"))),
    replace("replace configs: null", resource(value("retention.ms", None))),
    replace("replace configs: config twice", resource(value("retention.ms", "1"), value("retention.ms", "2"))),
    replace("replace configs: unknown topic", resource(value("retention.ms", "1"), name="unknown"), before=[]),
    replace("replace configs: illegal topic name", resource(value("retention.ms", "1"), name="not legal"), before=[]),
    # Kafka answers nothing at all.
    case("AlterConfigs", "replace configs: resource twice", {"Resources": [resource(value("retention.ms", "1"))] * 2},
         [create("set-{n}")], versions=range(2, 3), limit=0.5),
    replace("replace configs: unknown type", resource(value("retention.ms", "1"), kind=77), before=[]),
    change("change configs: set", resource(op(SET, "retention.ms", "1000"))),
    change("change configs: set, validate only", resource(op(SET, "retention.ms", "1000")), ValidateOnly=True),
    change("change configs: set null", resource(op(SET, "retention.ms"))),
    change("change configs: append null", resource(op(APPEND, "cleanup.policy"))),
    change("change configs: subtract null", resource(op(SUBTRACT, "cleanup.policy"))),
    change("change configs: two nulls", resource(op(SET, "retention.ms"), op(SET, "segment.ms"))),
    change("change configs: set null of an unknown config", resource(op(SET, "no.such"))),
    change("change configs: set empty", resource(op(SET, "retention.ms", ""))),
    change("change configs: delete", resource(op(DELETE, "retention.ms"))),
    change("change configs: delete with a value", resource(op(DELETE, "retention.ms", "1"))),
    change("change configs: delete an unknown config", resource(op(DELETE, "no.such"))),
    change("change configs: append", resource(op(APPEND, "cleanup.policy", "compact"))),
    change("change configs: append what is there", resource(op(APPEND, "cleanup.policy", "delete"))),
    change("change configs: append to what is no list", resource(op(APPEND, "retention.ms", "1"))),
    change("change configs: append to an unknown config", resource(op(APPEND, "no.such", "1"))),
    change("change configs: subtract", resource(op(SUBTRACT, "cleanup.policy", "delete"))),
    change("change configs: subtract what is not there", resource(op(SUBTRACT, "cleanup.policy", "compact"))),
    change("change configs: subtract from what is no list", resource(op(SUBTRACT, "retention.ms", "1"))),
    change("change configs: unknown operation", resource(op(9, "retention.ms", "1"))),
    change("change configs: unknown config", resource(op(SET, "no.such", "1"))),
    change("change configs: wrong kind", resource(op(SET, "retention.ms", "soon"))),
    change("change configs: out of range", resource(op(SET, "retention.ms", "-2"))),
    change("change configs: not among the choices", resource(op(SET, "cleanup.policy", "keep"))),
    change("change configs: one good, one bad", resource(op(SET, "retention.ms", "1000"), op(SET, "segment.ms", "soon"))),
    change("change configs: config twice", resource(op(SET, "retention.ms", "1"), op(SET, "retention.ms", "2"))),
    change("change configs: config set and deleted", resource(op(SET, "retention.ms", "1"), op(DELETE, "retention.ms"))),
    change("change configs: resource twice", resource(op(SET, "retention.ms", "1")), resource(op(SET, "segment.ms", "2"))),
    change("change configs: unknown topic", resource(op(SET, "retention.ms", "1"), name="unknown"), before=[]),
    change("change configs: illegal topic name", resource(op(SET, "retention.ms", "1"), name="not legal"), before=[]),
    change("change configs: unknown type", resource(op(SET, "retention.ms", "1"), kind=77), before=[]),
    *(
        change(f"change configs: {name} = {text}", resource(op(SET, name, text), name=FIXED), before=[], ValidateOnly=True)
        for name, text in (
            ("cleanup.policy", ""), ("cleanup.policy", "compact,delete"), ("cleanup.policy", "delete,delete"), ("cleanup.policy", "Delete"),
            ("compression.type", "zip"), ("compression.type", "GZIP"), ("max.message.bytes", "-1"), ("max.message.bytes", "0"),
            ("min.insync.replicas", "0"), ("message.timestamp.type", "Never"), ("message.timestamp.type", "LogAppendTime"),
            ("min.cleanable.dirty.ratio", "2"), ("min.cleanable.dirty.ratio", "0.1"), ("segment.bytes", "13"), ("segment.bytes", "1048576"),
            ("segment.ms", "0"), ("segment.jitter.ms", "-1"), ("retention.bytes", "-1"), ("retention.bytes", "-2"), ("retention.ms", " 7 "),
            ("preallocate", "yes"), ("preallocate", "TRUE"), ("unclean.leader.election.enable", "true"), ("flush.messages", "0"),
            ("flush.ms", "-1"), ("index.interval.bytes", "-1"), ("segment.index.bytes", "3"), ("max.compaction.lag.ms", "0"),
            ("delete.retention.ms", "-1"), ("file.delete.delay.ms", "-1"), ("min.compaction.lag.ms", "-1"), ("retention.ms", "9223372036854775808"),
            ("message.timestamp.after.max.ms", "-1"), ("message.timestamp.before.max.ms", "-1"),
            ("compression.gzip.level", "5"), ("compression.gzip.level", "0"), ("compression.lz4.level", "99"), ("compression.zstd.level", "22"),
            ("leader.replication.throttled.replicas", "*"), ("leader.replication.throttled.replicas", "0:1"),
            ("leader.replication.throttled.replicas", "zero"), ("remote.storage.enable", "true"), ("remote.storage.enable", "false"),
            ("local.retention.ms", "-3"), ("local.retention.ms", "1000"), ("local.retention.bytes", "-3"), ("remote.log.copy.disable", "true"),
            ("remote.log.delete.on.disable", "false"), ("internal.segment.bytes", "1000"), ("errors.deadletterqueue.group.enable", "true"),
        )
    ),
]
