"""Tables of results whose rows alone would leave out the seeds: each is called in a template by its name."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.harness.figures import Results, cells, number, target_of, value_of
from benchmarks.harness.stored import cpu_share
from benchmarks.study import tables as study

NONE = "not measured"


def learned_without_options(results: Results) -> str:
    """default_learning: every seed's return and CPU-seconds, of shoal and of SB3, from the runs themselves."""
    rows = {row.name: row for row in results.rows("default_learning")}
    runs: list[dict[str, Any]] = results.data("default_learning")["runs"]

    def of(who: str, task: str) -> list[dict[str, Any]]:
        found = [run for run in runs if run["who"] == who and run["task"] == task]
        return sorted(found, key=lambda run: int(run["seed"]))

    def each(who: str, task: str, key: str) -> list[float]:
        return [run[key] for run in of(who, task)]

    titles = {name.partition(",")[0]: name for name in rows if ", no flags, " in name}
    returns = [cells("environment", "return", "target", "each seed", "SB3, each seed"), "|---|---|---|---|---|"]
    costs = [
        cells("environment", "CPU-seconds, each seed", "SB3, each seed", "ratio", "target"),
        "|---|---|---|---|---|",
    ]
    for task, title in titles.items():
        wanted = int(re.findall(r"mean of (\d+) seeds", title)[0])
        ours, theirs = each("shoal", task, "mean"), each("sb3", task, "mean")
        row = replace(rows[title], value=_mean_of(ours, wanted))
        few = f" ({len(ours)} of {wanted} seeds)" if 0 < len(ours) < wanted else ""
        digits = 2 if abs(row.target or 0.0) <= 1.0 else 1
        mean = number(statistics.fmean(ours), digits) + few if ours else f"{NONE} (0 of {wanted} seeds)"
        returns.append(cells(task, mean, target_of(row), _listed(ours, digits), _listed(theirs, digits)))
        ours_s, theirs_s = each("shoal", task, "cpu_s"), each("sb3", task, "cpu_s")
        if ours_s and theirs_s:
            share = cpu_share(of("shoal", task), of("sb3", task))
            ratio = replace(
                next(row for name, row in rows.items() if name.startswith(f"{task}: CPU-seconds")),
                value=share.value, note=share.note if share.value is None else "",
            )  # fmt: skip
            fewer = share.value is not None and min(share.ours, share.theirs) < wanted
            few = f" ({share.ours} and {share.theirs} seeds)" if fewer else ""
            told = value_of(ratio, 2) + few, target_of(ratio)
        else:
            told = "", ""
        if ours_s or theirs_s:
            costs.append(cells(task, _listed(ours_s, 0), _listed(theirs_s, 0), *told))
    return "\n".join([*returns, "", *costs])


