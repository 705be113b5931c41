"""Contests: the same days for everyone, both prices, nothing dropped; and what a trained policy may know of riders."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from shoal.core.seeds import Stream, episode_seed
from shoal.rides.commands import SHIFTS, baseline, policy_by_name, run_contests, shifts_named, table_lines
from shoal.rides.contest.play import Entrant, contest, histories_only
from shoal.rides.env import RidesVectorEnv
from shoal.rides.knowledge import settle
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import constant, max_change, myopic
from shoal.rides.routing.checker import check_routes
from shoal.rides.routing.problem import NO_CHANGE, Status

SMALL = RidesOptions(start="none", customers=12)
FEW = {"iterations": 10}


def test_a_policy_that_never_offers_equals_the_base_to_the_second() -> None:
    """A/A: through the environment or without it, the day without offers is one and the same."""
    found = contest({"again": constant(NO_CHANGE)}, SMALL, days=6, **FEW)
    assert (found.played["again"].cost_s == found.played["none"].cost_s).all()
    assert (found.played["again"].stops == found.played["none"].stops).all()
    assert (found.net_min("again") == 0).all()


def test_days_do_not_depend_on_the_batch() -> None:
    """Day d is the same day with the same answers, whatever is played beside it; a batch not full loses none."""
    whole = contest({"p": max_change()}, SMALL, days=7, batch=7, **FEW)
    parts = contest({"p": max_change()}, SMALL, days=7, batch=3, **FEW)
    for name in ("offer", "accepted", "cost_s", "ride_s", "served"):
        assert (getattr(whole.played["p"], name) == getattr(parts.played["p"], name)).all()
    assert (whole.asked == parts.asked).all()
    assert whole.played["p"].menu.sums == pytest.approx(parts.played["p"].menu.sums)


def test_net_gain_is_the_sum_of_the_environment_s_rewards() -> None:
    """A contest counts what training counts: the reward telescopes to the net gain."""
    found = contest({"p": myopic("insertion")}, SMALL, days=5, **FEW)
    env = RidesVectorEnv(5, replace(SMALL, iterations=10), stream=Stream.EVALUATE)
    seeds = [episode_seed(0, day, 0, Stream.EVALUATE, scheme=1) for day in range(5)]
    observations, _ = env.reset(seed=seeds)
    total, choose = np.zeros(5), myopic("insertion")
    for _ in range(SMALL.customers):
        observations, rewards, *_ = env.step(choose(env, observations))
        total += rewards
    env.close()
    assert total == pytest.approx(found.net_min("p"), abs=1e-3)


def test_only_held_out_riders_call() -> None:
    """Nobody who was trained on is met in a contest."""
    found = contest({}, SMALL, days=4, **FEW)
    assert found.world.riders.held_out[found.rider].all()
    assert (found.kind == found.world.riders.kind[found.rider]).all()


def test_those_turned_away_are_counted_and_paid_for() -> None:
    """With one vehicle many requests cannot be placed: they stay in every figure, at their penalty."""
    options = replace(SMALL, vehicles=1)
    found = contest({"p": max_change()}, options, days=3, **FEW)
    result = _summary(found)
    play = found.played["p"]
    assert 0 < (~play.served).sum() < play.served.size
    assert result["policies"]["p"]["failure_percent"]["own"] == pytest.approx(100 * (~play.served).mean())
    for day in range(3):
        routes = play.routes(day)
        assert check_routes(found.world.problem, play.requests[day], routes, play.served[day]) == []
    assert (play.ride_s[~play.served] == 0).all()


def _summary(found: Any, **options: Any) -> dict[str, Any]:
    from shoal.rides.contest.scores import summary

    return summary(found, resamples=200, **options)


@dataclass
class FixedReference:
    """Answers by rule: a thousand minutes, less one for every minute that the pickup windows are wide."""

    calls: int = 0

    def price(self, days: list[Any], workers: int = 1, on_priced: Any = None) -> list[Any]:
        self.calls += len(days)
        widths = [int((day["pickup_close"] - day["pickup_open"]).sum()) // 60 for day in days]
        return [_Price(60 * (1000 - width), Status.OK, ()) for width in widths]


@dataclass
class _Price:
    cost_s: int
    status: Status
    unserved: tuple[int, ...]


def test_reference_prices_stand_beside_the_own_ones() -> None:
    """Each policy is priced by the reference on its own agreed windows, against the base's reference price."""
    judge = FixedReference()
    found = contest({"p": constant(8)}, SMALL, days=4, reference=judge, **FEW)  # 10 minutes earlier, to everyone
    assert found.prices == ("own", "reference")
    assert judge.calls == 8
    widened = found.played["p"].agreed_min.sum(1)
    assert found.saved_min("p", "reference") == pytest.approx(widened)  # a minute less for each minute of width
    burden = 0.05 * widened + found.played["p"].refused.sum(1)
    assert found.net_min("p", "reference") == pytest.approx(widened - burden)


