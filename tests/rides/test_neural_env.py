"""`--oracle neural`: training plans its days with the network, a day at a time or many, from train to evaluate."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import shoal
from shoal.cli import main
from shoal.core.seeds import Stream
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions
from shoal.rides.routing.checker import check_routes
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.oracle import NeuralOracle
from shoal.rides.routing.neural.standing import standing
from shoal.rides.routing.neural.weights import SHIPPED, save_network
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import NO_CHANGE, Status
from shoal.rides.world.world import make_world
from shoal.tasks import options_to_kwargs

QUICK = {"customers": 8, "futures": 0, "start": "none", "prices": "insertion", "background": False}


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """Of a network that was never trained: it makes cheapest insertion in another order."""
    file = tmp_path_factory.mktemp("weights") / "oracle.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_network(RoutingNetwork(), file)
    return file


def _run(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def _days(env: RidesVectorEnv, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    env.reset(seed=3)
    return [env.step(rng.integers(0, 16, 4)[: env.num_envs])[1] for _ in range(steps)]


def test_days_are_planned_by_the_network_and_routes_hold(weights):
    """Every plan passes the checker at every step, its cost and its penalties are right, and no batch changes a bit."""
    rewards = []
    for batch in ("auto", "1"):
        env = RidesVectorEnv(
            4, RidesOptions(**QUICK, vehicles=2, oracle="neural", oracle_weights=str(weights), oracle_batch=batch)
        )
        assert isinstance(env.oracle, NeuralOracle)
        rewards.append(_days(env, 7))
        for plans in (env.bookings.plans, env.bookings.base):
            assert plans is not None
            for day in range(4):
                known = plans.requests[day, : plans.count[day]]
                routes, served = plans.routes(day), plans.served[day, : plans.count[day]]
                assert check_routes(env.world.problem, known, routes, served) == []
        figures = env.after_rollout(0.5)
        assert figures["oracle/taken"] > 0
        assert figures["oracle/fell_back"] >= 0
        env.close()
    assert np.array_equal(*rewards)


def test_a_day_that_is_not_finished_falls_back_and_is_counted():
    """A vehicle for many requests at once: who has no place is turned away, charged, and on no route."""
    problem = make_world(RidesOptions(vehicles=1)).problem
    requests = np.stack([make_world(RidesOptions()).days("train").draw(seed).requests for seed in range(8)])
    requests["pickup_open"], requests["pickup_close"] = 36_000, 39_600
    requests["dropoff_open"], requests["dropoff_close"] = 36_000, 43_200
    oracle = NeuralOracle(problem, RoutingNetwork())
    plans, keys = Plans(problem, 8, 12), np.arange(8).astype(np.uint64)
    for step in range(12):
        [status] = oracle.serve([(plans, requests[:, step].copy())], keys)
        assert np.array_equal(status == Status.OK, plans.served[:, step])
    assert ((~plans.served).sum(1) > 0).all()
    assert (plans.penalty_s > 0).all()
    assert oracle.figures()["oracle/fell_back"] > 0
    for day in range(8):
        assert check_routes(problem, plans.requests[day], plans.routes(day), plans.served[day]) == []


def test_prices_of_all_offers_in_one_call(weights):
    """Each is the cost of a plan of its own, so the plan that is then made costs no more; nothing changes."""
    world = make_world(RidesOptions())
    requests = np.stack([world.days("train").draw(seed).requests for seed in range(4)])
    oracle, keys = NeuralOracle(world.problem, RoutingNetwork()), np.arange(4).astype(np.uint64)
    plans = Plans(world.problem, 4, 30)
    for step in range(6):
        oracle.serve([(plans, requests[:, step].copy())], keys)
    before = plans.copy()
    cost_s, status = oracle.price(plans, requests[:, 6].copy(), np.tile(np.arange(16), (4, 1)))
    assert cost_s.shape == status.shape == (4, 16)
    assert (status == Status.OK).all()
    assert all(np.array_equal(array, before.arrays()[name]) for name, array in plans.arrays().items())
    oracle.serve([(plans, requests[:, 6].copy())], keys)
    assert (plans.cost_s <= cost_s[:, NO_CHANGE]).all()


def test_the_weights_that_ship_beat_insertion_and_are_what_their_card_says():
    """Without --oracle-weights, greedily, as the report in the card says."""
    card = json.loads(SHIPPED.with_suffix(".json").read_text())
    assert card["sha256"] == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    assert all(card["report"]["claims"].values())
    assert "of 30 requests are" in standing()
    assert SHIPPED.stat().st_size < 4_000_000
    env = RidesVectorEnv(1, RidesOptions(**QUICK, oracle="neural"))
    problem, oracle = env.world.problem, RoutingOracle(env.world.problem)
    assert isinstance(env.oracle, NeuralOracle)
    source = make_world(RidesOptions(customers=30)).days("held_out", again=True)
    requests = np.stack([source.draw(50_000 + seed).requests for seed in range(48)])
    for size in (10, 20, 30):
        plans = Plans(problem, 48, size)
        for step in range(size):
            oracle.add(plans, requests[:, step].copy(), np.arange(48).astype(np.uint64), 0)
        found = env.oracle.router.route(requests[:, :size], np.full(48, size))
        whole = found.placed.all(1) & plans.served.all(1)
        assert whole.sum() >= 46
        assert found.cost_s[whole].sum() < 0.98 * plans.cost_s[whole].sum()
    env.close()


def test_more_plans_of_a_day_are_asked_for_by_a_flag():
    """The best of several is never longer at the first request that makes a difference, and is what the env plans."""
    costs = {}
    for words in ("greedy", "best-of-4", "sampled-4"):
        env = RidesVectorEnv(8, RidesOptions(**QUICK, oracle="neural", oracle_decode=words))
        plans, keys = env.bookings.plans, np.arange(8).astype(np.uint64)
        source = env.world.days("train")
        requests = np.stack([source.draw(seed).requests for seed in range(8)])
        assert isinstance(env.oracle, NeuralOracle)
        for step in range(7):
            env.oracle.add(plans, requests[:, step].copy(), keys, 0)
        cost_s, status = env.oracle.price(plans, requests[:, 7].copy(), np.full((8, 1), NO_CHANGE))
        assert (status == Status.OK).all()
        costs[words] = cost_s[:, 0]
        env.close()
    assert (costs["best-of-4"] <= costs["greedy"]).all()
    assert (costs["sampled-4"] <= costs["greedy"]).all()
    assert (costs["sampled-4"] < costs["greedy"]).any()


def test_evaluation_uses_the_compiled_search(weights):
    options = RidesOptions(**QUICK, oracle="neural", oracle_weights=str(weights))
    env = RidesVectorEnv(1, options, stream=Stream.EVALUATE)
    assert type(env.oracle) is RoutingOracle
    env.close()


def test_trained_resumed_and_evaluated(weights, tmp_path, capsys):
    """From the shell: the same run in one go and resumed has the same metrics; then an evaluation."""
    words = ["train", "rides", "--num-envs", "2", "--oracle", "neural", "--oracle-weights", weights, "--customers", "6"]
    words += ["--futures", "0", "--start", "none", "--prices", "insertion", "--held-out-days", "0", "--no-background"]
    words += ["--oracle-decode", "best-of-2", "--runs-dir", tmp_path]
    assert _run(*words, "--name", "whole", "--epochs", "2") == 0
    assert _run(*words, "--name", "part", "--epochs", "1") == 0
    assert _run("train", "--resume", tmp_path / "part", "--epochs", "2") == 0

    def costs(name):
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [line["rides/cost_min"] for line in lines if "rides/cost_min" in line]

    assert costs("whole") == costs("part")
    assert len(costs("whole")) == 2
    kwargs = json.loads(json.loads((tmp_path / "whole" / "config.json").read_text())["env_kwargs"])
    assert (kwargs["oracle"], kwargs["oracle_decode"]) == ("neural", "best-of-2")
    assert _run("evaluate", tmp_path / "whole", "--days", "2", "--no-reference", "--oracle-iterations", "2") == 0
    assert _run("report", tmp_path / "whole") == 0
    weights.rename(weights.with_suffix(".moved"))  # what was trained needs them no more
    try:
        assert shoal.load_policy(tmp_path / "whole") is not None
    finally:
        weights.with_suffix(".moved").rename(weights)
    capsys.readouterr()


_MEASURE = """
import threading, time
import numpy as np
import torch
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions

