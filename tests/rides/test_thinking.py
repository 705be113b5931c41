"""Futures sampled before an offer, or negotiated by the agent itself, and what it decides by them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.cli import main
from shoal.core.seeds import Stream
from shoal.rides.env import RidesVectorEnv
from shoal.rides.observe import MINUTES, OFFER_COLUMN
from shoal.rides.options import RidesOptions
from shoal.rides.policies import finals, onward
from shoal.rides.policies.finals import Finals
from shoal.rides.policies.halving import Halving
from shoal.rides.policies.learned import Negotiator
from shoal.rides.policies.simple import myopic
from shoal.rides.policies.thinking import Thinking
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN
from shoal.training import train

OPTIONS = RidesOptions(customers=6, start="none", prices="insertion", futures=0, iterations=5)


def nothing(env: Any, observations: Any) -> np.ndarray[Any, Any]:
    return np.zeros((env.num_envs, NUM_OFFERS))


@pytest.fixture
def env() -> Iterator[RidesVectorEnv]:
    made = RidesVectorEnv(3, OPTIONS, stream=Stream.EVALUATE)
    made.reset(seed=[5, 6, 7])
    for _ in range(3):
        made.step(np.full(3, NO_CHANGE))
    yield made
    made.close()


def seen(env: RidesVectorEnv, futures: int, act: Any = None) -> np.ndarray[Any, Any]:
    """What acceptances save, by day and offer: in sampled futures, or in those that `act` negotiates."""
    thinking = Thinking(nothing, futures) if act is None else Halving(act, nothing, futures, played=1)
    env.look()
    return thinking._saving_min(env).mean(1)


def test_a_day_is_thought_about_in_the_same_way_whatever_is_beside_it(env: RidesVectorEnv) -> None:
    alone = RidesVectorEnv(1, OPTIONS, stream=Stream.EVALUATE)
    alone.reset(seed=[6])
    for _ in range(3):
        alone.step(np.full(1, NO_CHANGE))
    for act in (None, myopic()):
        np.testing.assert_array_equal(seen(alone, 3, act)[0], seen(env, 3, act)[1])
    alone.close()


def test_thinking_leaves_the_day_as_it_is(env: RidesVectorEnv) -> None:
    before = {name: value.copy() for name, value in env.get_state().items()}
    seen(env, 2)
    seen(env, 2, myopic())
    for name, value in env.get_state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_the_agent_negotiates_every_later_request_of_every_future(env: RidesVectorEnv) -> None:
    """3 of 6 requests are booked: 2 come after the present one, in 4 futures of 3 days."""
    asked: list[tuple[int, int]] = []

    def act(world: RidesVectorEnv, observations: dict[str, Any]) -> Any:
        asked.append((len(observations["offers"]), int(observations["accepted"][:, :, 0].sum(1).max())))
        return np.full(world.num_envs, NO_CHANGE)

    seen(env, 4, act)
    assert asked == [(12, 3), (12, 4)]


def test_who_negotiates_later_decides_what_room_is_worth() -> None:
    """Other later offers, other prices now, on days that are full enough."""
    env = RidesVectorEnv(3, replace(OPTIONS, customers=24), stream=Stream.EVALUATE)
    env.reset(seed=[5, 6, 7])
    for _ in range(8):
        env.step(np.full(3, NO_CHANGE))
    everything = seen(env, 4, lambda world, observations: np.full(world.num_envs, 3))
    nobody = seen(env, 4, lambda world, observations: np.full(world.num_envs, NO_CHANGE))
    assert np.abs(everything - nobody).max() > 0.1
    assert (everything[:, NO_CHANGE] == 0).all()
    env.close()


def test_the_last_request_has_no_future(env: RidesVectorEnv) -> None:
    """Then every future is the day as it is: nothing to negotiate, no draw to differ in but the search's."""
    for _ in range(2):
        env.step(np.full(3, NO_CHANGE))

    def never(world: Any, observations: Any) -> Any:
        raise AssertionError("nobody calls any more")

    np.testing.assert_allclose(seen(env, 1, never), env.menu.saving_min, atol=15)
    assert (seen(env, 1, never)[:, NO_CHANGE] == 0).all()