def test_pyvrp_prices_a_contest() -> None:
    """The real reference: feasible, and not dearer than the own oracle by more than its small budget explains."""
    from shoal.rides.routing.reference import Reference
    from shoal.rides.world.world import make_world

    judge = Reference(make_world(SMALL).problem, iterations=60, seeds=1)
    found = contest({"p": max_change()}, SMALL, days=2, reference=judge, **FEW)
    for play in found.played.values():
        assert play.reference_errors == 0
        assert play.reference_s is not None
        assert (play.reference_s <= 1.05 * play.cost_s).all()


def test_a_missing_reference_is_said() -> None:
    """Asking for reference prices that nobody paid for is an error with a cure."""
    found = contest({}, SMALL, days=1, **FEW)
    with pytest.raises(ValueError, match="give contest"):
        found.net_min("none", "reference")


# -- what is known of riders ---------------------------------------------------------------------------


def test_cold_riders_are_known_by_their_profile_only() -> None:
    """Whatever a run learned, a held-out rider's type follows from the history that the options grant, and no more."""
    state = histories_only(SMALL)
    env = RidesVectorEnv(1, replace(SMALL, history=0), stream=Stream.EVALUATE)
    settle(env, state)
    cold = env.flexibility.type_probabilities(env.days.members)
    env.close()
    env = RidesVectorEnv(1, SMALL, stream=Stream.EVALUATE)
    settle(env, state)
    known = env.flexibility.type_probabilities(env.days.members)
    trained = env.flexibility.state()
    env.close()
    profiles = env.world.riders.profile_features()[env.days.members]
    _, group = np.unique(profiles, axis=0, return_inverse=True)
    for code in range(group.max() + 1):  # the same profile, the same belief
        assert np.ptp(cold[group.ravel() == code], axis=0).max() < 1e-6
    kinds = env.world.riders.kind[env.days.members]
    assert (known.argmax(1) == kinds).mean() > (cold.argmax(1) == kinds).mean() + 0.1
    assert (trained["theta"] == state["theta"]).all()
    assert trained["evidence"] == pytest.approx(state["evidence"])  # the same histories lead to the same belief


def test_entrants_may_have_knowledge_and_views_of_their_own() -> None:
    """An entrant's own flexibility state is used in place of the contest's, and its options shape what it sees."""
    state = histories_only(SMALL)
    unsure = {**state, "theta": np.zeros_like(state["theta"])}
    seen = {}

    def look(name: str) -> Any:
        def choose(env: RidesVectorEnv, observations: dict[str, Any]) -> Any:
            seen[name] = (env.menu.p_accept.copy(), env.options.mask)
            return np.full(env.num_envs, NO_CHANGE)

        return choose

    contest(
        {"a": look("a"), "b": Entrant(look("b"), {"mask": "hard"}, unsure)}, SMALL, days=2, flexibility=state, **FEW
    )
    assert seen["a"][1] == "soft"
    assert seen["b"][1] == "hard"
    assert np.abs(seen["a"][0] - seen["b"][0]).max() > 0.05


