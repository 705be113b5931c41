"""Credit from rebuilt days: what it prices, that nothing else follows from it, same bits, alarms, that it teaches."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.compiled.random import mix
from shoal.core.seeds import Stream
from shoal.rides.coach import Coach
from shoal.rides.credit import CAP_MIN, PRICE_ITERATIONS, Rates, drawn, generously, savings_min, uniform
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import EFFECTS, NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, OFFER_MIN
from shoal.runs import checkpoint
from shoal.runs.folder import Run

SMALL: dict[str, Any] = {"customers": 6, "iterations": 3, "start": "none", "futures": 0, "vehicles": 2}
SMALL |= {"prices": "insertion", "credit_requests": 4, "credit_generous": 0.0, "held_out_days": 0}
SEEDS = (11, 22, 33, 44)


def play(seeds: tuple[int, ...] = SEEDS, steps: int = 6, threads: int = 1, **options: Any) -> Any:
    """The environment after a rollout of offers that depend on the day alone, its credit, and what was observed."""
    env = RidesVectorEnv(len(seeds), RidesOptions(**{**SMALL, **options}), threads=threads)
    seen = [env.reset(seed=list(seeds))[0]["offers"].copy()]
    env.mark()
    rewards = []
    for _ in range(steps):
        offers = (mix(env.bookings.step_keys()) >> np.uint64(60)).astype(np.int64)
        obs, reward, *_ = env.step(offers)
        seen.append(obs["offers"].copy())
        rewards.append(reward)
    credit = env.credit(SimpleNamespace(steps=steps), None)
    env.close()
    return env, credit, np.stack(seen), np.stack(rewards)


def test_so_many_requests_of_each_day_have_values() -> None:
    """Of every day the number asked for, all 16 offers each; no change is worth nothing, more room never costs."""
    _, credit, _, _ = play()
    values = credit.values
    assert values.shape == (6, 4, 16)
    known = np.isfinite(values)
    assert (known.all(-1) == known.any(-1)).all()
    assert known[..., 0].sum(0).tolist() == [4, 4, 4, 4]
    assert (values[known.all(-1)][:, NO_CHANGE] == 0).all()
    assert values[known.all(-1)].max() > 0
    chosen = drawn(np.array(SEEDS, np.uint64), np.full(4, 2), 6, 4)
    assert chosen.dtype == np.bool_


def test_the_last_request_of_a_day_is_priced_in_the_day_as_it_was() -> None:
    """Nothing comes after it: its credit is the pooled price of the day before it, times P, less the burden."""
    env = RidesVectorEnv(4, RidesOptions(**{**SMALL, "credit_requests": 6}))
    env.reset(seed=list(SEEDS))
    env.mark()
    for _ in range(5):
        env.step(np.full(4, 3))
    plans, request, p = env.bookings.plans.copy(), env.bookings.now(env.bookings.requests), env.menu.p_accept
    with np.errstate(over="ignore"):
        keys = mix(env.bookings.step_keys() + np.uint64(0xC2B2AE3D27D4EB4F))
    menu = env.oracle.pooled_menu(plans, request, keys, iterations=PRICE_ITERATIONS)
    assert (menu.status == 0).all()
    saved = np.clip((menu.cost_s[:, [NO_CHANGE]] - menu.cost_s) / 60, -CAP_MIN, CAP_MIN)
    expected = p * (saved - 0.05 * OFFER_MIN) - (1 - p)
    expected[:, NO_CHANGE] = 0
    env.step(np.full(4, NO_CHANGE))
    credit = env.credit(SimpleNamespace(steps=6), None)
    assert np.allclose(credit.values[5], expected, atol=1e-5)
    env.close()


def test_the_day_is_rebuilt_with_the_windows_agreed_to() -> None:
    """One request, by hand: the plan from before it, the later ones as they agreed, then its price."""
    env = RidesVectorEnv(1, RidesOptions(**{**SMALL, "credit_requests": 6}))
    env.reset(seed=[7])
    env.mark()
    for step in range(6):
        if step == 2:
            before, request, p = env.bookings.plans.copy(), env.bookings.now(env.bookings.requests), env.menu.p_accept
            with np.errstate(over="ignore"):
                key = mix(env.bookings.step_keys() + np.uint64(0xC2B2AE3D27D4EB4F))
        if step == 5:
            offer, accepted = env.bookings.offer.copy(), env.bookings.accepted.copy()
            asked = env.bookings.requests.copy()
        env.step(np.array([8 if step < 5 else NO_CHANGE]))
    for later in (3, 4, 5):
        minutes = np.where(accepted[0, later] & (later < 5), 1, 0)
        window = EFFECTS["widen"](
            asked[:, later],
            minutes * OFFER_EARLIER_MIN[offer[:, later]],
            minutes * OFFER_LATER_MIN[offer[:, later]],
        )
        env.oracle.add(before, window, key, 2, escalate=())
    nothing_later = np.zeros((1, 6), asked.dtype)
    saved = savings_min(env.oracle, before, nothing_later, np.array([5]), request, key, "widen")
    credit = env.credit(SimpleNamespace(steps=6), None)
    assert accepted[0, 3:5].any()
    assert np.allclose(credit.values[2], Rates(0.05, 1.0).worth(p, saved), atol=1e-5)
    env.close()


@pytest.mark.parametrize("generous", [0.0, 0.5])
def test_a_day_has_the_same_credit_whatever_is_beside_it(generous: float) -> None:
    """To the bit: for any number of threads, and for any number of environments per call."""
    _, credit, _, _ = play(credit_generous=generous)
    _, threaded, _, _ = play(threads=3, credit_generous=generous)
    assert np.array_equal(credit.values, threaded.values, equal_nan=True)
    for at, seed in enumerate(SEEDS):
        _, alone, _, _ = play((seed,), credit_generous=generous)
        assert np.array_equal(alone.values[:, 0], credit.values[:, at], equal_nan=True)


def test_generous_windows_are_what_riders_would_agree_to() -> None:
    """Asked for the most that is likely, answered as the day's riders would: as asked, or as that offer makes them."""
    env, _, _, _ = play()
    bookings, rows = env.bookings, np.arange(4)
    wide = generously(bookings, rows)
    chance = env.world.true_probability(bookings.rider, bookings.purpose)
    widened = 0
    for day in rows:
        for t in range(6):
            likely = [o for o in range(16) if chance[day, t, o] >= 0.7]
            offer = max(likely, key=lambda o: (OFFER_MIN[o], chance[day, t, o]))
            yes = bookings.mood[day, t] < chance[day, t, offer] and offer != NO_CHANGE
            asked = bookings.requests[day, t]
            assert wide[day, t]["pickup_open"] == asked["pickup_open"] - 60 * yes * OFFER_EARLIER_MIN[offer]
            assert wide[day, t]["dropoff_close"] == asked["dropoff_close"] + 60 * yes * OFFER_LATER_MIN[offer]
            widened += yes
    assert widened > 5