def test_another_world_is_thought_about_as_what_it_is(env: RidesVectorEnv) -> None:
    """The same policy plays the worlds of a shift test one after another: with fewer vehicles, for one."""
    thinking = Thinking(nothing, 2)
    thinking.net_min(env, env.look())
    smaller = RidesVectorEnv(2, replace(OPTIONS, vehicles=2), stream=Stream.EVALUATE)
    smaller.reset(seed=[5, 6])
    smaller.step(np.full(2, NO_CHANGE))
    thinking.net_min(smaller, smaller.look())
    np.testing.assert_array_equal(thinking.saves_min, seen(smaller, 2))
    smaller.close()


def test_the_agents_own_judgement_counts_as_futures(env: RidesVectorEnv) -> None:
    def sure(world: Any, observations: Any) -> Any:
        return np.where(np.arange(NUM_OFFERS) == 7, 1e6, np.zeros((world.num_envs, 1)))

    assert (Thinking(sure, 2, judgement=8.0)(env, env.look()) == 7).all()
    assert (Thinking(sure, 2, judgement=0.0)(env, env.look()) != 7).any()


def test_a_judgement_counts_more_the_more_futures_it_was_shown(env: RidesVectorEnv) -> None:
    """And the futures of the thinking are others than those."""
    few, many = Thinking(nothing, 4), RidesVectorEnv(3, replace(OPTIONS, futures=4), stream=Stream.EVALUATE)
    many.reset(seed=[5, 6, 7])
    for _ in range(3):
        many.step(np.full(3, NO_CHANGE))
    observations = many.look()
    assert few.worth(many) == few.worth(env) + 8
    few(many, observations)
    shown = observations["offers"][:, :, OFFER_COLUMN["future"]] * MINUTES
    np.testing.assert_allclose(shown, seen(env, 4), atol=1e-5)
    assert not np.allclose(shown, few.saves_min, atol=1e-5)
    np.testing.assert_allclose(few.saves_min, 2 * seen(env, 8) - seen(env, 4), atol=1e-9)
    many.close()


def test_an_offer_that_the_mask_forbids_is_not_made(env: RidesVectorEnv) -> None:
    observations = env.look()
    observations["action_mask"][:, 7] = 0

    def sure(world: Any, observations: Any) -> Any:
        return np.where(np.arange(NUM_OFFERS) == 7, 1e6, np.zeros((world.num_envs, 1)))

    assert (Thinking(sure, 2)(env, observations) != 7).all()


def test_with_a_limit_of_seconds_it_thinks_of_fewer(env: RidesVectorEnv) -> None:
    slow = Thinking(nothing, 1024, seconds=1e-6)
    slow(env, env.look())
    assert slow.thought == 64  # one round there is always
    with pytest.raises(ValueError, match="at least 1 future"):
        Thinking(nothing, 0)


# -- through the command line ------------------------------------------------------------------------


def run_cli(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(args))
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    root: Path = tmp_path_factory.mktemp("thinking")
    kwargs = json.dumps({"customers": 8, "start": "myopic", "iterations": 5})
    train("rides", env_kwargs=kwargs, name="r", runs_dir=str(root), num_envs=2, episodes=2)
    return root


