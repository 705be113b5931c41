"""A stand-in for the CybORG package with the surface that the adapter uses, playing back recordings."""

from __future__ import annotations

import enum
import random
import sys
import types
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import SimpleNamespace as Space
from typing import Any

import numpy as np
import pytest

from shoal.cage2.simulator.network import EXPLOITS, HOSTS, PORTS, SUBNETS
from shoal.cage2.traces import STEP, load

# A package on the disk, for what must survive a real import or another process: it is laid out as the real one and
# reads its version.txt when it is imported. Its network never changes: 52 zero bits and a reward of -0.1 a step.
_PACKAGE = """
from pathlib import Path
import gym
version = (Path(__file__).parent / "version.txt").read_text()

class CybORG:
    def __init__(self, path, mode, agents):
        open(path).close()

    def get_last_action(self, agent):
        return "ExploitRemoteService 10.0.0.1"
"""
_AGENTS = "class B_lineAgent: pass\nclass RedMeanderAgent: pass\nclass SleepAgent: pass\n"
_WRAPPERS = """
import numpy as np

class ChallengeWrapper:
    def __init__(self, env, agent_name):
        assert agent_name == "Blue"

    def reset(self):
        return np.zeros(52, np.int64)

    def step(self, action):
        return np.zeros(52, np.int64), -0.1, False, {}
"""
COMPLAINT = "Gym has been unmaintained since 2022"


def write_package(root: Path, *, rules: str = "26ce1c1", without: str = "") -> Path:
    """Write such a package below root, and a gym that complains when it is imported; returns the folder for sys.path.

    `without` is a data file to leave out, as a plain pip install does.
    """
    clear = "    def clearports(self, ip_address): ...\n" if rules == "26ce1c1" else ""
    files = {
        "gym/__init__.py": f"import sys\nprint({COMPLAINT!r}, file=sys.stderr)\n",
        "CybORG/__init__.py": _PACKAGE,
        "CybORG/version.txt": "2.1\n",
        "CybORG/Agents/__init__.py": _AGENTS,
        "CybORG/Agents/Wrappers/__init__.py": _WRAPPERS,
        "CybORG/Simulator/__init__.py": "",
        "CybORG/Simulator/Session.py": f"class RedAbstractSession:\n    def addport(self, ip_address): ...\n{clear}",
        "CybORG/Shared/Scenarios/Scenario2.yaml": "Agents:\n",
    }
    for name, text in files.items():
        if not without or not name.endswith(without):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    return root


class Trinary(enum.Enum):
    """A success as CybORG has it."""

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2


def address_of(host: int) -> IPv4Address:
    """Any will do, if it is not in the order of the hosts."""
    return IPv4Address("10.0.0.20") - host


class Inside:
    """CybORG's own state, laid out as in version 2.1, as a recording says that it was after a step."""

    def __init__(self, red: str) -> None:
        self.red = red
        self.networks = {name: IPv4Network(f"10.0.{i}.0/28") for i, name in enumerate(reversed(SUBNETS))}
        self.state = Space(
            ip_addresses={address_of(host): name for host, name in enumerate(HOSTS)},
            subnet_name_to_cidr=self.networks,
        )
        self.agent = Space()
        self.controller = Space(state=self.state, agent_interfaces={"Red": Space(agent=self.agent)})
        self.reset()

    def reset(self) -> None:
        """As an episode begins: red has its session on User0, and nothing has happened."""
        self.noted: dict[str, list[int]] = {}
        self.decoys: list[dict[int, int]] = [{} for _ in HOSTS]
        first = np.zeros(1, STEP)[0]
        first["access"][8], first["flags"] = 2, (1, 1, 0)
        self.become(first, 0)

    def become(self, step: np.void, t: int) -> None:
        """Everything as it was after that step."""
        blue = int(step["blue_action"])
        if step["detected"]:
            self.noted.setdefault(HOSTS[step["red_target"]], []).append(2000 + t)
        server = Space(ports={}, ot_service="OTService" if step["flags"][2] else None, host="User0", pid=1)
        server.username, shells = "SYSTEM", {0: server}
        for host, ports in enumerate(step["red_ports"]):
            if ports:
                server.ports[address_of(host)] = [port for i, port in enumerate(PORTS) if int(ports) >> i & 1]
        hosts = {}
        for host, name in enumerate(HOSTS):
            processes = [Process(1, "root")] if name != "Op_Server0" or step["flags"][0] else []
            self._set_up_decoys(host, int(step["decoys"][host]), blue, t)
            processes += [Process(pid, "user", decoy=True) for pid in self.decoys[host]]
            seen = self.noted.get(name, [])[-int(step["n_removable"][host]) :] if step["n_removable"][host] else []
            users = [(pid, "user") for pid in seen]
            if step["access"][host] == 2 and name != "User0":
                users.append((3000 + host, "SYSTEM"))
            elif step["access"][host] == 1 and not users:
                users.append((3000 + host, "user"))
            for pid, user in users:
                processes.append(Process(pid, user))
                shells[len(shells)] = Space(host=name, pid=pid, username=user)
            hosts[name] = Host(name, processes, [Space(density=0.9)] if step["malware"][host] else [Space(density=0.1)])
        hosts["Op_Server0"].services = {"OTService": {"active": True, "process": 1 if step["flags"][1] else None}}
        self.state.hosts, self.state.sessions = hosts, {"Red": shells, "Blue": {0: Space(sus_pids=self.noted)}}
        self.success = {"Red": Trinary(int(step["red_success"])), "Blue": Trinary(int(step["blue_success"]))}
        self.action = self._action(step)
        known = [members(int(mask), 13) for mask in step["red_known"]]
        self.known = {
            "ip_address": {address_of(host): host in known[0] for host in range(13)},
            "hostname": {name: host in known[1] for host, name in enumerate(HOSTS)},
            "subnet": {self.networks[name]: i in known[2] for i, name in enumerate(SUBNETS)},
        }
        self.known["ip_address"][IPv4Address("127.0.0.1")] = True
        self.known["subnet"][IPv4Network("127.0.0.0/8")] = True
        mind = [members(int(mask), 13) for mask in step["red_agent"][1:]]
        self.agent.action = int(step["red_agent"][0])
        self.agent.scanned_ips, self.agent.exploited_ips = ([address_of(h) for h in some] for some in mind[:2])
        self.agent.escalated_hosts = [HOSTS[host] for host in mind[2]]
        self.agent.scanned_subnets = [self.networks[SUBNETS[i]] for i in mind[3]]

    def _set_up_decoys(self, host: int, mask: int, blue: int, t: int) -> None:
        """Processes stay for as long as their decoy does; each that works is one more, even of a kind that is there."""
        self.decoys[host] = {pid: kind for pid, kind in self.decoys[host].items() if mask >> kind & 1}
        for kind in set(members(mask, 8)) - set(self.decoys[host].values()):
            self.decoys[host][4000 + 10 * t + kind] = kind

    def _action(self, step: np.void) -> Any:
        kind, target = int(step["red_type"]), int(step["red_target"])
        names = ("Sleep", "DiscoverRemoteSystems", "DiscoverNetworkServices", "ExploitRemoteService",
                 "PrivilegeEscalate", "Impact")  # fmt: skip
        action = type(names[kind], (), {})()
        if kind == 1:
            action.subnet = self.networks[SUBNETS[target]]
        elif kind in (2, 3):
            action.ip_address = address_of(target)
            exploit = int(step["red_exploit"])
            if kind == 3:
                action.sub_action = None if exploit < 0 else type(EXPLOITS[exploit], (), {})()
        elif kind in (4, 5):
            action.hostname = HOSTS[target]
        return action