def test_the_generous_share_changes_what_later_riders_leave_room_for() -> None:
    """The last request has no later riders, so its credit stays; the others' changes."""
    _, none, _, _ = play(credit_requests=6)
    _, all_, _, _ = play(credit_requests=6, credit_generous=1.0)
    assert np.array_equal(none.values[5], all_.values[5])
    assert not np.array_equal(none.values[:5], all_.values[:5])
    share = (uniform(np.arange(1000, dtype=np.uint64), 30) < 0.5).mean()
    assert share == pytest.approx(0.5, abs=0.02)


def test_days_are_the_same_with_and_without_it() -> None:
    """Observations and rewards know nothing of it; without it the learner is told to use the rewards."""
    _, _, seen, rewards = play()
    _, credit, seen_too, rewards_too = play(credit="rewards")
    assert credit is None
    assert np.array_equal(seen, seen_too)
    assert np.array_equal(rewards, rewards_too)
    held_out = RidesVectorEnv(1, RidesOptions(**SMALL), stream=Stream.EVALUATE)
    assert held_out.credit(SimpleNamespace(steps=6), None) is None
    held_out.close()


def test_days_that_have_not_ended_have_none() -> None:
    """A rollout of 9 steps over days of 6 knows the first day alone; the next one knows what began in it."""
    _, credit, _, _ = play(steps=9)
    known = np.isfinite(credit.values).all(-1)
    assert known[:6].sum(0).tolist() == [4, 4, 4, 4]
    assert not known[6:].any()


def test_what_it_claims_is_compared_with_what_days_gained() -> None:
    """Both are minutes a day; the real figure is the mean of the days' own net gains."""
    _, credit, _, rewards = play()
    assert credit.metrics["credit/real"] == pytest.approx(rewards.sum(0).mean(), abs=1e-4)
    assert np.isfinite(credit.metrics["credit/claimed"])


