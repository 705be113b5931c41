"""What a comparison knows of a run: a few figures and its learning curve, as plain data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal.core.records import record
from shoal.runs import provenance, scores
from shoal.runs.disk import read_json
from shoal.runs.folder import Run
from shoal.runs.settings import settings
from shoal.runs.words import finite

MOST_POINTS = 2_000
RETURN = "return/mean_100"
NOISE = ("noise/variance", "noise/signal")
# Options that change neither what is learnt nor from what.
BESIDE = {
    *("seed", "name", "runs_dir", "save_interval", "keep", "log_interval", "track", "on_save_error", "noise_meter"),
    *("wandb_project", "wandb_entity", "wandb_group", "wandb_tags", "step_timeout", "build_timeout"),
}
AXES = ("steps", "updates", "seconds")


@dataclass(frozen=True)
class Curve:
    """Mean training return of the last 100 episodes, against three axes."""

    steps: list[int] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)  # gradient steps
    seconds: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        counts = {name: len(getattr(self, name)) for name in (*AXES, "returns")}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} {name}" for name, count in counts.items())
            raise ValueError(f"expected as many of each in a curve, got {told}")

    def axis(self, name: str) -> list[float]:
        """Steps, updates or seconds."""
        found: list[float] = getattr(self, name)
        return found


@dataclass(frozen=True)
class RunFacts:
    """One run of a comparison."""

    arm: str
    seed: int
    run: str
    status: str  # finished, or how else it ended
    reason: str
    settings: str  # hash of the options that what is learnt depends on
    code: str
    machine: str
    num_envs: int
    final: float | None  # held-out mean return, most probable actions
    sampled: float | None  # with sampled actions, as in training
    training: float | None  # of the last 100 training episodes
    steps: int
    updates: float
    seconds: float
    noise: float | None  # gradient noise scale over the whole run, in environments
    curve: Curve

    def __post_init__(self) -> None:
        for name in (*AXES, "num_envs"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} of at least 0, got {getattr(self, name)}")
        if self.noise is not None and self.noise <= 0:
            raise ValueError(f"expected noise above 0, got {self.noise}")

    @property
    def whole(self) -> bool:
        """It came to its end, and all of its figures are numbers."""
        return self.status == "finished" and self.final is not None and math.isfinite(self.final)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any], where: str = "what is known of a run") -> RunFacts:
        return record(RunFacts, data, where)


def facts_of(run: Run, arm: str, seed: int, code: str | None = None, failure: str | None = None) -> RunFacts:
    """Of a run folder as it stands. `failure`: why it came to nothing, where its folder does not say so."""
    config, rows = settings(run), run.metrics()
    status = run.status if failure is None else "failed"
    found = scores.part(scores.kept(run), scores.HELD_OUT)
    last = rows[-1] if rows else {}
    curve, updates = _curve(rows)
    return RunFacts(
        arm=arm,
        seed=seed,
        run=run.name,
        status=status,
        reason=failure or run.status_message,
        settings=settings_hash(config, read_json(run.path / "code.json").get("data")),
        code=code or code_of(run),
        machine=machine_of(run),
        num_envs=config["vector"]["num_envs"],
        final=finite(found.get("mean")),
        sampled=finite(scores.part(found, "sampled").get("mean")),
        training=finite(last.get(RETURN)),
        steps=int(finite(last.get("steps")) or 0),
        updates=updates,
        seconds=finite(last.get("time/elapsed_s")) or 0.0,
        noise=_noise(rows),
        curve=curve,
    )


def settings_hash(config: Mapping[str, Any], data: Any = None) -> str:
    """Of what a run learnt with, its seed apart: options, and the files that they name."""
    groups = {name: dict(part) if isinstance(part, dict) else part for name, part in config.items()}
    for group in (groups, *(part for part in groups.values() if isinstance(part, dict))):
        for name in BESIDE & set(group):
            del group[name]
    if data:
        groups["data"] = data
    return hashlib.sha256(json.dumps(groups, sort_keys=True).encode()).hexdigest()[:16]


def flat(config: Mapping[str, Any], but: Collection[str] = ()) -> dict[str, Any]:
    """The options of all groups side by side."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= value if isinstance(value, dict) else {name: value}
    return {name: value for name, value in found.items() if name not in but}


def code_of(run: Run) -> str:
    """Version and commit that a run was made with, as its folder says."""
    code = read_json(run.path / "code.json")
    commit = str(code.get("commit") or "")[:12]
    return (
        f"shoal {code.get('shoal')}"
        + (f", commit {commit}" if commit else "")
        + (f" changed {code.get('source') or ''}".rstrip() if code.get("dirty") else "")
    )


def source_digest() -> str:
    """Of the code that runs now: every file of shoal, data included, and the versions of what it learns with."""
    packages = json.dumps(provenance.machine()["packages"], sort_keys=True)
    return hashlib.sha256((packages + provenance.source()).encode()).hexdigest()[:16]


def machine_of(run: Run) -> str:
    """The machine in a few words: what seconds depend on."""
    machine = read_json(run.path / "machine.json")
    return f"{machine.get('cpu')}, {machine.get('cores_usable')} cores"


def read_facts(path: Path) -> RunFacts | None:
    """Stored facts, or None where there are none yet."""
    return RunFacts.from_json(read_json(path), str(path)) if path.exists() else None


def _curve(rows: list[dict[str, Any]]) -> tuple[Curve, float]:
    """The learning curve, and how many gradient steps there were in all."""
    curve, updates = Curve(), 0.0
    stride = max(1, math.ceil(len(rows) / MOST_POINTS))
    for place, row in enumerate(rows):
        updates += finite(row.get("optim/gradient_steps")) or 0.0
        value, steps = finite(row.get(RETURN)), finite(row.get("steps"))
        if value is None or steps is None or (place % stride and place + 1 < len(rows)):
            continue
        curve.steps.append(int(steps))
        curve.updates.append(updates)
        curve.seconds.append(finite(row.get("time/elapsed_s")) or 0.0)
        curve.returns.append(value)
    return curve, updates


def _noise(rows: list[dict[str, Any]]) -> float | None:
    """Mean variance over mean signal; None where the signal could not be told from 0. The mean of the rows' own ratios
    would leave out those with the most noise."""
    variance, signal = (math.fsum(value for row in rows if (value := finite(row.get(name)))) for name in NOISE)
    return variance / signal if variance > 0 and signal > 0 else None
