"""A trained run as an agent that CAGE Challenge 2's own evaluation can import: one Python file and its weights.

The file needs Python 3.8 and NumPy. What it remembers, sees and may do are the functions that the run was trained with:
their source is copied into it, with the tables that they read, so there is no second version to keep equal.
"""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cage2.defender import cage2_policy
from shoal.cage2.simulator import memory, network
from shoal.cage2.workflows import ordered, orders, suspicion
from shoal.learn.deploy import DeployedPolicy
from shoal.learn.networks import ActorCritic
from shoal.runs.disk import replace_atomically
from shoal.tasks.networks import load_policy

AGENT, WEIGHTS, README = "agent.py", "weights.npz", "README.txt"
ACTIVATIONS = ("relu", "tanh")
_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    memory.forget, memory.remember_bits, memory.write_features, memory.write_useful, suspicion.begin_watch,
    suspicion.watch, suspicion.due_set, ordered.write_order, ordered.write_suspicion, ordered.forbid_others,
)  # fmt: skip
_NUMBERS = {
    "NUM_BITS": network.NUM_BITS,
    "NUM_ACTIONS": network.NUM_ACTIONS,
    "AT_ORDER": ordered.AT_ORDER,
    "AT_PLAIN_ORDER": ordered.AT_PLAIN_ORDER,
}


def export(
    run: str | Path,
    folder: str | Path,
    *,
    order: str | None = None,
    checkpoint: str | int | None = None,
    runs_dir: str | Path = "runs",
) -> dict[str, Any]:
    """Write the agent of a run into a new folder. `order`: the one to keep to, of a run that learnt to keep to any."""
    policy = load_policy(run, runs_dir=runs_dir, checkpoint=checkpoint)
    cage2_policy(run, runs_dir, checkpoint=checkpoint)  # refuses a run of another task
    options = _options(policy, order)
    weights = _weights(policy)
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path}: expected a folder that does not exist or is empty, got a file: choose another")
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path}: expected a folder that does not exist or is empty, got one with files in it")
    path.mkdir(parents=True, exist_ok=True)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **weights)
    replace_atomically(path / AGENT, source(options).encode())
    replace_atomically(path / WEIGHTS, packed.getvalue())
    told = {"run": Path(str(run)).name, "epoch": policy.epoch, **options}
    replace_atomically(path / README, _README.format(what=json.dumps(told)).encode())
    return {"agent": str(path), "class": "Agent", "parameters": sum(array.size for array in weights.values()), **told}


def _options(policy: DeployedPolicy, order: str | None) -> dict[str, Any]:
    """How the run sees the network, as plain values."""
    given = json.loads(policy.config.env_kwargs)
    kept = str(given.get("order", "none"))
    if kept == "drawn" and order is None:
        raise ValueError("--order: expected one of the 120 orders, since this run learnt to keep to any; got none")
    if kept == "none" and order is not None:
        raise ValueError(f"--order: expected none, since this run was trained without one; got {order!r}")
    if kept not in ("none", "drawn") and order is not None and orders.number_of(order) != orders.number_of(kept):
        raise ValueError(f"--order: expected {kept}, which this run was trained for; got {order!r}")
    chosen = order or kept
    return {
        "remembers": given.get("features", "memory") == "memory",
        "mask": given.get("mask", "useful"),
        "order": -1 if chosen == "none" else orders.number_of(chosen),
    }


def _weights(policy: DeployedPolicy) -> dict[str, np.ndarray]:
    """The layers of the policy, float32."""
    found = policy.agent.network
    config = policy.config.ppo
    if not isinstance(found, ActorCritic) or not found.is_plain() or policy.recipe:
        raise ValueError(
            "expected a run with shoal's own perceptron (--encoder flat, nothing done to its observations), got "
            f"{type(found).__name__}: an agent for NumPy can be written of that alone"
        )
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"expected --activation {' or '.join(ACTIVATIONS)}, got {config.activation}")
    layers = [*found.trunk.linears, found.policy_head]
    arrays: dict[str, np.ndarray] = {"tanh": np.array(config.activation == "tanh")}
    for place, layer in enumerate(layers):
        arrays[f"weight{place}"] = layer.weight.detach().cpu().numpy()
        arrays[f"bias{place}"] = layer.bias.detach().cpu().numpy()
    if policy.agent.moments is not None:
        arrays["mean"] = policy.agent.moments.mean.astype(np.float32)
        arrays["scale"] = policy.agent.moments.scale.astype(np.float32)
    return arrays


def source(options: dict[str, Any]) -> str:
    """The agent's file: constants and functions as they stand in shoal, and the class."""
    functions: dict[str, str] = {}
    constants: dict[str, str] = {}
    for function in _FUNCTIONS:
        _collect(function, functions, constants)
    for name, number in _NUMBERS.items():
        constants[name] = repr(int(number))
    for name, record in (("MEMORY", memory.MEMORY), ("WATCH", suspicion.WATCH)):
        constants[name] = f"np.dtype({_fields(record)}, align=True)"
    width = ordered.ORDERED_FEATURES if options["order"] >= 0 else memory.MEMORY_FEATURES
    if not options["remembers"]:
        width = network.NUM_BITS + (orders.NUM_PAIRS if options["order"] >= 0 else 0)
    own = {"REMEMBERS": options["remembers"], "MASK": options["mask"], "ORDER": options["order"], "WIDTH": int(width)}
    constants |= {name: repr(value) for name, value in own.items()}
    lines = "\n".join(f"{name} = {value}" for name, value in sorted(constants.items()))
    return "\n\n".join([_HEAD, lines, *functions.values(), _CLASS])


