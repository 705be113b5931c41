"""Replay of recordings of the real CybORG (docs/cage2-recordings.md): feed the choices, compare all other fields.

The recorded Blue action, red action, exploit and detection of a step are given to the same scalar functions
that sampled play runs; everything else of the recording is a prediction to be met. B_line's and Meander's own
choices and memories are checked too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cage2.simulator.blue import blue_act
from shoal.cage2.simulator.machine import compiled
from shoal.cage2.simulator.network import (
    EXPLOIT,
    NUM_HOSTS,
    RED_SLEEP,
    SCAN,
    USER1,
    USER4,
    is_final,
)
from shoal.cage2.simulator.red import exploit_candidates, sessions
from shoal.cage2.simulator.red_agents import (
    BLINE,
    MEANDER,
    SLEEPER,
    bline_advance,
    bline_commit,
    bline_draws,
    meander_commit,
    meander_options,
    meander_settle,
)
from shoal.cage2.simulator.step import STATE, conclude, start, write_bits
from shoal.cage2.traces import COMPARED, STEP, describe, load

SCRIPTED = 3  # a red whose choices come from nowhere but the recording (the fuzz files)
RED_NAMES = ("bline", "meander", "sleep", "scripted")


@dataclass(frozen=True)
class Mismatch:
    """The first step at which the simulator and a recording differ."""

    file: str
    episode: int
    step: int
    fields: tuple[str, ...]
    recorded: dict[str, Any]
    simulated: dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What a replay found. `mismatches` counts steps; `by_field` counts steps per differing field."""

    files: dict[str, dict[str, Any]]
    steps: int
    mismatches: int
    by_field: dict[str, int] = field(default_factory=dict)
    first: Mismatch | None = None


def follow(s: Any, kind: int, target: int) -> Any:
    """Let red's mind follow a recorded choice; returns whether the mind could have made it."""
    if s.red == BLINE:
        bline_advance(s)
        if bline_draws(s) and kind == SCAN and USER1 <= target <= USER4:
            s.entry = target
        bline_commit(s)
        possible = s.red_type == kind and s.red_target == target
    elif s.red == MEANDER:
        meander_settle(s)
        expected, allowed = meander_options(s)
        possible = kind == expected and target >= 0 and allowed >> target & 1 == 1
        if kind != RED_SLEEP and target >= 0:
            meander_commit(s, kind, target)
    else:
        possible = s.red != SLEEPER or kind == RED_SLEEP
    s.red_type = kind
    s.red_target = target
    return possible


def predict_step(s: Any, given: Any, out: Any) -> Any:
    """One step from the recorded choices; writes the prediction, returns whether red could have chosen so."""
    deployed, revealed = blue_act(s, given.blue_action)
    possible = follow(s, given.red_type, given.red_target)
    if s.red != SCRIPTED and given.red_type == EXPLOIT:
        candidates = exploit_candidates(s.red_ports[given.red_target])
        if given.red_exploit < 0:
            possible = possible and candidates == 0
        else:
            possible = possible and candidates >> given.red_exploit & 1 == 1
    cost = conclude(s, deployed, revealed, given.red_exploit, given.detected)
    write_step(s, given.blue_action, cost, out)
    return possible


def write_step(s: Any, action: int, cost: int, out: Any) -> None:
    """The state after a step as a recording would have it."""
    out.blue_action = action
    out.red_type = s.red_type
    out.red_target = s.red_target
    out.red_exploit = s.red_exploit
    out.reward = -cost / 10.0
    out.blue_success = s.blue_success
    out.red_success = s.red_success
    out.detected = s.detected
    write_bits(s, out.obs)
    held = sessions(s)
    for host in range(NUM_HOSTS):
        out.access[host] = 2 if s.privileged >> host & 1 else held >> host & 1
        out.n_removable[host] = s.user_removable >> host & 1
        out.decoys[host] = s.decoys[host]
        out.malware[host] = s.malware >> host & 1
        out.red_ports[host] = s.red_ports[host]
    flags = out["flags"]  # not out.flags: in plain Python every NumPy value has flags of its own
    flags[0] = s.ot_running
    flags[1] = s.ot_killable
    flags[2] = s.ot_known
    out.red_known[0] = s.known_addresses
    out.red_known[1] = s.known_hostnames
    out.red_known[2] = s.known_subnets
    out.red_agent[0] = s.k if s.red == BLINE else -1
    out.red_agent[1] = s.scanned_hosts
    out.red_agent[2] = s.exploited
    out.red_agent[3] = s.escalated
    out.red_agent[4] = s.scanned_subnets


