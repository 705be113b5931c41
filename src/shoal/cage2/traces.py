"""Recordings of the real CybORG (docs/cage2-recordings.md): one step as a record, reading files, a step in words."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cage2.simulator.network import (
    BELIEFS,
    DECOYS,
    DISCOVER,
    EXPLOITS,
    HOSTS,
    NUM_ACTIONS,
    NUM_HOSTS,
    PORTS,
    RED_ACTIONS,
    RED_SLEEP,
    SUBNETS,
    action_name,
)

# One step of a recording, as read and as predicted.
STEP = np.dtype(
    [
        ("blue_action", np.uint8),
        ("blue_success", np.uint8),
        ("red_type", np.int8),
        ("red_target", np.int8),
        ("red_exploit", np.int8),
        ("red_success", np.uint8),
        ("detected", np.uint8),
        ("obs", np.uint8, (52,)),
        ("reward", np.float32),
        ("access", np.uint8, (NUM_HOSTS,)),
        ("n_removable", np.uint8, (NUM_HOSTS,)),
        ("decoys", np.uint8, (NUM_HOSTS,)),
        ("malware", np.uint8, (NUM_HOSTS,)),
        ("red_ports", np.uint16, (NUM_HOSTS,)),
        ("flags", np.uint8, (3,)),
        ("red_known", np.int16, (3,)),
        ("red_agent", np.int16, (5,)),
    ],
    align=True,
)
# Fed to the simulator; a wrong one shows as a choice that the agent could not have made.
FED = ("blue_action", "red_type", "red_target", "red_exploit")
COMPARED = tuple(name for name in STEP.names or () if name not in FED)
FLAGS = ("ot_running", "ot_killable", "ot_known")
LIMITS = {
    "blue_action": (0, NUM_ACTIONS - 1),
    "red_type": (0, len(RED_ACTIONS) - 1),
    "red_target": (-1, NUM_HOSTS - 1),
    "red_exploit": (-1, len(EXPLOITS) - 1),
    "detected": (0, 1),
}


class TraceError(ValueError):
    """A file that is not a recording in the format of docs/cage2-recordings.md; says which field and what to do."""


def load(path: str | Path) -> np.ndarray:
    """Read a recording: STEP[episode, step]. A TraceError names the field, the expected and the got."""
    if Path(path).is_file() and not zipfile.is_zipfile(path):
        raise TraceError(f"{path}: expected a recording (.npz, docs/cage2-recordings.md), got a file of another kind")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise TraceError(
            f"{path}: no such file. Give the path of a recording (.npz, docs/cage2-recordings.md)."
        ) from None
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        why = "it holds Python objects" if "pickle" in str(error) else error  # NumPy would advise to load them
        raise TraceError(
            f"{path}: not a readable .npz of plain arrays ({why}). Record it with numpy.savez_compressed."
        ) from None
    cure = "Record it again with every field of docs/cage2-recordings.md."
    missing = [name for name in STEP.names or () if name not in arrays]
    if missing:
        raise TraceError(f"{path}: field {missing[0]!r} is missing (in all: {', '.join(missing)}). {cure}")
    lead = arrays["blue_action"].shape
    if len(lead) != 2 or 0 in lead:
        raise TraceError(f"{path}: field 'blue_action' has shape {lead}, expected (episodes, steps). {cure}")
    recorded = np.zeros(lead, STEP)
    for name in STEP.names or ():
        recorded[name] = _checked(path, name, arrays[name], lead, cure)
    _check_targets(path, recorded, cure)
    if "obs0" in arrays and (arrays["obs0"].shape != (lead[0], 1, 52) or arrays["obs0"].any()):
        raise TraceError(
            f"{path}: field 'obs0' is the reset observation, expected all zero of shape {(lead[0], 1, 52)}, "
            f"got shape {arrays['obs0'].shape}. {cure}"
        )
    return recorded


def _checked(path: str | Path, name: str, values: np.ndarray, lead: tuple[int, ...], cure: str) -> np.ndarray:
    """A field of the right shape and kind whose values fit its type, or a TraceError."""
    wanted = STEP[name]
    shape = (*lead, *wanted.shape)
    if values.shape != shape:
        raise TraceError(f"{path}: field {name!r} has shape {values.shape}, expected {shape}. {cure}")
    number = "f" if wanted.base.kind == "f" else "iub"
    if values.dtype.kind not in number:
        raise TraceError(f"{path}: field {name!r} has dtype {values.dtype}, expected {wanted.base}. {cure}")
    if number == "f":
        if not np.isfinite(values).all():
            raise TraceError(f"{path}: field {name!r} holds NaN or infinity, expected finite numbers. {cure}")
        return values
    limits = np.iinfo(wanted.base)
    low, high = LIMITS.get(name, (int(limits.min), int(limits.max)))
    if int(values.min()) < low or int(values.max()) > high:
        raise TraceError(f"{path}: field {name!r} holds {values.min()}..{values.max()}, expected {low}..{high}. {cure}")
    return values


def _check_targets(path: str | Path, recorded: np.ndarray, cure: str) -> None:
    """A red that acts has a target, a subnet for DISCOVER."""
    kinds, targets = recorded["red_type"], recorded["red_target"]
    highest = np.where(kinds == DISCOVER, len(SUBNETS) - 1, NUM_HOSTS - 1)
    wrong = (kinds != RED_SLEEP) & ((targets < 0) | (targets > highest))
    if wrong.any():
        episode, step = (int(i) for i in np.argwhere(wrong)[0])
        kind = RED_ACTIONS[kinds[episode, step]]
        raise TraceError(
            f"{path}: field 'red_target' is {targets[episode, step]} for {kind} at episode {episode}, "
            f"step {step}, expected 0..{highest[episode, step]}. {cure}"
        )


def describe(record: np.void) -> dict[str, Any]:
    """One step of a recording or prediction in words, field by field, hosts by name."""

    def hosts(values: Any) -> dict[str, int]:
        return {HOSTS[h]: int(v) for h, v in enumerate(values) if v}

    def members(mask: int, names: Iterable[Any]) -> list[Any]:
        return [name for i, name in enumerate(names) if int(mask) >> i & 1]

    bits = record["obs"].reshape(NUM_HOSTS, 4)
    subnet = record["red_type"] == 1
    target = int(record["red_target"])
    return {
        "blue_action": action_name(int(record["blue_action"])),
        "blue_success": int(record["blue_success"]),
        "red_action": RED_ACTIONS[int(record["red_type"])],
        "red_target": None if target < 0 else (SUBNETS[target] if subnet and target < 3 else HOSTS[target]),
        "red_exploit": None if record["red_exploit"] < 0 else EXPLOITS[int(record["red_exploit"])],
        "red_success": int(record["red_success"]),
        "detected": int(record["detected"]),
        "activity": {HOSTS[h]: ("scan", "exploit")[int(b[1])] for h, b in enumerate(bits) if b[0] or b[1]},
        "belief": {HOSTS[h]: BELIEFS[int(b[2] + 2 * b[3])] for h, b in enumerate(bits) if b[2] or b[3]},
        "reward": round(float(record["reward"]), 1),
        "access": hosts(record["access"]),
        "removable": hosts(record["n_removable"] > 0),
        "decoys": {HOSTS[h]: members(mask, DECOYS) for h, mask in enumerate(record["decoys"]) if mask},
        "malware": hosts(record["malware"]),
        "red_ports": {HOSTS[h]: members(mask, PORTS) for h, mask in enumerate(record["red_ports"]) if mask},
        "flags": {name: int(v) for name, v in zip(FLAGS, record["flags"], strict=True)},
        "known_addresses": members(record["red_known"][0], HOSTS),
        "known_hostnames": members(record["red_known"][1], HOSTS),
        "known_subnets": members(record["red_known"][2], SUBNETS),
        "bline_k": int(record["red_agent"][0]),
        "scanned_hosts": members(record["red_agent"][1], HOSTS),
        "exploited": members(record["red_agent"][2], HOSTS),
        "escalated": members(record["red_agent"][3], HOSTS),
        "scanned_subnets": members(record["red_agent"][4], SUBNETS),
    }