def _collect(function: Callable[..., Any], functions: dict[str, str], constants: dict[str, str]) -> None:
    """The source of a function, of those that it calls, and the constants that they read."""
    if function.__name__ in functions:
        return
    functions[function.__name__] = inspect.getsource(function)
    for name, value in inspect.getclosurevars(function).globals.items():
        if inspect.isfunction(value):
            _collect(value, functions, constants)
        elif isinstance(value, int | np.integer):
            constants[name] = repr(int(value))
        elif isinstance(value, np.ndarray):
            constants[name] = f"np.array({value.tolist()}, np.{value.dtype})"
        else:
            raise TypeError(f"{function.__name__} reads {name}, a {type(value).__name__}: an agent cannot hold it")


def _fields(record: np.dtype[Any]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for name in record.names or ():
        kind = record[name]
        base = kind.base.str
        found.append((name, base, kind.shape) if kind.shape else (name, base))
    return found


def exported_lines(found: dict[str, Any]) -> Iterable[str]:
    """For people."""
    return (
        f"agent    {found['agent']} (epoch {found['epoch']}, {found['parameters']:,} numbers)",
        f"use      from {Path(found['agent']).name}.agent import Agent, where the folder above is on Python's path",
    )


_HEAD = '''"""A defender of CAGE Challenge 2, written by `shoal cage2 export`. It needs NumPy and weights.npz beside it.

    from agent import Agent

    agent = Agent()
    action = agent.get_action(observation, action_space)  # 52 bits of ChallengeWrapper in, 0 to 144 out
    agent.end_episode()  # before the next one
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

try:  # where CybORG is there, the agent is one of its own
    from CybORG.Agents.SimpleAgents.BaseAgent import BaseAgent
except Exception:
    BaseAgent = object
'''

_CLASS = '''class Agent(BaseAgent):
    """The most probable action of the trained policy. It sees the observations and its own actions, nothing else."""

    def __init__(self) -> None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weights.npz")
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        self._tanh = bool(arrays["tanh"])
        count = sum(name.startswith("weight") for name in arrays)
        self._layers = [(arrays["weight%d" % i].T, arrays["bias%d" % i]) for i in range(count)]
        self._mean, self._scale = arrays.get("mean"), arrays.get("scale")
        self._memory = np.zeros(1, MEMORY).view(np.recarray)[0]
        self._watch = np.zeros(1, WATCH).view(np.recarray)[0]
        self._last = -1
        self.end_episode()

    def get_action(self, observation, action_space=None):
        """The action for an observation of the running episode."""
        bits = np.asarray(observation)
        if bits.shape != (NUM_BITS,):
            raise ValueError("expected an observation of %d bits, got shape %s" % (NUM_BITS, bits.shape))
        logits = self.logits(bits.astype(np.uint8))
        self._last = int(logits.argmax())
        return self._last

    def took(self, action):
        """Another action than that of get_action was taken."""
        self._last = int(action)

    def end_episode(self):
        """Forget: the next observation is the first of an episode."""
        forget(self._memory)
        begin_watch(self._watch)
        self._last = -1

    def train(self, results=None):
        """It has learnt."""

    def set_initial_values(self, action_space, observation=None):
        """Nothing to set."""

    def logits(self, bits):
        """float32[145] of the 52 bits that the last action led to; -inf where the mask excludes an action."""
        if self._last >= 0:
            remember_bits(self._memory, bits, self._last)
            watch(self._watch, self._memory, bits)
            self._last = -1
        seen = np.zeros(WIDTH, np.uint8)
        seen[:NUM_BITS] = bits
        due = 0
        if REMEMBERS:
            write_features(self._memory, seen)
        if ORDER >= 0:
            write_order(ORDER, seen, AT_ORDER if REMEMBERS else AT_PLAIN_ORDER)
            due = due_set(ORDER, int(self._watch.suspected))
            if REMEMBERS:
                write_suspicion(int(self._watch.suspected), int(self._watch.doubtful), due, seen)
        row = seen.astype(np.float32)
        if self._mean is not None:
            row = np.clip((row - self._mean) * self._scale, -10.0, 10.0)
        for weight, bias in self._layers[:-1]:
            row = row @ weight + bias
            row = np.tanh(row) if self._tanh else np.maximum(row, 0)
        weight, bias = self._layers[-1]
        out = row @ weight + bias
        if MASK != "none":
            mask = np.zeros(NUM_ACTIONS, np.int8)
            write_useful(self._memory.standing, bits, mask)
            if MASK == "obedient":
                forbid_others(due, mask)
            out = np.where(mask != 0, out, -np.inf)
        return out
'''

_README = """\
An agent for CAGE Challenge 2, written by `shoal cage2 export` from this run:
{what}

agent.py      the agent: Python 3.8 or later, NumPy
weights.npz   its policy (plain arrays, nothing pickled)

In the challenge's CybORG/Evaluation/evaluation.py, with this folder on Python's path:

    from agent import Agent
    agent = Agent()

The observations must be those of ChallengeWrapper(agent_name="Blue"): 52 bits.
"""
