"""Three brokers that form one cluster, each on a loopback address of its own for its peers."""

import os
import random
import threading

from .broker import START_LIMIT, Queen, run
from .http import Http
from .polling import eventually


def loopback():
    """An address of this machine that nobody else uses: all of 127/8 is its own."""
    a, b, c = os.urandom(3)
    return f"127.{max(a, 1)}.{b}.{min(max(c, 1), 254)}:7632"


class Cluster:
    """`kafka` is the leader's address and `http` anybody's, so that clients of one broker work on it as they are."""

    def __init__(self, home, *options, size=3, rack=False):
        self.peers = {id: loopback() for id in range(1, size + 1)}
        self.options, self.rack = options, rack
        self.home = home
        self.nodes = {id: self._node(id) for id in self.peers}
        self.dice = random.Random(1)

    def _node(self, id, *extra):
        listed = ",".join(f"{peer}={at}" for peer, at in self.peers.items())
        rack = ("--rack", f"rack-{id}") if self.rack else ()
        return Queen(self.home / f"node{id}", "--node-id", str(id), "--peers", listed, *rack, *self.options, *extra)

    # --- life ---

    def start(self, *ids, limit=START_LIMIT):
        """Starts nodes at the same time and waits until they serve."""
        troubles = []

        def one(id):
            try:
                self.nodes[id].start(limit=limit)
            except BaseException as error:  # noqa: BLE001 - raised below
                troubles.append(error)

        threads = [threading.Thread(target=one, args=(id,)) for id in ids or self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if troubles:
            raise troubles[0]
        return self

    def kill(self):
        for node in self.nodes.values():
            node.kill()

    def alive(self):
        return [id for id, node in self.nodes.items() if node.alive() and node.http]

    # --- looking at it ---

    def view(self, id):
        """The cluster as one node sees it; None when it does not answer."""
        try:
            with Http(self.nodes[id].http, 5) as http:
                return http.get("/api/v1/cluster")
        except (OSError, AssertionError):
            return None

    def leader(self, within=20):
        """The node that says it leads with a quorum behind it."""

        def find():
            views = {id: self.view(id) for id in self.alive()}
            leading = [id for id, view in views.items() if view and view["leader"] == id and view["quorum"]]
            healthy = [id for id in leading if self.healthy(id)]
            return healthy[0] if len(healthy) == 1 else None

        return eventually(find, within, "one node leads")

    def healthy(self, id):
        try:
            with Http(self.nodes[id].http, 5) as http:
                return http.request("GET", "/health", status=None).status_code == 200
        except OSError:
            return False

    def follower(self):
        leader = self.leader()
        return next(id for id in self.alive() if id != leader)

    def in_sync(self, within=30):
        """Waits until every node knows every other one to hold everything."""

        def all_there():
            views = [self.view(id) for id in self.alive()]
            return all(v and len(v["members"]) == len(self.nodes) and all(m["inSync"] for m in v["members"]) for v in views)

        return eventually(all_there, within, "all nodes are in sync")

    @property
    def kafka(self):
        return self.nodes[self.leader()].kafka

    @property
    def bootstrap(self):
        return ",".join(node.kafka for node in self.nodes.values() if node.kafka)

    @property
    def http(self):
        alive = self.alive()
        return self.nodes[self.dice.choice(alive)].http if alive else "127.0.0.1:1"

    def command(self, *arguments, at=None):
        """`queen cluster ...` against one node: (exit code, stdout, stderr)."""
        node = self.nodes[at or self.alive()[0]]
        return run("cluster", *arguments, "--url", f"http://{node.http}", timeout=60)