def test_it_prices_on_the_oracle_it_is_given() -> None:
    """A request of a full day still has a price: plans have room for it."""
    env, _, _, _ = play()
    oracle = RoutingOracle(env.world.problem)
    day = Plans(env.world.problem, 1, 6)
    saved = savings_min(
        oracle, day, env.bookings.requests[:1], np.array([0]), env.bookings.requests[:1, 0], np.array([3], np.uint64),
        "widen",
    )  # fmt: skip
    assert saved.shape == (1, 16)
    assert saved[0, NO_CHANGE] == 0
    assert (saved >= 0).all()


# -- alarms ------------------------------------------------------------------------------------------


def coach() -> Coach:
    return Coach(RidesOptions(**SMALL), SimpleNamespace(notices=[]))  # type: ignore[arg-type]


def watched(days: list[tuple[float, float, float]]) -> dict[str, str]:
    """The alarms after epochs of (net gain, minutes agreed, credit claimed less real)."""
    one = coach()
    for net_min, agreed_min, gap in days:
        one._claimed = gap
        one.watch(net_min, agreed_min)
    return one.alarms


def test_asking_less_while_gaining_more_is_no_alarm() -> None:
    """As a training that goes well: from nothing, over many refused offers, to fewer and better ones."""
    assert watched([(-8 + min(i, 24), 340 - 5 * min(i, 30), 3 + i % 3) for i in range(60)]) == {}


def test_asking_less_while_gaining_less_raises_an_alarm() -> None:
    """The agent that learns to ask ever less: it gained 15.5 at 220 minutes agreed, and now 14.5 at 110."""
    alarms = watched([(15.5, 220, 3)] * 8 + [(14.5, 110, 3)] * 8)
    assert list(alarms) == ["timid"]
    assert "110 minutes a day, 220 before, at a net gain of 14.5 against 15.5" in alarms["timid"]


def test_hardly_asking_any_more_raises_an_alarm_whatever_it_gains() -> None:
    """Below 0.4 of the minutes agreed to at the most."""
    assert list(watched([(10, 300, 3)] * 8 + [(12, 100, 3)] * 8)) == ["timid"]


def test_credit_that_drifts_from_the_truth_raises_an_alarm() -> None:
    """Claimed less real grows from 3 to 9 minutes."""
    alarms = watched([(15, 200, 3)] * 8 + [(15, 200, 9)] * 8)
    assert list(alarms) == ["credit"]
    assert "9.0 minutes more than it gained, 3.0 before" in alarms["credit"]


def test_a_resumed_run_goes_on_watching() -> None:
    """Half of the epochs before, half after; an epoch without credit counts as such."""
    first, second = coach(), coach()
    for one in range(9):
        first._claimed = None if one == 0 else 3.0
        first.watch(15.5, 220)
    second.go_on(first.watched())
    assert second._history == first._history
    for _ in range(8):
        second._claimed = 3.0
        second.watch(14.5, 110)
    assert list(second.alarms) == ["timid"]


# -- training ----------------------------------------------------------------------------------------


def test_a_run_shows_held_out_days_and_keeps_the_alarms(tmp_path, monkeypatch, capsys) -> None:
    """Through shoal.train: the line for the person, the figures in the record, an alarm once in events.jsonl."""
    monkeypatch.setattr("shoal.rides.coach.TIMID_ANYWAY", 2.0)  # any agent is timid now
    own = {**SMALL, "held_out_days": 3}
    result = shoal.train(
        "rides", num_envs=4, epochs=7, env_kwargs=json.dumps(own), runs_dir=str(tmp_path), name="run", log_interval=100
    )
    shown = capsys.readouterr().err
    assert "epoch 0: net gain on 3 held-out days 0.0 min a day" in shown
    assert "epoch 4: net gain on 3 held-out days" in shown
    assert "myopic" in shown
    assert "alarm, timid" in shown
    run = Run.open(result.run, tmp_path)
    rows = run.metrics()
    assert [row["epoch"] for row in rows if row.get("held_out/net_min") is not None] == [1, 2, 4]
    assert {"held_out/sampled_min", "held_out/myopic_min", "held_out/lookahead_min"} <= set(rows[0])
    assert all(row["credit/rows"] == 16 for row in rows)
    alarms = [
        one for one in map(json.loads, (run.path / "events.jsonl").read_text().splitlines()) if "timid" in str(one)
    ]
    assert len(alarms) == 1