class Host:
    """A host with processes and files."""

    def __init__(self, name: str, processes: list[Process], files: list[Any]) -> None:
        self.hostname, self.processes, self.files, self.services = name, processes, files, {}

    def get_process(self, pid: int) -> Process | None:
        return next((process for process in self.processes if process.pid == pid), None)


class Process:
    """A process, perhaps a decoy."""

    def __init__(self, pid: int, user: str, decoy: bool = False) -> None:
        self.pid, self.user, self.decoy_type = pid, user, enum.Flag("DecoyType", "ESCALATE EXPLOIT")(2 if decoy else 0)


def members(mask: int, count: int) -> list[int]:
    """Of a set of bits."""
    return [i for i in range(count) if mask >> i & 1]


def forget_imports() -> None:
    """Neither CybORG nor gym has been imported."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("CybORG", "gym")]:
        del sys.modules[name]


def install(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, Path], root: Path, *, rules: str = "26ce1c1"
) -> list[Any]:
    """Put the package into sys.modules; files maps agent classes to recordings. Returns a journal."""
    journal: list[Any] = []
    package, agents, wrappers = (types.ModuleType(n) for n in ("CybORG", "CybORG.Agents", "CybORG.Agents.Wrappers"))
    simulator, session = (types.ModuleType(n) for n in ("CybORG.Simulator", "CybORG.Simulator.Session"))
    methods = {"clearports": lambda self, address: None} if rules == "26ce1c1" else {}
    session.RedAbstractSession = type("RedAbstractSession", (), methods)  # type: ignore[attr-defined]
    package.__file__ = str(root / "CybORG" / "__init__.py")
    scenario = root / "CybORG" / "Shared" / "Scenarios" / "Scenario2.yaml"
    scenario.parent.mkdir(parents=True, exist_ok=True)
    scenario.touch()

    class CybORG:
        def __init__(self, path: str, mode: str, agents: dict[str, type]) -> None:
            assert mode == "sim"
            assert Path(path) == root / "CybORG" / "Shared" / "Scenarios" / "Scenario2.yaml"
            self.recorded = load(files[agents["Red"].__name__])
            self.inside = Inside(agents["Red"].__name__)
            self.environment_controller = self.inside.controller
            journal.append(("construct", agents["Red"].__name__, random.random(), np.random.rand()))  # noqa: NPY002

        def get_last_action(self, agent: str) -> Any:
            assert agent == "Red"
            return self.inside.action

        def get_observation(self, agent: str) -> dict[str, Any]:
            return {"success": self.inside.success[agent]}

        def get_action_space(self, agent: str) -> dict[str, Any]:
            assert agent == "Red"
            return self.inside.known

    class ChallengeWrapper:
        def __init__(self, env: CybORG, agent_name: str) -> None:
            assert agent_name == "Blue"
            self.recorded, self.episode, self.t = env.recorded, -1, 0
            self.inside = env.inside

        def reset(self) -> np.ndarray:
            self.episode += 1
            self.t = 0
            self.inside.reset()
            journal.append(("reset", self.episode, random.random(), np.random.rand()))  # noqa: NPY002
            return np.zeros(52, np.int64)

        def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
            record = self.recorded[self.episode, self.t]
            assert isinstance(action, int)
            assert action == record["blue_action"]
            self.t += 1
            self.inside.become(record, self.t)
            return record["obs"].astype(np.int64), float(record["reward"]), False, {}

    for name in ("B_lineAgent", "RedMeanderAgent", "SleepAgent"):
        setattr(agents, name, type(name, (), {}))
    package.CybORG = CybORG  # type: ignore[attr-defined]
    wrappers.ChallengeWrapper = ChallengeWrapper  # type: ignore[attr-defined]
    for module in (package, agents, wrappers, simulator, session):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return journal
