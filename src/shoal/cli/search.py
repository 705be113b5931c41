"""`shoal search`: in which order? What it does is in shoal.search."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from shoal import launching
from shoal.cli.parsing import named, own_command, parse_both, say, take
from shoal.cli.training import next_commands

_ABOUT = """Search for the best order of repairs. A bandit chooses the orders, and each pull trains one policy.

  shoal search gridworld --workflows 20
  shoal search --resume runs/NAME --workflows 40"""
_EXTRA = (
    ("--resume FOLDER", "Continue a search: its folder, or its name under --runs-dir."),
    ("--on here|ray", "Where pulls run: on this machine, or as tasks of a Ray cluster whose nodes all see --runs-dir "
     "(--ray-address auto, HOST:PORT or ray://HOST:PORT; default: an instance on this machine)."),
)  # fmt: skip


def search(args: list[str], as_json: bool) -> int:
    """Search over orders, or go on with a search."""
    from shoal.search.domain import default_config, domain_class, known_domains
    from shoal.search.folder import SearchFolder
    from shoal.search.loop import search as run
    from shoal.search.options import SearchConfig

    resume, args = take(args, "--resume")
    place, args = take(args, "--on")
    address, args = take(args, "--ray-address")
    args = named(args, "--domain")
    given, args = take(args, "--domain")
    if given is None and resume is None and not {"-h", "--help"} & set(args):
        choice = " | ".join(f"shoal search {name}" for name in known_domains())
        raise ValueError(f"expected what to search: {choice} (or --resume FOLDER); a search is many trainings")
    default, known = default_config(given or SearchConfig.domain), {}
    if resume is not None:
        from pathlib import Path

        folder = SearchFolder.open(resume, Path(take(args, "--runs-dir")[0] or "runs"), given)
        if given is not None and given != folder.config.domain:
            raise ValueError(f"{resume} is a search of {folder.config.domain}, not of {given}")
        default, known = folder.config, folder.options
    options = domain_class(default.domain).Options
    domains = "|".join(known_domains()) if given is None and resume is None else default.domain
    config, own = parse_both(default, options(**known), args, f"shoal search {domains}", about=_ABOUT, extra=_EXTRA)

    try:
        with launching.on(place or "here", address):
            found = run(config, dataclasses.asdict(own), resume=resume, say=say, command=own_command())
    except KeyboardInterrupt:
        say("stopped; every finished pull is kept: go on with shoal search --resume and the folder named above")
        return 130
    if as_json:
        print(json.dumps(found.to_json(), allow_nan=False))
        return 0
    _say_what_was_found(found, config.domain)
    return 0


def _say_what_was_found(found: Any, domain: str) -> None:
    from shoal.search.domain import domain_class
    from shoal.search.findings import conduct_line
    from shoal.search.summary import score_line

    summary = found.summary
    best = summary.best
    print(f"found    {summary.found}")
    if best is not None:
        print(f"best     {best['name']} (by the posterior)")
        print(f"score    {score_line(best)}")
        kept = conduct_line(best["fresh"]["compliance"] if best["fresh"] else best["compliance"], best["judged"])
        if kept is not None:
            print(f"kept to  {kept}")
    if summary.played:
        print(f"played   {summary.played}")
    print(
        f"pulls    {summary.pulls}, of which {summary.passed} passed; {found.wall_s:,.0f} s ({found.cpu_s:,.0f} CPU-s)"
    )
    print(f"orders   {summary.verdict}")
    for effect in summary.effects[:3]:
        if effect["low"] > 0:
            worth = f"worth {effect['value']:.2f}, 95 % interval [{effect['low']:.2f}, {effect['high']:.2f}]"
            print(f"matters  {effect['first']} before {effect['second']}: {worth}")
    if summary.regret is not None:
        regret = summary.regret
        print(
            f"ranking  number {regret['place']} of {regret['of']} by {regret['source']}, "
            f"{regret['simple_regret']:.2f} below the best"
        )
    print(f"folder   {found.folder}")
    print(f"report   {found.report}")
    if summary.strategy != "halving":  # its rounds are for a number of pulls
        own = f"{domain} " if ":" in domain else ""  # the user names the module again
        print(f"more     shoal search {own}--resume {found.folder} --workflows {summary.pulls + 10}")
        print(f"         (would try first: {summary.next_pick})")
    if found.policy is not None:
        print(f"next     {next_commands(found.policy)[0]}")
        if look := domain_class(domain).look:
            print(f"         {look} {found.policy}")
