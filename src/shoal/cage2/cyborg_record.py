"""Recordings of the real CybORG (docs/cage2-recordings.md): episodes played in it, its state read after every step.

What is read are attributes of CybORG 2.1 as it is at both commits of the challenge; nothing of it is changed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cage2.cyborg import COMMAND, CyborgEnv, CyborgMissing, installed_rules
from shoal.cage2.cyborg_view import batch_of, bits_of
from shoal.cage2.defenders.play import Defender
from shoal.cage2.simulator.network import (
    DISCOVER,
    ESCALATE,
    EXPLOIT,
    EXPLOITS,
    FAILED,
    FIRST_DECOY,
    HOSTS,
    IMPACT,
    NUM_BITS,
    NUM_HOSTS,
    OP_SERVER0,
    PORTS,
    RED_SLEEP,
    RESTORE,
    SCAN,
    SUBNETS,
    SUCCEEDED,
    UNKNOWN,
)
from shoal.cage2.traces import STEP
from shoal.core.seeds import Stream, sequence
from shoal.runs.disk import replace_atomically

ACTIONS = {
    "Sleep": RED_SLEEP, "DiscoverRemoteSystems": DISCOVER, "DiscoverNetworkServices": SCAN,
    "ExploitRemoteService": EXPLOIT, "PrivilegeEscalate": ESCALATE, "Impact": IMPACT,
}  # fmt: skip
SUCCESS = {"TRUE": SUCCEEDED, "FALSE": FAILED, "UNKNOWN": UNKNOWN}
PRIVILEGED_USERS = ("root", "SYSTEM")
MALWARE = 0.9  # density of a file
SERVICE = "OTService"


def record(
    act: Callable[[Any, np.ndarray], np.ndarray] | str,
    red: str = "bline",
    episodes: int = 1,
    steps: int = 100,
    seed: int = 0,
    features: str = "memory",
    mask: str = "useful",
    order: str | int = "none",
    played: Callable[[int], None] = lambda episodes: None,
) -> dict[str, np.ndarray]:
    """The arrays of a recording. `act` is a policy or a scripted defender's name, `features` and `mask` what the policy
    sees; the seed is of the evaluation stream."""
    if order != "none":
        raise ValueError("order: expected none in CybORG: compliance is judged on shoal's own state")
    if isinstance(act, str):
        act, features, mask = Defender(act, 1, seed).act, "plain", "none"
    rules = installed_rules()
    env = CyborgEnv(horizon=steps, red=red, features=features, mask=mask)
    recorded = np.zeros((episodes, steps), STEP).view(np.recarray)
    obs0, seeds = np.zeros((episodes, 1, NUM_BITS), np.uint8), np.zeros(episodes, np.int64)
    first = int(sequence(seed, Stream.EVALUATE, 0).generate_state(1, np.uint32)[0])
    for episode in range(episodes):
        observation, _ = env.reset(seed=first if episode == 0 else None)
        obs0[episode, 0], seeds[episode] = bits_of(observation), env.episode_seed
        reader = _asked(Reader, env.cyborg, env.red)
        for t in range(steps):
            action = int(act(batch_of(observation), np.array([t == 0]))[0])
            observation, reward, *_ = env.step(action)
            out = recorded[episode, t]
            out.blue_action, out.obs, out.reward = action, bits_of(observation), reward
            _asked(reader.read, out)
        played(1)
    arrays = {name: np.ascontiguousarray(recorded[name]) for name in STEP.names or ()}
    return {**arrays, "obs0": obs0, "seed": seeds, "rules": np.array(rules)}


def write(path: str | Path, arrays: dict[str, np.ndarray]) -> None:
    """Into a file, all of it or nothing."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    replace_atomically(Path(path), buffer.getvalue())