torch.set_num_threads(1)
own = {"futures": 0, "start": "none", "prices": "insertion", "knowledge": "true", "background": False}
days, customers = 96, 30

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

env = RidesVectorEnv(days, RidesOptions(oracle="neural", customers=customers, **own))
env.reset(seed=0)
plans, keys = env.bookings.plans, np.arange(days).astype(np.uint64)
requests = env.bookings.requests
for step in range(customers - 1):
    env.oracle.add(plans, requests[:, step].copy(), keys, 0)
first = type(plans)(plans.problem, days, customers)
env.oracle.serve([(first, requests[:, 0].copy())], keys, active=np.arange(days) < 1)
before, peak, done = resident(), 0, False

def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.001)

thread = threading.Thread(target=watch)
thread.start()
last = requests[:, -1].copy()
env.oracle.serve([(plans, last), (plans.copy(), last)], keys)
done = True
thread.join()
print(env.bytes_needed(days) / (peak - before))
"""


def test_the_memory_said_of_the_oracle_is_the_memory_taken():
    """Within a fifth: at the last request of a day, when it takes the most."""
    own = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed leaves the process, not only the program
    done = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True, env=own)
    assert 0.8 < float(done.stdout) < 1.25, done.stdout


def test_the_number_of_environments_leaves_room_for_the_oracle(weights, tmp_path, capsys):
    """--num-envs auto within 24 MB: the compiled search leaves room for far more environments, and says no figure."""
    said = {}
    for oracle in ("incremental", "neural"):
        words = ["train", "rides", "--oracle", oracle, "--num-envs", "auto", "--memory-budget-gb", "0.024"]
        words += ["--oracle-weights", weights] if oracle == "neural" else []
        words += ["--futures", "0", "--start", "none", "--prices", "insertion", "--held-out-days", "0"]
        words += ["--customers", "10", "--epochs", "1", "--no-background", "--runs-dir", tmp_path, "--name", oracle]
        assert _run(*words) == 0
        shown = capsys.readouterr()
        said[oracle] = shown.out + shown.err
    fit = {name: int(re.search(r"at most ([\d,]+) fit", text)[1].replace(",", "")) for name, text in said.items()}
    assert 1 < fit["neural"] < fit["incremental"] / 2
    own = re.search(r"of what its environments compute about ([\d.]+) MB", said["neural"])
    assert own is not None
    assert 1 < float(own[1]) < 24
    assert "of what its environments compute" not in said["incremental"]


def test_mistakes_are_told(weights, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal.rides.routing.neural.weights.SHIPPED", tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match=r"no weights .* come with shoal: give --oracle-weights FILE; shoal rides fit"):
        RidesVectorEnv(1, RidesOptions(**QUICK, oracle="neural"))
    with pytest.raises(ValueError, match="expected --oracle neural beside --oracle-weights"):
        RidesOptions(oracle_weights=str(weights))
    with pytest.raises(ValueError, match="--oracle-batch as auto or a number of days, got 'lots'"):
        RidesOptions(oracle="neural", oracle_batch="lots")


def test_options_that_came_later_change_nothing_stored():
    """At their defaults they are in no file and no hash; elsewhere they are."""
    assert not {"oracle", "oracle_weights", "oracle_batch", "oracle_decode"} & set(
        json.loads(options_to_kwargs(RidesOptions()))
    )
    assert json.loads(options_to_kwargs(RidesOptions(oracle="neural")))["oracle"] == "neural"