# -- shifts, names, tables -----------------------------------------------------------------------------


def test_every_shift_changes_the_world_and_only_the_world() -> None:
    """Each shift is a valid set of options that differs from the defaults in what it names."""
    for changes in SHIFTS.values():
        shifted = replace(RidesOptions(), **changes)
        assert all(getattr(RidesOptions(), name) != getattr(shifted, name) for name in changes)
    assert shifts_named(None) == [""]
    assert shifts_named("all") == ["", *SHIFTS]
    with pytest.raises(ValueError, match="cold, 45, 60, fleet, mix, rule or all, got 'warm'"):
        shifts_named("warm")


def test_a_shift_contest_is_played_in_the_shifted_world() -> None:
    """Customers and fleet are the shift's; riders who follow the rule never accept what it forbids."""
    results, found = run_contests({"max-change": baseline("max-change")}, SMALL, shift="fleet", days=2, **FEW)
    assert (results["fleet"]["vehicles"], found.options.vehicles) == (2, 2)
    results, found = run_contests({"p": Entrant(constant(0))}, SMALL, shift="rule", days=2, **FEW)  # 30 earlier
    assert (found.played["p"].accepted == np.isin(found.kind, (0, 3))).all()


def test_policies_have_names_and_arguments() -> None:
    """`myopic:pooled` and `fixed:0` give their argument; an unknown name lists the known ones."""
    env = RidesVectorEnv(2, SMALL, stream=Stream.EVALUATE)
    observations, _ = env.reset(seed=0)
    assert policy_by_name("fixed:0")(env, observations).tolist() == [0, 0]
    assert policy_by_name("myopic:insertion")(env, observations).shape == (2,)
    env.close()
    with pytest.raises(ValueError, match="none, random, everything"):
        policy_by_name("greedy")
    with pytest.raises(ValueError, match="insertion, pooled"):
        policy_by_name("myopic:cheap")
    with pytest.raises(ValueError, match="none takes no argument"):
        policy_by_name("none:3")


def test_the_table_shows_every_policy_with_both_prices() -> None:
    """One line per policy, worst first, and differences with both oracles."""
    entrants = {"max-change": baseline("max-change"), "myopic": baseline("myopic")}
    results, _ = run_contests(
        entrants, SMALL, days=3, reference=lambda problem: FixedReference(), against=["myopic"], **FEW
    )
    lines = table_lines(results["base"])
    text = "\n".join(lines)
    assert all(name in text for name in ("none", "max-change", "myopic", "own oracle", "3 held-out days"))
    assert sum(line.startswith("max-change") and " - myopic" in line for line in lines) == 1


@pytest.mark.parametrize("bad", [{"days": 0}, {"batch": 0}])
def test_impossible_sizes_are_refused(bad: dict[str, int]) -> None:
    """No days, or batches of none, is a mistake."""
    with pytest.raises(ValueError, match="at least 1 day"):
        contest({}, SMALL, **bad)


def test_held_out_days_are_those_of_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their seeds have bit 31 set, which no training seed of any version has; the first one by hand."""
    from shoal.rides.world.days import Days

    drawn: list[int] = []
    draw = Days.draw

    def spy(self: Days, seed: int) -> Any:
        drawn.append(seed)
        return draw(self, seed)

    monkeypatch.setattr(Days, "draw", spy)
    contest({}, RidesOptions(start="none", customers=8), days=2, seed=3, iterations=1)

    def by_hand(run: int, day: int) -> int:
        words = np.random.SeedSequence(run, spawn_key=(1, day, 0)).generate_state(64, np.uint32)
        return (int(words[0]) & 0x7FFFFFFF) | 1 << 31

    assert drawn[-2:] == [by_hand(by_hand(3, day), 0) for day in range(2)]
