"""N ordered environments as one: compliance counted for each, and an alignment term in the reward if wanted."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from shoal.cage2.simulator.env import Cage2
from shoal.cage2.simulator.machine import specialised
from shoal.cage2.simulator.red import sessions
from shoal.cage2.workflows.alignment import LAGRANGE, METHODS, REWARD, Alignment
from shoal.cage2.workflows.conduct import Conduct
from shoal.cage2.workflows.ordered import Ordered
from shoal.cage2.workflows.orders import COUNTED, TALLY, VIOLATION, believed_set, count, fixed_host
from shoal.compiled.vector import CompiledVectorEnv
from shoal.core.seeds import Stream

# An episode that has ended: where, under which order, its own return in tenths, and its tally.
EPISODE = np.dtype([("env", np.int32), ("order", np.int32), ("cost", np.int32), ("tally", TALLY)], align=True)


def look_all(states: Any, held: Any, believed: Any, orders: Any) -> None:
    """Before Blue acts: the compromised hosts, those believed so, and the order of every environment."""
    for i in range(held.shape[0]):
        held[i] = sessions(states[i].game) & COUNTED
        believed[i] = believed_set(states[i].game.bits)
        orders[i] = states[i].order


def settle_all(
    episodes: Any, held: Any, believed: Any, orders: Any, actions: Any, rewards: Any, ended: Any, method: int,
    weight: float, finished: Any,
) -> int:  # fmt: skip
    """After a step: count it, add the alignment term to `rewards`; returns how many episodes were put in `finished`."""
    number = 0
    for i in range(held.shape[0]):
        tally = episodes[i].tally
        host = fixed_host(actions[i])
        before = rate_of(tally.true)
        tally.steps += 1
        count(tally.believed, orders[i], believed[i], host)
        verdict = count(tally.true, orders[i], held[i], host)
        episodes[i].cost += np.int32(np.rint(-10.0 * rewards[i]))
        if method == LAGRANGE:
            if verdict == VIOLATION:
                rewards[i] -= weight
        elif method == REWARD:
            rewards[i] += weight * (rate_of(tally.true) - before)
        if ended[i]:
            finished[number] = episodes[i]
            finished[number].order = orders[i]
            number += 1
            clear(episodes[i])
    return number


def rate_of(counts: Any) -> float:
    """The compliance rate of an episode so far; 1 before the first judged fix."""
    judged = counts.compliant + counts.violations
    return counts.compliant / judged if judged > 0 else 1.0


def clear(episode: Any) -> None:
    """Begin counting an episode anew; it stays its environment's."""
    episode.cost = 0
    episode.tally.steps = 0
    clear_counts(episode.tally.true)
    clear_counts(episode.tally.believed)


def clear_counts(counts: Any) -> None:
    counts.compliant = 0
    counts.violations = 0
    counts.wasted = 0
    counts.held_steps = 0
    counts.answered = 0


