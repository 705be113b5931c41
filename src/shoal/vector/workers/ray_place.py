"""A place for an actor, on a cluster of which a node may just have died.

A cluster takes half a minute to notice that, and until then sends actors there in vain. So who has waited a moment for
an answer asks other nodes by name, and takes the first that answers.
"""

from __future__ import annotations

import contextlib
import marshal
import time
from collections.abc import Sequence
from typing import Any

from shoal.vector.workers import ray_actor

MOMENT_S = 2.0
MOST_NODES, MOST_DEATHS = 4, 8  # asked by name; actors that died before they said a word


class Placement:
    """An actor that is being started. `avoid` is the node where its predecessor died."""

    def __init__(self, ray: Any, folders: Sequence[str], owner: int, avoid: str | None = None) -> None:
        self.ray, self._avoid, self._hello = ray, avoid, (list(folders), owner)
        self._asked: dict[Any, Any] = {}  # what it will say: the actor
        self._ask("SPREAD")

    def wait(self, timeout_s: float) -> tuple[Any, dict[str, Any]]:
        """The actor and what it says of itself. Ray's errors: GetTimeoutError if none has answered by then."""
        end, named, deaths = time.monotonic() + timeout_s, False, 0
        try:
            while True:
                left = max(end - time.monotonic(), 0.0)
                ready, _ = self.ray.wait(list(self._asked), timeout=left if named else min(left, MOMENT_S))
                try:
                    if ready:
                        return self._asked.pop(ready[0]), marshal.loads(self.ray.get(ready[0]))
                    if left == 0.0:
                        raise self.ray.exceptions.GetTimeoutError(f"no actor has begun within {timeout_s:g} s")
                except self.ray.exceptions.RayActorError:  # died before it said a word, maybe with its node
                    deaths += 1
                    if deaths > MOST_DEATHS or (not self._asked and (named or not self._other_nodes())):
                        raise
                if not named:
                    named = True
                    for node in self._other_nodes():
                        self._ask_node(node)
        finally:
            self.end()

    def _other_nodes(self) -> list[str]:
        """Nodes that may take it, if there are several; the one where its predecessor died only at the end of all."""
        alive = [node["NodeID"] for node in self.ray.nodes() if node["Alive"]]
        return [node for node in alive if node != self._avoid][:MOST_NODES] if len(alive) > 1 else []

    def _ask_node(self, node: str) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ask(NodeAffinitySchedulingStrategy(node, soft=False))

    def _ask(self, strategy: Any) -> None:
        kind = self.ray.remote(ray_actor.EnvActor)
        actor = kind.options(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy).remote()
        self._asked[actor.hello.remote(*self._hello)] = actor

    def end(self) -> None:
        """Give up those that were asked and are not needed."""
        asked, self._asked = self._asked, {}
        for actor in asked.values():
            with contextlib.suppress(Exception):  # it never began, or the cluster is gone
                self.ray.kill(actor, no_restart=True)