def predict_all(states: Any, reds: Any, final: int, recorded: Any, predicted: Any, possible: Any) -> None:
    """Every step of every episode: recorded, predicted STEP[episode, step], possible uint8[episode, step]."""
    for episode in range(recorded.shape[0]):
        s = states[episode]
        start(s, reds[episode])
        s.final = final
        for t in range(recorded.shape[1]):
            possible[episode, t] = predict_step(s, recorded[episode, t], predicted[episode, t])


def reds_of(recorded: np.ndarray) -> np.ndarray:
    """Which red plays each episode, from what it says of its own mind: int8[episode]."""
    first = recorded["red_agent"][:, 0]
    asleep = (recorded["red_type"] == RED_SLEEP).all(axis=1)
    reds = np.full(len(recorded), SCRIPTED, np.int8)
    reds[asleep] = SLEEPER
    reds[first[:, 4] > 0] = MEANDER
    reds[first[:, 0] >= 0] = BLINE
    return reds


def predict(recorded: np.ndarray, rules: str = "present") -> tuple[np.ndarray, np.ndarray]:
    """What the simulator makes of the recorded choices: (STEP, bool red could choose so)[episode, step]."""
    predicted = np.zeros(recorded.shape, STEP)
    possible = np.zeros(recorded.shape, np.uint8)
    states = np.zeros(len(recorded), STATE)
    compiled(predict_all)(states, reds_of(recorded), is_final(rules), recorded, predicted, possible)
    return predicted, possible.astype(bool)


def differences(recorded: np.ndarray, predicted: np.ndarray, possible: np.ndarray) -> dict[str, np.ndarray]:
    """Where each field differs, by the rules of docs/cage2-recordings.md: bool[episode, step] per field."""
    wrong = {"red_choice": ~possible}
    for name in COMPARED:
        if name == "n_removable":
            # Which of several sessions an escalation uses up is not recorded and cannot matter (docs/cage2-rules.md).
            below_privileged = recorded["access"] < 2
            differs = ((recorded[name] > 0) != (predicted[name] > 0)) & below_privileged
        elif name == "reward":
            differs = np.rint(recorded[name] * 10) != np.rint(predicted[name] * 10)
        else:
            differs = recorded[name] != predicted[name]
        wrong[name] = differs.reshape(*recorded.shape, -1).any(axis=2)
    return wrong


def replay(files: Iterable[str | Path], rules: str = "present") -> Report:
    """Replay recordings under the present or the final rules and report every disagreement.

    >>> replay(["tests/data/cage2/traces_Sleep_sleep.npz"]).mismatches  # doctest: +SKIP
    0
    """
    per_file: dict[str, dict[str, Any]] = {}
    by_field: dict[str, int] = {}
    steps = mismatches = 0
    first: Mismatch | None = None
    for path in files:
        recorded = load(path)
        predicted, possible = predict(recorded, rules)
        wrong = differences(recorded, predicted, possible)
        any_wrong = np.logical_or.reduce(list(wrong.values()))  # bool[episode, step]
        names = sorted({RED_NAMES[red] for red in reds_of(recorded)})
        per_file[str(path)] = {
            "steps": recorded.size,
            "mismatches": int(any_wrong.sum()),
            "red": "+".join(names),
        }
        steps += recorded.size
        mismatches += int(any_wrong.sum())
        for name, differs in wrong.items():
            if differs.any():
                by_field[name] = by_field.get(name, 0) + int(differs.sum())
        if first is None and any_wrong.any():
            episode, step = (int(i) for i in np.argwhere(any_wrong)[0])
            first = Mismatch(
                file=str(path),
                episode=episode,
                step=step,
                fields=tuple(name for name, differs in wrong.items() if differs[episode, step]),
                recorded=describe(recorded[episode, step]),
                simulated=describe(predicted[episode, step]),
            )
    return Report(per_file, steps, mismatches, by_field, first)
