"""`shoal cage2 ...`: functions that return data; the command line prints them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from shoal.cage2 import leaderboard
from shoal.cage2 import narrate as view
from shoal.cage2.defenders import play as contest
from shoal.cage2.replay import replay as replay_files
from shoal.cage2.simulator.network import FINAL_RULES, RULES, RULES_BY_NAME, is_final
from shoal.cage2.simulator.red_agents import REDS

Act = Callable[[Any, np.ndarray], np.ndarray]
Say = Callable[[str], None]
SCRIPTED = ("decoy-first", "d2", "react-restore", "random", "sleep")  # rows of a leaderboard
PROGRESS_S = 5.0  # between two lines


def replay(files: Iterable[str | Path], rules: str = "present") -> dict[str, Any]:
    """Replay recordings of the real CybORG: steps, mismatches by field, the first one with both states."""
    return {**asdict(replay_files(files, rules)), "rules": RULES_BY_NAME[rules]}


def replay_lines(report: dict[str, Any]) -> list[str]:
    """The report of `replay` for people."""
    lines = [
        f"{name}: {found['steps']} steps, red {found['red']}, {found['mismatches']} mismatches"
        for name, found in report["files"].items()
    ]
    rules = f"{report['rules']} ({_RULES_ARE[report['rules']]})"
    lines.append(f"total: {report['steps']} steps, {report['mismatches']} mismatches under the rules {rules}")
    lines += [f"  {field}: {count} steps" for field, count in report["by_field"].items()]
    first = report["first"]
    if first is not None:
        lines.append(f"first mismatch: {first['file']}, episode {first['episode']}, step {first['step']}")
        lines.append(f"  fields: {', '.join(first['fields'])}")
        for name, value in first["recorded"].items():
            simulated = first["simulated"][name]
            lines.append(f"  {' ' if value == simulated else '!'} {name}: recorded {value}, simulated {simulated}")
    return lines


def record(file: str | Path, act: Act | str, say: Say, *, episodes: int, **options: Any) -> dict[str, Any]:
    """Record episodes of the installed CybORG and replay them under its rules."""
    from shoal.cage2 import cyborg_record

    progress = _Progress(episodes, say)
    arrays = cyborg_record.record(act, episodes=episodes, played=progress, **options)
    cyborg_record.write(file, arrays)
    rules = next(name for name, named in RULES_BY_NAME.items() if named == str(arrays["rules"]))
    return replay([file], rules)


def play(act: Act | str, *, simulator: str = "shoal", rules: str | None = None, **options: Any) -> dict[str, Any]:
    """One episode in words and as picture data (None in CybORG, which shows Blue's side only); `act` and `options` as
    in `view.record`."""
    where = {"rules": rules_of(simulator, rules), "simulator": simulator}
    if simulator == "cyborg":
        from shoal.cage2.cyborg_view import record

        return {**where, **record(act, **options), "picture": None}
    episode = view.record(act, rules=rules or "present", **options)
    return {
        **where,
        "red": episode.red,
        "total": episode.total,
        "lines": view.in_words(episode),
        "picture": view.picture(episode),
    }


def score(
    defender: str,
    episodes: int = 4000,
    seed: int = 0,
    *,
    simulator: str = "shoal",
    rules: str | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """A scripted defender's nine cells and sum, beside the published rows."""
    contest.number_of(defender)  # refuses a wrong name here
    if simulator == "cyborg":
        return score_policy(defender, episodes, seed, simulator=simulator, rules=rules, say=say)
    named = rules_of(simulator, rules)
    found = leaderboard.summarise(_scripted(defender, episodes, seed, named), named)
    return {**found, "scripted": scripted(episodes, seed, named, but=defender)}


def score_policy(
    act: Act | str,
    episodes: int = 4000,
    seed: int = 0,
    *,
    simulator: str = "shoal",
    rules: str | None = None,
    say: Say | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The same for any policy; `act` and `options` as in `leaderboard.rollout`. `say` hears how far it is."""
    named = rules_of(simulator, rules)
    progress = _Progress(len(REDS) * episodes, say or (lambda text: None))
    returns = {
        red: leaderboard.rollout(act, red, episodes, seed, simulator=simulator, rules=rules, played=progress, **options)
        for red in REDS
    }
    found = leaderboard.summarise(returns, named, simulator)
    return {**found, "scripted": scripted(episodes, seed, named)}


def _scripted(name: str, episodes: int, seed: int, rules: str) -> dict[str, np.ndarray]:
    """Returns of a scripted defender in the compiled simulator, by red agent."""
    by_name = "final" if rules == FINAL_RULES else "present"
    return {red: contest.play(name, red, episodes, seed, rules=by_name) for red in REDS}


def scripted(episodes: int, seed: int, rules: str = RULES, but: str = "") -> list[dict[str, Any]]:
    """Sums of the scripted defenders on as many episodes of the compiled simulator, for comparison."""
    rows = []
    for name in SCRIPTED:
        if name != but:
            found = leaderboard.summarise(_scripted(name, episodes, seed, rules), rules)
            rows.append({"name": name, "sum": found["sum"]["mean"], "rules": rules, "simulator": "shoal"})
    return rows


def rules_of(simulator: str, rules: str | None = None) -> str:
    """The rules by which a simulator plays; of CybORG, those of the one that is installed, whatever is asked for."""
    if rules is not None:
        is_final(rules)  # refuses a wrong name
    if simulator == "shoal":
        return RULES_BY_NAME[rules or "present"]
    if simulator == "cyborg":
        from shoal.cage2.cyborg import installed_rules

        found = installed_rules()
        if rules is not None and found != RULES_BY_NAME[rules]:
            raise ValueError(f"rules: expected none or those of the CybORG that is installed, {found}; got {rules!r}")
        return found
    raise ValueError(f"simulator: expected shoal or cyborg, got {simulator!r}")


def where_line(rules: str, simulator: str) -> str:
    """Rules and simulator, which every printed score names.

    >>> where_line(RULES, "shoal")
    'rules: cage-challenge-2@26ce1c1, Scenario2 (present); simulator: shoal, compiled'
    """
    return f"rules: {rules} ({_RULES_ARE[rules]}); simulator: {leaderboard.SIMULATORS[simulator]}"


def lines(name: str, result: dict[str, Any]) -> list[str]:
    """The challenge's table for people. Only scores under the same rules are ranked together."""
    out = [
        where_line(result["rules"], result["simulator"]),
        f"{'red':<9}{'steps':>6}{'mean':>9}  {'95 % interval':^20}{'median':>8}{'5 %':>9}{'worst':>9}",
    ]
    for cell in result["cells"]:
        bounds = f"[{cell['low']:.2f}, {cell['high']:.2f}]"
        out.append(
            f"{cell['red']:<9}{cell['horizon']:>6}{cell['mean']:>9.2f}  {bounds:^20}"
            f"{cell['median']:>8.1f}{cell['q05']:>9.1f}{cell['worst']:>9.1f}"
        )
    total, rules = result["sum"], result["rules"]
    out += ["", f"sum of the nine means {total['mean']:.2f}, 95 % interval [{total['low']:.2f}, {total['high']:.2f}]"]
    ranked = [{"name": f"-> {name}", "sum": total["mean"], "source": ""}]
    ranked += [{**row, "name": f"{row['name']} (scripted)", "source": ""} for row in result["scripted"]]
    ranked += [row for row in result["published"] if row["rules"] == rules]
    out += ["", f"under these rules ({rules}):"]
    out += [_row(row) for row in sorted(ranked, key=lambda row: -row["sum"])]
    others = [row for row in result["published"] if row["rules"] != rules]
    for other in sorted({row["rules"] for row in others}):
        out += ["", f"published under other rules, not comparable ({other}, {_RULES_ARE[other]}; docs/cage2-rules.md):"]
        out += [_row(row) for row in others if row["rules"] == other]
    out += ["", "for the record:", *(_row(row) for row in result["cited"])]
    return out


def _row(row: dict[str, Any]) -> str:
    source = f"  {row['source']}" if row["source"] else ""
    return f"{row['sum']:>9.2f}  {row['name']}{source}"


_RULES_ARE = {RULES: "present", FINAL_RULES: "the final leaderboard of August 2022"}


class _Progress:
    """Says every few seconds how far a long evaluation is."""

    def __init__(self, total: int, say: Say) -> None:
        self.total, self.say, self.done = total, say, 0
        self.began = self.said = time.monotonic()

    def __call__(self, episodes: int) -> None:
        self.done += episodes
        now = time.monotonic()
        if now - self.said >= PROGRESS_S:
            self.said = now
            left_s = (now - self.began) / self.done * (self.total - self.done)
            self.say(f"{self.done:,} of {self.total:,} episodes, {left_s / 60:.1f} min left")
