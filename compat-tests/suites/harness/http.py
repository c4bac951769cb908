"""The HTTP side as a client sees it, one method a route; every answer is checked for its status and kept whole."""

import itertools
import json
import os

import requests

_names = itertools.count(1)


def unique(prefix):
    """A name nobody used before, in this run or an earlier one on the same data."""
    return f"{prefix}-{os.getpid()}-{os.urandom(3).hex()}-{next(_names)}"


class Unexpected(AssertionError):
    pass


class Http:
    def __init__(self, where, timeout=40):
        self.base = f"http://{where}"
        self.session = requests.Session()
        self.session.trust_env = False
        self.timeout = timeout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.session.close()

    def request(self, method, path, body=None, params=None, status=(200,), raw=None, headers=None, timeout=None):
        """The answer as JSON, None for 204; any status out of `status` fails. `status=None` gives the response itself."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        head = {"Content-Type": "application/json"} if data is not None else {}
        head.update(headers or {})
        answer = self.session.request(
            method, self.base + path, data=data, params=params, headers=head, timeout=timeout or self.timeout, allow_redirects=False
        )
        if status is None:
            return answer
        if answer.status_code not in status:
            raise Unexpected(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        if answer.status_code == 204:
            assert answer.content == b"", "a 204 with a body"
            assert "content-length" not in answer.headers, "a 204 with a Content-Length"
            return None
        return answer.json()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, body, **options)

    def delete(self, path, **options):
        return self.request("DELETE", path, **options)

    # --- routes ---

    def configure(self, queue, **options):
        answer = self.post("/api/v1/configure", {"queue": queue, "options": options}, status=(200, 201))
        assert answer["configured"] is True
        return answer

    def push(self, queue, *payloads, partition=None, txn=None, items=None):
        """Pushes payloads (or whole items) and answers the verdicts."""
        if items is None:
            items = [{"payload": payload} for payload in payloads]
        for item in items:
            item.setdefault("queue", queue)
            if partition is not None:
                item.setdefault("partition", partition)
            if txn is not None:
                item.setdefault("transactionId", txn)
        answer = self.post("/api/v1/push", {"items": items}, status=(201,))
        assert len(answer) == len(items)
        return answer

    def pop_answer(self, queue, partition=None, **params):
        params = {k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items()}
        path = f"/api/v1/pop/queue/{quote(queue)}"
        if partition is not None:
            path += f"/partition/{quote(partition)}"
        return self.get(path, params=params, status=(200, 204))

    def pop(self, queue, partition=None, **params):
        answer = self.pop_answer(queue, partition, **params)
        return [] if answer is None else answer["messages"]

    def ack(self, message, status="completed", group=None, lease=True, error=None):
        """Acks one popped message; answers the one result."""
        body = {
            "transactionId": message["transactionId"], "partitionId": message["partitionId"], "status": status,
            "consumerGroup": group or message.get("consumerGroup"), "error": error,
        }
        if lease:
            body["leaseId"] = message["leaseId"] if lease is True else lease
        answer = self.post("/api/v1/ack", body)
        assert len(answer) == 1
        return answer[0]

    def ack_all(self, messages, status="completed"):
        """Acks messages of one group, all with one status or each with its own (a list)."""
        words = status if isinstance(status, list) else [status] * len(messages)
        answer = self.post("/api/v1/ack/batch", {
            "consumerGroup": messages[0].get("consumerGroup"),
            "acknowledgments": [
                {"transactionId": m["transactionId"], "partitionId": m["partitionId"], "leaseId": m["leaseId"], "status": word}
                for m, word in zip(messages, words, strict=True)
            ],
        })
        assert len(answer) == len(messages)
        return answer

    def extend(self, lease, seconds=None):
        return self.post(f"/api/v1/lease/{lease}/extend", None if seconds is None else {"seconds": seconds})

    def transaction(self, operations=(), kv=None, timers=None, **more):
        body = {"operations": list(operations), "requiredLeases": [], **more}
        if kv is not None:
            body["kv"] = kv
        if timers is not None:
            body["timers"] = timers
        return self.post("/api/v1/transaction", body)

    def kv(self, *operations):
        answer = self.post("/api/v1/kv", {"operations": list(operations)})
        return answer if "results" not in answer else answer["results"]

    def kv_get(self, ns, key):
        return self.kv({"op": "get", "ns": ns, "key": key})[0]

    def kv_put(self, ns, key, value, **more):
        if "ttlSeconds" not in more:
            more["forever"] = True
        return self.kv({"op": "put", "ns": ns, "key": key, "value": value, **more})[0]

    def timers(self, *operations):
        return self.post("/api/v1/timers", {"operations": list(operations)})["results"]

    def fetch(self, queue, *partitions, offset=0, **more):
        answer = self.post("/api/v1/fetch", {
            "entries": [{"queue": queue, "partition": name, "offset": offset} for name in partitions], **more})
        assert [e["partition"] for e in answer["entries"]] == list(partitions)
        return answer["entries"]

    def lane(self, queue, partition):
        """Every record of one lane by offset reads."""
        out, offset = [], 0
        while True:
            entry = self.fetch(queue, partition, offset=offset)[0]
            assert not entry.get("error"), entry
            if not entry["records"]:
                assert offset >= entry["highWatermark"], entry
                return out
            out += entry["records"]
            offset = out[-1]["offset"] + 1

    def dlq(self, queue, **params):
        return self.get("/api/v1/dlq", params={"queue": queue, **params})["messages"]

    def drop(self, queue):
        return self.delete(f"/api/v1/resources/queues/{quote(queue)}")


def quote(text):
    return requests.utils.quote(text, safe="")


def ack_operation(message, **more):
    return {
        "type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "consumerGroup": message["consumerGroup"], **more,
    }


def push_operation(queue, payload, **more):
    return {"type": "push", "items": [{"queue": queue, "payload": payload, **more}]}