def test_it_learns_from_nothing_in_seconds(tmp_path) -> None:
    """Twelve epochs of 64 short days, from random offers: sampled offers go from losing minutes to saving them."""
    own = {**SMALL, "customers": 12, "credit_requests": 12, "vehicles": 3}
    result = shoal.train(
        "rides", num_envs=64, epochs=12, env_kwargs=json.dumps(own), runs_dir=str(tmp_path), name="run",
        learning_rate=3e-3, clip=0.4, minibatch_size=128, log_interval=100,
    )  # fmt: skip
    net = [row["rides/net_min"] for row in Run.open(result.run, tmp_path).metrics()]
    assert net[0] < 0 < net[-1]
    assert np.mean(net[-3:]) > np.mean(net[:3]) + 2


# -- days negotiated again -----------------------------------------------------------------------------


def widest(observations: Any, *, deterministic: bool = True, batched: bool = False) -> Any:
    """A policy that asks everybody for everything."""
    return np.full(len(observations["offers"]), 3)


def nobody(observations: Any, *, deterministic: bool = True, batched: bool = False) -> Any:
    return np.full(len(observations["offers"]), NO_CHANGE)


def negotiated(seeds: tuple[int, ...], policy: Any, threads: int = 1) -> Any:
    """Credit after a rollout, with the later requests negotiated by this policy."""
    env = RidesVectorEnv(len(seeds), RidesOptions(**{**SMALL, "credit": "negotiated", "customers": 9}), threads=threads)
    env.reset(seed=list(seeds))
    env.mark()
    for _ in range(9):
        env.step((mix(env.bookings.step_keys()) >> np.uint64(60)).astype(np.int64))
    credit = env.credit(SimpleNamespace(steps=9), policy)
    env.close()
    return credit.values


def test_days_negotiated_again_have_the_same_credit_whatever_is_beside_them() -> None:
    """To the bit, for any number of threads and of environments; what the policy does later matters, and nothing does
    for the last request."""
    values = negotiated(SEEDS, widest)
    assert np.array_equal(values, negotiated(SEEDS, widest, threads=3), equal_nan=True)
    assert np.array_equal(values[:, 1], negotiated(SEEDS[1:2], widest)[:, 0], equal_nan=True)
    others = negotiated(SEEDS, nobody)
    assert np.array_equal(np.isfinite(values), np.isfinite(others))
    assert np.array_equal(values[8], others[8], equal_nan=True)
    assert not np.array_equal(values[:8], others[:8], equal_nan=True)


def test_with_nobody_asked_later_a_day_negotiated_again_is_the_rebuilt_day_of_nobody_asked() -> None:
    """Both add the later requests as they asked; they differ in the luck of the search alone."""
    env = RidesVectorEnv(4, RidesOptions(**{**SMALL, "credit": "negotiated"}))
    env.reset(seed=list(SEEDS))
    env.mark()
    for _ in range(6):
        env.step(np.full(4, NO_CHANGE))
    again = env.credit(SimpleNamespace(steps=6), nobody).values
    env.close()
    plain = RidesVectorEnv(4, RidesOptions(**SMALL))
    plain.reset(seed=list(SEEDS))
    plain.mark()
    for _ in range(6):
        plain.step(np.full(4, NO_CHANGE))
    rebuilt = plain.credit(SimpleNamespace(steps=6), nobody).values
    plain.close()
    known = np.isfinite(again)
    assert np.array_equal(known, np.isfinite(rebuilt))
    assert np.abs(again[known] - rebuilt[known]).mean() < 1.0
    assert np.corrcoef(again[known], rebuilt[known])[0, 1] > 0.8


@pytest.mark.parametrize("credit", ["rebuilt", "negotiated"])
def test_a_run_with_credit_resumes_to_the_same_bits_on_any_number_of_threads(tmp_path, credit) -> None:
    """Four epochs at once on one thread; two on three threads and two more: weights, days and answers are equal."""
    own = {**SMALL, "credit": credit, "credit_requests": 3, "credit_generous": 0.5, "epsilon": 0.0}
    kept = {
        "env_kwargs": json.dumps(own), "num_envs": 6, "runs_dir": str(tmp_path), "seed": 3, "log_interval": 100,
        "lr_schedule": "constant", "entropy_schedule": "constant", "minibatch_size": 16,
    }  # fmt: skip
    shoal.train("rides", name="whole", epochs=4, env_threads=1, **kept)
    shoal.train("rides", name="half", epochs=2, env_threads=3, **kept)
    shoal.train(resume=tmp_path / "half", epochs=4)
    whole, half = (
        checkpoint.load_latest(Run.open(tmp_path / name, tmp_path).checkpoints).tensors for name in ("whole", "half")
    )
    assert whole.keys() == half.keys()
    assert [name for name in whole if not np.array_equal(whole[name], half[name])] == []
