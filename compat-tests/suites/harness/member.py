"""A group member as a process of its own, so that it can be killed: `member.py LIBRARY BROKER GROUP TOPIC FILE`.

Writes one line a record, `partition offset key value`, and commits only what is written. `# p,p,...` tells its partitions.
"""

import signal
import sys

library, broker, group, topic, path = sys.argv[1:6]
out = open(path, "w", buffering=1 << 16)
stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)


def assigned(partitions):
    out.write(f"# {','.join(str(p) for p in sorted(partitions))}\n")
    out.flush()


def confluent():
    import confluent_kafka as ck

    consumer = ck.Consumer({
        "bootstrap.servers": broker, "group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500, "auto.commit.interval.ms": 300, "enable.auto.offset.store": False,
    })
    consumer.subscribe([topic], on_assign=lambda _, parts: assigned(p.partition for p in parts), on_revoke=lambda *_: assigned([]))
    while not stopping:
        messages = consumer.consume(500, 0.1)
        last = {}
        for m in messages:
            if m.error():
                print(m.error(), file=sys.stderr)
                continue
            out.write(f"{m.partition()} {m.offset()} {m.key().decode()} {m.value().decode()}\n")
            last[m.partition()] = m.offset() + 1
        out.flush()
        if last:
            try:
                consumer.store_offsets(offsets=[ck.TopicPartition(topic, p, o) for p, o in last.items()])
            except ck.KafkaException as error:
                # The partition went to another member meanwhile: it reads these again.
                print(error, file=sys.stderr)
    consumer.close()


def kafka_python():
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=6000, heartbeat_interval_ms=500, max_poll_records=500,
    )

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            assigned([])

        def on_partitions_assigned(self, parts):
            assigned(p.partition for p in parts)

    consumer.subscribe([topic], listener=Listener())
    while not stopping:
        polled = consumer.poll(timeout_ms=500)
        for records in polled.values():
            for r in records:
                out.write(f"{r.partition} {r.offset} {r.key.decode()} {r.value.decode()}\n")
        out.flush()
        try:
            if polled:
                consumer.commit(timeout_ms=5000)
        except KafkaError as error:
            print(error, file=sys.stderr)
    consumer.close()


{"confluent": confluent, "kafka-python": kafka_python}[library]()
out.close()