def test_the_desk_thinks_for_the_time_it_is_given(folder: Path, tmp_path: Path, capsys: Any) -> None:
    day = tmp_path / "day.csv"
    made = ["--csv", str(day), "--out", str(tmp_path / "day.svg"), "--customers", "8", "--split", "held_out"]
    assert run_cli("rides", "day", *made) == 0
    where = ["--runs-dir", str(folder), "--day", str(day), "--row", "4"]
    capsys.readouterr()
    assert run_cli("rides", "offer", "r", *where, "--think", "0.2s", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["basis"] == "futures"
    assert data["futures"] >= 64
    assert run_cli("rides", "offer", "r", *where, "--think", "50ms") == 0
    assert "by the day's end" in capsys.readouterr().out
    assert run_cli("rides", "offer", "r", *where, "--think", "soon") == 2
    assert "expected --think as seconds above 0, such as 0.3s or 300ms, got 'soon'" in capsys.readouterr().err


def test_evaluate_shows_a_run_with_and_without_thinking(folder: Path, capsys: Any) -> None:
    quick = ["--days", "3", "--no-reference", "--oracle-iterations", "5", "--threads", "1"]
    assert run_cli("evaluate", "r", "--runs-dir", str(folder), *quick, "--think", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)["contests"]["base"]
    assert "r" in found["differences"]["r, thinking"]
    assert (folder / "r" / "report.html").read_text().count("r, thinking") > 0


def test_the_same_number_of_futures_gives_the_same_offers(folder: Path) -> None:
    agents = [Negotiator("r", runs_dir=folder, think=3) for _ in range(2)]
    env = RidesVectorEnv(2, agents[0].options, stream=Stream.EVALUATE)
    observations, _ = env.reset(seed=[1, 2])
    first, second = (agent.entrant().policy(env, observations).tolist() for agent in agents)
    assert first == second
    env.close()


# -- the rollout that the agent plays itself -----------------------------------------------------------


def halved(env: RidesVectorEnv, act: Any, played: int = 2) -> Any:
    policy = Halving(act, nothing, 1, played=played, judgement=0.0)
    return policy.net_min(env, env.look())


def test_a_rollout_of_the_agent_is_the_same_whatever_is_beside_it(env: RidesVectorEnv) -> None:
    alone = RidesVectorEnv(1, OPTIONS, stream=Stream.EVALUATE)
    alone.reset(seed=[6])
    for _ in range(3):
        alone.step(np.full(1, NO_CHANGE))
    before = {name: value.copy() for name, value in env.get_state().items()}
    np.testing.assert_array_equal(halved(alone, myopic())[0], halved(env, myopic())[1])
    for name, value in env.get_state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    alone.close()


def test_the_best_offers_are_played_for_themselves_and_half_of_them_drop_out(env: RidesVectorEnv) -> None:
    """3 days, 1 future for all, then 4 offers and no change in 2 futures, then 2 and no change in 2 more; only those
    played have another figure than before."""
    rows: list[int] = []

    def act(world: RidesVectorEnv, observations: Any) -> Any:
        rows.append(world.num_envs)
        return np.full(world.num_envs, NO_CHANGE)

    net = halved(env, act)
    assert rows == [3, 3, 30, 30, 18, 18]
    before = Thinking.net_min(Halving(act, nothing, 1, judgement=0.0), env, env.look())
    differ = net != before
    assert (differ.sum(1) <= 4).all()
    assert differ.any()
    assert (net[:, NO_CHANGE] == 0).all()


def test_an_offer_played_for_itself_is_worth_what_the_day_then_costs_less() -> None:
    """With the one later request known and nobody asked, one future: P x (saved - minutes) - refusals, to the bit."""
    env = RidesVectorEnv(1, replace(OPTIONS, customers=12), stream=Stream.EVALUATE)
    env.reset(seed=[5])
    for _ in range(6):
        env.step(np.full(1, NO_CHANGE))
    env.look()
    policy = Halving(lambda world, seen: np.full(world.num_envs, NO_CHANGE), nothing, 1, played=1)
    offers = np.array([[3, 0]])
    gain = policy._gains(env, np.array([0]), offers, np.array([4]))
    ends = policy._ends(env, np.array([0]), np.array([[3, 0, NO_CHANGE]]), np.array([4]), 6)[0, :, 0]
    p = env.menu.p_accept[0, offers[0]]
    saved = ends[:2] - ends[2]
    np.testing.assert_allclose(gain[0], p * (saved - 0.05 * OFFER_MIN[offers[0]]) - 1.0 * (1 - p))
    assert ends.max() < 0  # minutes driven
    assert saved[0] >= saved[1] - 15  # room in both directions holds the other's, but for the search's luck
    env.close()


# -- the best three offers played to the end -------------------------------------------------------------


def guess(env: Any, observations: Any) -> Any:
    """Offers 4, 9 and 2 are the best, in this order; no change is worth nothing."""
    return np.broadcast_to(np.where(np.arange(NUM_OFFERS) == NO_CHANGE, 0.0, -1.0), (env.num_envs, NUM_OFFERS)) + sum(
        more * (np.arange(NUM_OFFERS) == offer) for more, offer in ((4.0, 4), (3.0, 9), (2.0, 2))
    )


def nobody(world: Any, observations: Any) -> Any:
    return np.full(world.num_envs, NO_CHANGE)


def test_only_the_three_best_offers_are_played_and_weighed(env: RidesVectorEnv) -> None:
    """(played + 2 x judged) / 3 of them for one future and a judgement that counts as two; nothing else is offered."""
    observations = env.look()
    policy = Finals(nobody, guess, 1, judgement=2.0)
    net = policy.net_min(env, observations)
    best = np.tile([4, 9, 2], (3, 1))
    gain = policy._gains(env, np.arange(3), best, np.array([0]))
    np.testing.assert_allclose(net[:, [4, 9, 2]], (gain + 2 * guess(env, observations)[:, [4, 9, 2]]) / 3)
    assert (net[:, NO_CHANGE] == 0).all()
    assert np.isneginf(np.delete(net, [4, 9, 2, NO_CHANGE], 1)).all()
    assert (np.isnan(policy.saves_min).sum(1) == 12).all()
    p, minutes = env.menu.p_accept[:, 4], OFFER_MIN[4]
    expected = p * (policy.saves_min[:, 4] - 0.05 * minutes) - 1.0 * (1 - p)  # as the desk works out what it is worth
    np.testing.assert_allclose(gain[:, 0], expected)
    observations["action_mask"][:, 4] = 0
    assert np.isneginf(policy.net_min(env, observations)[:, 4]).all()
    assert np.isnan(policy.saves_min[:, 4]).all()


def test_all_finalists_meet_the_same_callers_and_draws(env: RidesVectorEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does the day as asked: the four differ in nothing but in what was agreed to now."""
    env.look()
    policy, begun = Finals(nobody, guess, 2), []
    begin = Finals._begun

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        own, keys = begin(self, *args, **options)
        begun.append([part.reshape(3, 4, 2, -1) for part in (own.requests, own.rider, own.mood, keys)])
        return own, keys

    monkeypatch.setattr(Finals, "_begun", watched)
    policy.net_min(env, env.look())
    (parts,) = begun
    for part in parts:
        np.testing.assert_array_equal(part, np.broadcast_to(part[:, :1], part.shape))
        assert (part[:, :, 0] != part[:, :, 1]).any()


def test_a_number_of_futures_gives_the_same_offer_whatever_is_beside_it(env: RidesVectorEnv) -> None:
    """And however many days are played at once. The days being booked are left as they are."""
    before = {name: value.copy() for name, value in env.get_state().items()}
    both = Finals(myopic(), guess, 3).net_min(env, env.look())
    alone = RidesVectorEnv(1, OPTIONS, stream=Stream.EVALUATE)
    alone.reset(seed=[6])
    for _ in range(3):
        alone.step(np.full(1, NO_CHANGE))
    np.testing.assert_array_equal(Finals(myopic(), guess, 3).net_min(alone, alone.look())[0], both[1])
    for name, value in env.get_state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    alone.close()


def test_futures_in_rounds_are_those_of_one_round() -> None:
    """With time enough for all of them the offer is that of the fixed number."""
    env = RidesVectorEnv(1, OPTIONS, stream=Stream.EVALUATE)
    env.reset(seed=[6])
    fixed, timed = Finals(myopic(), guess, 5), Finals(myopic(), guess, 5, seconds=60.0)
    observations = env.look()
    np.testing.assert_allclose(timed.net_min(env, observations), fixed.net_min(env, observations), rtol=1e-12)
    assert timed.thought == fixed.thought == 5
    env.close()


def test_an_answer_is_there_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which each of 23 later calls takes 20 ms, of however many futures: in 0.2 s none ends, and the
    judgement decides alone; in 2 s there are rounds of 2, 4, 9 and 12, and none is begun that would not end."""
    now_s = 0.0

    def slow(world: Any, observations: Any) -> Any:
        nonlocal now_s
        now_s += 0.02
        return nobody(world, observations)

    for module in (finals, onward):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s))
    env = RidesVectorEnv(1, replace(OPTIONS, customers=24), stream=Stream.EVALUATE)
    env.reset(seed=[6])
    for seconds, thought, spent_s in ((0.2, 0, 0.2), (2.0, 27, 4 * 23 * 0.02)):
        now_s = 0.0
        policy = Finals(slow, guess, 1024, seconds=seconds)
        offer = policy(env, env.look())
        assert (policy.thought, round(now_s, 6)) == (thought, round(spent_s, 6))
        assert thought or offer.tolist() == [4]
    env.close()


