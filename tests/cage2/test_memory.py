"""Memory features: the kernel's and the adapter's are the same function of (observation, own action)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cage2.replay import predict_step, reds_of
from shoal.cage2.simulator.machine import compiled
from shoal.cage2.simulator.memory import (
    FEATURES_VERSION,
    MEMORY,
    MEMORY_FEATURES,
    feature_names,
    forget,
    remember,
    remember_bits,
    write_features,
    write_useful,
)
from shoal.cage2.simulator.network import NUM_ACTIONS, action_name
from shoal.cage2.simulator.step import STATE, start, write_bits
from shoal.cage2.traces import STEP, load


def kernel_features(states: Any, memories: Any, reds: Any, recorded: Any, scratch: Any, out: Any, same: Any) -> None:
    """What the kernel would show along a recording: its true state drives its memory."""
    for episode in range(recorded.shape[0]):
        s, m = states[0], memories[0]
        start(s, reds[episode])
        forget(m)
        for t in range(recorded.shape[1]):
            predict_step(s, recorded[episode, t], scratch[0])
            remember(m, recorded[episode, t].blue_action, s.activity_host, s.activity)
            write_bits(s, out[episode, t])
            write_features(m, out[episode, t])
            for host in range(13):
                same[0] += m.standing[host] == s.decoys[host]


def stream_features(memories: Any, recorded: Any, out: Any) -> None:
    """What the adapter would show: nothing but observations and Blue's own actions."""
    m = memories[0]
    for episode in range(recorded.shape[0]):
        forget(m)
        for t in range(recorded.shape[1]):
            remember_bits(m, recorded[episode, t].obs, recorded[episode, t].blue_action)
            for i in range(52):
                out[episode, t, i] = recorded[episode, t].obs[i]
            write_features(m, out[episode, t])


def test_kernel_and_adapter_agree_on_every_recording(traces: list[Path]) -> None:
    """All 295 bits, step by step, over 110,000 steps; and Blue's own account of its decoys is exact."""
    for path in traces:
        recorded = load(path)
        shape = (*recorded.shape, MEMORY_FEATURES)
        ours, theirs, same = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8), np.zeros(1, np.int64)
        compiled(kernel_features)(
            np.zeros(1, STATE),
            np.zeros(1, MEMORY),
            reds_of(recorded),
            recorded,
            np.zeros(1, STEP),
            ours,
            same,
        )
        compiled(stream_features)(np.zeros(1, MEMORY), recorded, theirs)
        np.testing.assert_array_equal(ours, theirs, err_msg=path.name)
        assert same[0] == 13 * recorded.size
        assert ours.max() == 1


def test_plain_python_gives_the_same_features(data: Path) -> None:
    """The adapter runs the functions uncompiled; one episode of each red agrees with the compiled ones."""
    for name in ("B_line", "Meander"):
        recorded = load(data / f"traces_{name}_heuristic.npz")[:1]
        out = np.zeros((*recorded.shape, MEMORY_FEATURES), np.uint8)
        compiled(stream_features)(np.zeros(1, MEMORY), recorded, out)
        m = np.zeros(1, MEMORY).view(np.recarray)[0]
        forget(m)
        row = np.zeros(MEMORY_FEATURES, np.uint8)
        for t in range(recorded.shape[1]):
            remember_bits(m, recorded["obs"][0, t], int(recorded["blue_action"][0, t]))
            row[:52] = recorded["obs"][0, t]
            write_features(m, row)
            np.testing.assert_array_equal(row, out[0, t])


def test_every_feature_has_one_name() -> None:
    """As many names as features, none twice."""
    names = feature_names()
    assert len(names) == MEMORY_FEATURES == len(set(names))


def test_the_documentation_names_every_feature_in_order() -> None:
    """The table of docs/cage2-features.md is the list in the code, under the same version."""
    text = (Path(__file__).parents[2] / "docs" / "cage2-features.md").read_text()
    assert FEATURES_VERSION in text
    rows = re.findall(r"^\| (\d+) \| (.+?) \|$", text, re.MULTILINE)
    assert [(int(i), name) for i, name in rows] == list(enumerate(feature_names()))


def test_useful_actions_of_a_fresh_network() -> None:
    """At the start: Sleep, Analyse and Restore of 11 hosts, and the 33 decoys that can stand."""
    mask = np.zeros(NUM_ACTIONS, np.int8)
    write_useful(np.zeros(13, np.uint8), np.zeros(52, np.uint8), mask)
    names = [action_name(i) for i in np.flatnonzero(mask)]
    assert len(names) == 1 + 11 + 11 + 33
    assert not [name for name in names if name.endswith((" Defender", " User0")) or name.startswith("Remove")]


def test_useful_actions_follow_what_blue_knows() -> None:
    """A seen shell makes Remove useful; a decoy that stands, and a belief of Privileged, take theirs away."""
    bits, standing = np.zeros(52, np.uint8), np.zeros(13, np.uint8)
    bits[4 * 2 + 3] = 1  # Enterprise1: User
    bits[4 * 3 + 2 : 4 * 3 + 4] = 1  # Enterprise2: Privileged
    standing[1] = 1 << 7  # Vsftpd on Enterprise0
    mask = np.zeros(NUM_ACTIONS, np.int8)
    write_useful(standing, bits, mask)
    names = {action_name(i) for i in np.flatnonzero(mask)}
    assert {"Remove Enterprise1", "Remove Enterprise2", "Analyse Enterprise1"} <= names
    assert not {"Analyse Enterprise2", "DecoyVsftpd Enterprise0", "DecoyApache Enterprise0"} & names