class OrderedVectorEnv(CompiledVectorEnv):
    """N ordered environments. `take_episodes` gives the finished episodes; `after_rollout` moves the multiplier.

    >>> from shoal.cage2.simulator.env import make
    >>> envs = OrderedVectorEnv(make(order="user,enterprise,op_server,op_host", red="bline"), num_envs=2)
    >>> _ = envs.reset(seed=0)
    >>> for _ in range(100):
    ...     _ = envs.step(np.zeros(2, np.int64))
    >>> ended = envs.take_episodes()
    >>> len(ended), ended["tally"]["true"]["compliant"].tolist()
    (2, [0, 0])
    """

    def __init__(
        self,
        env: Cage2,
        num_envs: int,
        threads: int | Literal["auto"] = 1,
        stream: Stream = Stream.TRAIN,
        alignment: Alignment | None = None,
    ) -> None:
        if not isinstance(env, Ordered):
            raise TypeError(f"expected an environment under an order (make(order=...)), got {env.name}")
        super().__init__(env, num_envs, threads=threads, stream=stream)
        self.alignment = alignment or Alignment("none")
        self.weight = self.alignment.weight
        self._method = METHODS.index(self.alignment.method)
        self._episodes = np.zeros(num_envs, EPISODE)  # the unfinished ones
        self._episodes["env"] = np.arange(num_envs)
        self._held, self._believed, self._orders = (np.zeros(num_envs, np.int32) for _ in range(3))
        self._room = np.zeros(num_envs, EPISODE)
        self._finished: list[np.ndarray] = []
        self.last_episodes = np.zeros(0, EPISODE)  # those of the last rollout
        sets = self._held, self._believed, self._orders
        flags, rewards = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.float32)
        self._look = specialised(look_all, self.state, *sets)
        self._settle = specialised(
            settle_all, self._episodes, *sets, self._actions, rewards, flags, self._method, self.weight, self._room
        )

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As any vector environment; unfinished episodes are forgotten."""
        observations = super().reset(seed=seed, options=options)
        begun = self._reset_mask(options)
        self._episodes[begun] = np.zeros(1, EPISODE)
        self._episodes["env"] = np.arange(self.num_envs)
        return observations

    def step(self, actions: Any, out: Any = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """As any vector environment; each step is judged on the state before it."""
        self._look(self.state, self._held, self._believed, self._orders)
        observations, rewards, terminated, truncated, infos = super().step(actions, out)
        number = self._settle(
            self._episodes, self._held, self._believed, self._orders, self._actions, rewards, terminated | truncated,
            self._method, self.weight, self._room,
        )  # fmt: skip
        if number:
            self._finished.append(self._room[:number].copy())
        return observations, rewards, terminated, truncated, infos

    def take_episodes(self) -> np.ndarray:
        """EPISODE[n]: the episodes that have ended since this was last asked, in the order of their ends."""
        taken = np.concatenate(self._finished) if self._finished else np.zeros(0, EPISODE)
        self._finished = []
        return taken

    def after_rollout(self, progress: float = 0.0) -> dict[str, float]:
        """What the finished episodes say, as metrics; moves the multiplier."""
        self.last_episodes = self.take_episodes()
        return self.account(self.last_episodes)

    def account(self, episodes: np.ndarray) -> dict[str, float]:
        """Metrics of finished episodes; moves the multiplier by their compliance."""
        row = {"workflow/weight": self.weight, "workflow/episodes": float(len(episodes))}
        if len(episodes) == 0:
            return row
        conduct = Conduct.of(episodes["tally"])
        self.weight = self.alignment.moved(self.weight, conduct.compliance.mean)
        row["workflow/return"] = float(episodes["cost"].mean()) / -10.0
        for name in ("compliance", "believed_compliance", "coverage", "wasted"):
            mean = getattr(conduct, name).mean
            if mean is not None:
                row[f"workflow/{name}"] = mean
        worst = compliance_by_env(episodes)
        if len(worst):
            row["workflow/worst_environment"] = float(min(worst.values()))
        return row

    def get_state(self) -> dict[str, np.ndarray]:
        """With the unfinished tallies and the multiplier, for a run to go on to the same bits."""
        own: dict[str, np.ndarray] = {
            "episodes": self._episodes.view(np.uint8).reshape(self.num_envs, -1).copy(),
            "weight": np.array([self.weight], np.float64),
        }
        return {**super().get_state(), **own}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """The inverse of `get_state`."""
        rest = {name: value for name, value in state.items() if name not in ("episodes", "weight")}
        if len(rest) != len(state) - 2:
            raise ValueError(f"state of {self.env.name}: expected episodes and weight too, got {sorted(state)}")
        super().set_state(rest)
        self._episodes[:] = np.ascontiguousarray(state["episodes"]).view(EPISODE)[:, 0]
        self.weight = float(state["weight"][0])
        self._finished = []


def compliance_by_env(episodes: np.ndarray) -> dict[int, float]:
    """Compliance of each environment that had a judged fix, pooled over its episodes."""
    found: dict[int, float] = {}
    for env in np.unique(episodes["env"]):
        counts = episodes["tally"]["true"][episodes["env"] == env]
        compliant, violations = int(counts["compliant"].sum()), int(counts["violations"].sum())
        if compliant + violations:
            found[int(env)] = compliant / (compliant + violations)
    return found