def test_who_calls_last_is_judged_as_ever(env: RidesVectorEnv) -> None:
    for _ in range(2):
        env.step(np.full(3, NO_CHANGE))

    def never(world: Any, observations: Any) -> Any:
        raise AssertionError("nobody calls any more")

    policy = Finals(never, guess, 2)
    assert policy(env, env.look()).tolist() == [4, 4, 4]
    assert policy.thought == 0


def test_the_desk_thinks_in_a_closed_loop(folder: Path, tmp_path: Path, capsys: Any) -> None:
    day = tmp_path / "day.csv"
    made = ["--csv", str(day), "--out", str(tmp_path / "day.svg"), "--customers", "8", "--split", "held_out"]
    assert run_cli("rides", "day", *made) == 0
    where = ["--runs-dir", str(folder), "--day", str(day), "--row", "4"]
    capsys.readouterr()
    closed = ["--think", "2s", "--think-loop", "closed"]
    assert run_cli("rides", "offer", "r", *where, *closed, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["basis"] == "played"
    assert data["futures"] >= 1
    assert sum(row["played"] for row in data["menu"]) == 4
    assert data["menu"][NO_CHANGE]["worth_min"] == 0
    assert run_cli("rides", "offer", "r", *where, *closed) == 0
    said = capsys.readouterr().out
    assert "were played to the end of the day: saved is less what it then asks of later riders" in said
    assert "futures of it that the agent negotiates" in said
    assert run_cli("rides", "offer", "r", *where, "--think-loop", "closed") == 2
    assert "--think-loop closed says how to think: add --think 0.3s" in capsys.readouterr().err


def test_evaluate_shows_what_a_closed_loop_adds(folder: Path, capsys: Any) -> None:
    quick = ["--days", "2", "--no-reference", "--oracle-iterations", "5", "--threads", "1", "--json"]
    closed = ["--think", "1", "--think-loop", "closed"]
    assert run_cli("evaluate", "r", "--runs-dir", str(folder), *quick, *closed) == 0
    found = json.loads(capsys.readouterr().out)["contests"]["base"]
    assert "r" in found["differences"]["r, thinking"]
    assert run_cli("evaluate", "r", "--runs-dir", str(folder), *quick, *closed[2:]) == 2
    assert "add --think 6, a number of futures" in capsys.readouterr().err


def test_evaluate_plays_the_rollout_of_a_runs_agent(folder: Path, capsys: Any) -> None:
    quick = ["--days", "2", "--no-reference", "--oracle-iterations", "5", "--threads", "1", "--json"]
    assert run_cli("evaluate", "r", "--runs-dir", str(folder), *quick, "--policy", "rollout:agent") == 0
    found = json.loads(capsys.readouterr().out)["contests"]["base"]
    assert "r" in found["differences"]["r, rollout"]
    assert run_cli("evaluate", "rides", *quick, "--policy", "rollout:agent") == 2
    assert "shoal evaluate RUN --policy rollout:agent" in capsys.readouterr().err