def _asked(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CyborgMissing(
            f"the CybORG that is installed keeps its state otherwise than that of CAGE Challenge 2 "
            f"({type(error).__name__}: {error}); install it with: {COMMAND}"
        ) from error


class Reader:
    """What a recording says of a step beyond what Blue sees and is paid, read from CybORG. One for each episode."""

    def __init__(self, cyborg: Any, red: str) -> None:
        self.cyborg, self.red = cyborg, red
        self._decoys: list[dict[int, int]] = [{} for _ in HOSTS]  # by process: its kind
        self._service = self._state.hosts[HOSTS[OP_SERVER0]].services[SERVICE]["process"]
        self._seen = self._shells_seen()

    @property
    def _state(self) -> Any:
        return self.cyborg.environment_controller.state

    def read(self, out: Any) -> None:
        """Write the fields of the step that has just been made; `out` has Blue's action already."""
        state, known = self._state, self.cyborg.get_action_space("Red")
        seen, self._seen = self._seen, self._shells_seen()
        out.blue_success, out.red_success = self._success("Blue"), self._success("Red")
        out.red_type, out.red_target, out.red_exploit = self._red_action()
        out.detected = self._seen > seen
        self._follow_decoys(int(out.blue_action))
        for number, name in enumerate(HOSTS):
            host = state.hosts[name]
            sessions = [session for session in state.sessions["Red"].values() if session.host == name]
            held = [2 if session.username in PRIVILEGED_USERS else 1 for session in sessions]
            out.access[number] = max(held, default=0)
            out.n_removable[number] = sum(self._removable(host, session) for session in sessions)
            out.decoys[number] = sum(1 << kind for kind in set(self._decoys[number].values()))
            out.malware[number] = any(file.density >= MALWARE for file in host.files)
        mind = state.sessions["Red"][0]
        out.red_ports[:] = 0
        for address, ports in mind.ports.items():
            out.red_ports[self._host(address)] = sum(1 << PORTS.index(port) for port in set(ports))
        server = state.hosts[HOSTS[OP_SERVER0]]
        running, killable = server.get_process(self._service), server.services[SERVICE]["process"]
        out["flags"][:] = running is not None, killable is not None, mind.ot_service is not None
        networks = state.subnet_name_to_cidr.values()
        out.red_known[:] = (  # a host's loopback may be among what red knows
            _set_of(self._host(it) for it, knows in known["ip_address"].items() if knows and it in state.ip_addresses),
            _set_of(HOSTS.index(it) for it, knows in known["hostname"].items() if knows),
            _set_of(self._subnet(it) for it, knows in known["subnet"].items() if knows and it in networks),
        )
        out.red_agent[:] = self._memory()

    def _memory(self) -> tuple[int, int, int, int, int]:
        agent = self.cyborg.environment_controller.agent_interfaces["Red"].agent
        if self.red == "bline":
            return agent.action, 0, 0, 0, 0
        if self.red == "sleep":
            return -1, 0, 0, 0, 0
        scanned, exploited = (_set_of(map(self._host, some)) for some in (agent.scanned_ips, agent.exploited_ips))
        escalated = _set_of(map(HOSTS.index, agent.escalated_hosts))
        return -1, scanned, exploited, escalated, _set_of(map(self._subnet, agent.scanned_subnets))

    def _red_action(self) -> tuple[int, int, int]:
        action = self.cyborg.get_last_action("Red")
        if type(action).__name__ == "InvalidAction":
            action = action.action
        kind = ACTIONS[type(action).__name__]
        if kind == RED_SLEEP:
            return kind, -1, -1
        if kind == DISCOVER:
            return kind, self._subnet(action.subnet), -1
        if kind in (ESCALATE, IMPACT):
            return kind, HOSTS.index(action.hostname), -1
        chosen = getattr(action, "sub_action", None) if kind == EXPLOIT else None
        exploit = -1 if chosen is None else EXPLOITS.index(type(chosen).__name__)
        return kind, self._host(action.ip_address), exploit

    def _success(self, agent: str) -> int:
        said = self.cyborg.get_observation(agent)["success"]
        return SUCCESS[str(getattr(said, "name", said)).upper()]

    def _shells_seen(self) -> int:
        """How many shells monitoring has noted in this episode."""
        return sum(map(len, self._state.sessions["Blue"][0].sus_pids.values()))

    def _removable(self, host: Any, session: Any) -> bool:
        noted = self._state.sessions["Blue"][0].sus_pids.get(host.hostname, ())
        process = host.get_process(session.pid)
        return session.pid in noted and process is not None and process.user not in PRIVILEGED_USERS

    def _follow_decoys(self, action: int) -> None:
        """A decoy is a process that says it is one; of which kind, Blue's action says that set it up."""
        kind, at = divmod(action - 2, NUM_HOSTS)
        for number, name in enumerate(HOSTS):
            there = {process.pid for process in self._state.hosts[name].processes if bool(process.decoy_type)}
            known = self._decoys[number]
            new = there - known.keys()
            if new and not (action >= 2 and at == number and FIRST_DECOY <= kind < RESTORE):
                raise KeyError(f"a decoy on {name} that Blue has not set up")
            self._decoys[number] = {pid: known.get(pid, kind - FIRST_DECOY) for pid in there}

    def _host(self, address: Any) -> int:
        return HOSTS.index(self._state.ip_addresses[address])

    def _subnet(self, cidr: Any) -> int:
        names = {network: name for name, network in self._state.subnet_name_to_cidr.items()}
        return SUBNETS.index(names[cidr])


def _set_of(numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found