def credit_study(results: Results) -> str:
    """rides_credit: each way to train, every seed, and the difference from what it is compared with."""
    rows = {row.name: row for row in results.rows("rides_credit")}
    parts: list[dict[str, Any]] = results.data("rides_credit")["parts"]
    lines = [
        cells("training", "minus", "each seed", "its baseline", "difference by PyVRP", "target", "by the own oracle"),
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if not (found := re.match(r"rides, (.*): trained less (.*), net gain a day, by the reference prices", name)):
            continue
        arm, against = found[1], found[2]
        seeds = [part for part in parts if part["name"].startswith(f"{arm} seed ")]
        other = f"{against} seed " if against != arm else "another arm"
        base = [part for part in parts if part["name"] == against or part["name"].startswith(other)]
        own = rows[name.replace("the reference prices", "the own prices")]
        prices = "reference" if seeds and all(part["reference"] for part in [*seeds, *base]) else "own"
        differences = [NONE if one.value is None else value_of(one, 2, sign=True) for one in (row, own)]
        days = min((len(part[prices]) for part in [*seeds, *base]), default=0)  # those that all have been priced on
        nets = [_listed([statistics.fmean(part[prices][:days]) for part in some], 2) for some in (seeds, base)]
        by = " (own oracle)" if seeds and prices == "own" else f" (first {days} days)" if 2 < days < 900 else ""
        lines.append(
            cells(f"`{arm}`", f"`{against}`", nets[0] + by, nets[1], differences[0], target_of(row), differences[1])
        )
    others = [row for name, row in rows.items() if ": trained less " not in name]
    lines += ["", cells("figure", "value", "target"), "|---|---|---|"] if others else []
    lines += [
        cells(
            row.name.removeprefix("rides, ") + (f" ({row.note})" if row.note else ""), value_of(row, 2), target_of(row)
        )
        for row in others
    ]
    return "\n".join(lines)


def credit_bias(results: Results) -> str:
    """credit_branch: what each credit says less what an offer truly gains, and the slope of the one on the other."""
    about = next(iter(results.rows("credit_branch"))).name.partition(": ")[0]
    whole = {row.name.removeprefix(about).removeprefix(": ").removeprefix(", "): row
             for row in results.rows("credit_branch")}  # fmt: skip

    def told(name: str) -> str:
        """`0.68 +- 0.24`"""
        row = whole.get(name)
        if row is None or row.value is None:
            return ""
        return f"{number(row.value, 2)} {row.note.partition(' (95 %)')[0]}"

    def judged(name: str) -> str:
        row = whole[name]
        assert row.value is not None
        return f"{number(row.value, 2)}{', ' + target_of(row).strip() if row.target is not None else ''}".replace(
            " ,", ","
        )

    less = "credit less true gain"
    head = [f"{less}, day with the change", "day without it", "day as played", "slope of the true gain"]
    lines = [
        cells("credit", *head, "with and without apart", "taught's choice less own"),
        "|---|---|---|---|---|---|---|",
    ]
    for share in ("0%", "50%", "100%"):
        name = f"{share} of later riders asked generously"
        days = [told(f"{name}, {day}: {less}") for day in ("day with the change", "day without", "day as played")]
        slope, apart = (
            f"{name}, day as played: slope of the true gain",
            f"{name}: credit with the change apart from without",
        )
        taught = told(f"{share} generous: what the credit says of taught less own")
        lines.append(cells(f"rebuilt, {share} asked generously", *days, judged(slope), judged(apart), taught))
    again = "negotiated again"
    lines.append(
        cells(again, told(f"{again}: {less}"), "the same", "the same", judged(f"{again}: slope of the true gain"), "0",
              told(f"{again}: what the credit says of taught less own"))
    )  # fmt: skip
    for words, name in (("rebuilt twice, 50%, the mean", "50%, mean of two estimates"),
                        ("rebuilt, 50%, a search of three times the length", "50%, 100 pricing iterations"),
                        ("rebuilt, 50%, what two estimates have in common", "50%")):  # fmt: skip
        slope = "slope of the true gain" + (" on what two estimates have in common" if name == "50%" else "")
        if f"{name}: {slope}" in whole:
            day = told(f"{name}: {less}")
            lines.append(cells(words, "", "", day, judged(f"{name}: {slope}"), "", ""))
    gain, taught = told("true gain of the best change"), told("taught less own where they differ")
    lines.append(cells("**truth**", f"gain of the best change: {gain}", "", "", "1", "0", taught))
    return "\n".join(lines)


def orders_kept(results: Results) -> str:
    """workflow_table: what followers and trained defenders score, in the two groups of orders of each attacker."""
    lines = [
        "| red | classes | eager follower | thrifty follower | trained from the thrifty clone, 1,250 episodes | "
        "compliance of training, lowest lower end |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in results.data("workflow_table")["cells"]:
        if cell["start"] == "clone":
            units = cell["order"].split(",")
            first, then = sorted(("enterprise", "user"), key=units.index)
            groups.setdefault((cell["red"], f"{first} before {then}"), []).append(cell)
    for (red, group), cells_of in sorted(groups.items()):
        rewards = {
            player: [cell["players"][player]["reward"]["mean"] for cell in cells_of]
            for player in ("eager", "thrifty", "trained")
        }
        classes = len({cell["order"] for cell in cells_of})
        lowest = min(cell["players"]["trained"]["compliance"]["low"] for cell in cells_of)
        followers = [number(statistics.fmean(rewards[player]), 2) for player in ("eager", "thrifty")]
        trained = spread(results, rewards["trained"], 2)
        lines.append(cells(red, f"{classes} with {group}", *followers, trained, f"{100 * lowest:.2f} %"))
    return "\n".join(lines)


def routed_days(results: Results) -> str:
    """neural_oracle: every oracle's distance above the best known by number of requests, and days finished."""
    sizes: list[dict[str, Any]] = results.data("neural_oracle")["report"]["sizes"]
    heads = [f"{part['requests']} requests" for part in sizes]
    lines = [cells("oracle", *heads), "|---|" + "---|" * len(sizes)]
    for at, first in enumerate(sizes[0]["plans"]):
        rows = [part["plans"][at] for part in sizes]
        gaps = [f"{row['gap_percent']:.1f} % ({row['finished_percent']:.0f} %)" for row in rows]
        lines.append(cells(_searched(first["oracle"]), *gaps))
    return "\n".join(lines)


def routing_times(results: Results) -> str:
    """neural_oracle: CPU time of many days of 30 requests planned in one call, on one thread."""
    parts: list[dict[str, Any]] = results.data("neural_oracle")["report"]["sizes"]
    rows = [row for part in parts if part["requests"] == 30 for row in part["speed"] if row.get("threads", 1) == 1]
    batches = list(dict.fromkeys(row["days"] for row in rows))
    lines = [
        cells("oracle", *("1 day" if count == 1 else f"{count:,} days" for count in batches)),
        "|---|" + "---|" * len(batches),
    ]
    for oracle in dict.fromkeys(row["oracle"] for row in rows):
        took = {row["days"]: row["cpu_ms"] for row in rows if row["oracle"] == oracle}
        lines.append(cells(_searched(oracle), *(f"{took[count]:,.0f} ms" for count in batches)))
    return "\n".join(lines)


def decoding_times(results: Results) -> str:
    """neural_oracle: what greedy decoding takes, by requests a day and days in one call; nothing where only one size
    was timed."""
    parts: list[dict[str, Any]] = results.data("neural_oracle")["report"]["sizes"]
    timed = [part for part in parts if part["speed"]]
    if len(timed) < 2:
        return ""
    batches = list(dict.fromkeys(row["days"] for part in timed for row in part["speed"]))
    heads = ("1 day" if count == 1 else f"{count:,} days" for count in batches)
    lines = [
        "CPU time of greedy decoding on one thread; in brackets wall time on two:", "",
        cells("requests a day", *heads), "|---|" + "---|" * len(batches),
    ]  # fmt: skip
    for part in timed:
        took = {(row["days"], row["threads"]): row for row in part["speed"] if row["oracle"] == "neural, greedy"}
        texts = (f"{took[count, 1]['cpu_ms']:,.0f} ms ({took[count, 2]['wall_ms']:,.0f} ms)" for count in batches)
        lines.append(cells(str(part["requests"]), *texts))
    return "\n".join([*lines, ""])


def offer_ranks(results: Results) -> str:
    """neural_oracle: rank correlation of prices with long searches, and wrong signs, by requests a day."""
    parts = [part for part in results.data("neural_oracle")["report"]["sizes"] if part["offers"]]
    heads = (f"{part['requests']} requests" for part in parts)
    lines = [cells("16 offers priced by", *heads), "|---|" + "---|" * len(parts)]
    for at, first in enumerate(parts[0]["offers"]):
        rows = [part["offers"][at] for part in parts]
        texts = (f"{row['rank_correlation']:.2f} ({row['sign_errors_percent']:.0f} %)" for row in rows)
        lines.append(cells(first["oracle"], *texts))
    return "\n".join(lines)


def _searched(oracle: str) -> str:
    """`incremental, 30` as people say it."""
    return re.sub(r"^(incremental|PyVRP), ([\d,]+)$", r"\1, \2 iterations", oracle)


def net_gains(results: Results, name: str, days: int | None = None) -> dict[str, list[float]]:
    """Mean net gain a day of every policy by the reference prices, over all days or the first so many; of the trained
    agent, under `seeds`, each seed's.
    """
    found: dict[str, list[float]] = {}
    for part in results.data(name)["parts"]:
        if part["reference"] is not None:
            policy = "seeds" if part["name"].startswith("seed ") else part["name"]
            found.setdefault(policy, []).append(statistics.fmean(part["reference"][:days]))
    return found


def around(results: Results, values: list[float], digits: int = 1) -> str:
    """`-12.5 +- 0.2`: mean and standard deviation over seeds."""
    return f"{number(statistics.fmean(values), digits)} +- {number(statistics.stdev(values), digits)}"


def percent(results: Results, values: list[float]) -> list[float]:
    """Shares as per cent."""
    return [100.0 * value for value in values]


def spread(results: Results, values: list[float], digits: int | None = None) -> str:
    """`20.8 to 21.2`."""
    return f"{number(min(values), digits)} to {number(max(values), digits)}"


def listed(results: Results, values: list[float], digits: int | None = None) -> str:
    """`20.8, 21.0, 21.2`."""
    return _listed(values, digits)


def _listed(values: list[float], digits: int | None = None) -> str:
    return ", ".join(number(value, digits) for value in values)


def _mean_of(values: list[float], wanted: int) -> float | None:
    return statistics.fmean(values) if len(values) >= wanted else None


def faults(results: Results, peers: bool = False) -> str:
    """fault_matrix: what every scenario came to, a row each, by backend; `peers`: of the other libraries, in words."""
    cells_of: dict[tuple[int, str], dict[str, Any]] = {}
    backends: dict[str, None] = {}
    for row in results.data("fault_matrix")["rows"]:
        told = row.get("detail", {})
        if "backend" in told and (told["backend"] in _PEERS) == peers:
            backends[told["backend"]] = None
            cells_of.setdefault((told["row"], told["about"]), {})[told["backend"]] = row
    lines = [cells("row", "what happens", *map(_name, backends)), "|---|---|" + "---|" * len(backends)]
    for (at, about), found in sorted(cells_of.items(), key=lambda item: item[0][0]):
        lines.append(cells(str(at), about, *(_outcome(found.get(backend), peers) for backend in backends)))
    return "\n".join(lines)


_PEERS = {"gymnasium_async": "Gymnasium AsyncVectorEnv", "sb3_subproc": "SB3 SubprocVecEnv (fork)"}


def _name(backend: str) -> str:
    return _PEERS.get(backend, "whole runs" if backend == "all" else f"`{backend}`")


def _outcome(row: dict[str, Any] | None, in_words: bool) -> str:
    if row is None:
        return ""
    if not in_words:
        return "holds" if row["value"] == 1 else "not tried" if row["value"] is None else "**does not hold**"
    text = re.sub(r"\s+", " ", re.sub(r"[|<>`\n]", " ", row["detail"]["outcome"]))
    # Of 2026-11-19: what our own look at the numbers that came said, so they were handed on.
    return "handed on: what is no numbers" if "ufunc 'isfinite' not supported" in text else text[:110]


TABLES: tuple[Callable[..., Any], ...] = (
    learned_without_options, credit_study, credit_bias, orders_kept, routed_days, routing_times,
    decoding_times, offer_ranks, net_gains, around,
    percent, spread, listed, faults, *study.TABLES,
)  # fmt: skip
