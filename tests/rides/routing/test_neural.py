"""The batched neural router: its routes obey every rule, its bits depend on nothing but the day, memory may run out."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from shoal.rides.options import RidesOptions
from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.neural import router as router_module
from shoal.rides.routing.neural.decode import order_of
from shoal.rides.routing.neural.decoding import Decoding
from shoal.rides.routing.neural.fleet import GAPS, NOWHERE, City, Fleet, make_batch
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.router import Routed, Router, chunk_days, tile_days
from shoal.rides.routing.neural.weights import load_network
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, Status, widened
from shoal.rides.world.world import World, make_world

DEVICES = ("cpu", *(["cuda"] if torch.cuda.is_available() else []))
on_each_device = pytest.mark.parametrize("device", DEVICES)


@functools.cache
def world(**options) -> World:
    return make_world(RidesOptions(customers=45, **options))


def days(count: int, customers: int, **options):
    """(REQUEST[count, customers], how many of each day): widened at random, of every size."""
    rng = np.random.default_rng(count)
    source = world(**options).days("train")
    requests = np.stack([source.draw(seed).requests[:customers] for seed in range(count)])
    offer = rng.integers(16, size=requests.shape)
    return widened(requests, OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer]), rng.integers(0, customers + 1, count)


def network(seed: int = 0) -> RoutingNetwork:
    """One that prefers places for no good reason: what it must not do, the masks must prevent."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = RoutingNetwork()
        torch.nn.init.normal_(made.place_out.weight, std=2.0)
        torch.nn.init.normal_(made.link_out.weight)
    return made


def judge(problem, requests, count, found) -> None:
    for day in range(len(requests)):
        size = count[day]
        routes = [found.stops[day, v, : found.lengths[day, v]].tolist() for v in range(problem.vehicles)]
        placed = found.placed[day]
        assert not placed[size:].any()
        assert check_routes(problem, requests[day, :size], routes, placed[:size]) == []
        assert cost_s(problem, routes, requests[day]) == found.cost_s[day]


@on_each_device
@pytest.mark.parametrize(("vehicles", "capacity"), [(5, 6), (2, 2)])
def test_every_route_passes_the_independent_checker(vehicles, capacity, device):
    problem = world(vehicles=vehicles, capacity=capacity).problem
    requests, count = days(150, 45)
    found = Router(network(), problem, device=device).route(requests, count)
    judge(problem, requests, count, found)
    assert found.placed.sum() > 0.6 * count.sum()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@on_each_device
def test_ten_thousand_days_pass_the_independent_checker(device):
    problem = world().problem
    requests, count = days(10_000, 45)
    judge(problem, requests, count, Router(load_network(), problem, device=device).route(requests, count))


def test_places_are_those_of_the_compiled_insertion():
    """Where routes are short enough for all gaps to be looked at, the cheapest place costs what the kernels say."""
    problem = world().problem
    requests, _ = days(64, 45)
    count = np.full(64, 10)
    batch = make_batch(City.of(problem), requests[:, :10], count)
    fleet, order, oracle = Fleet(batch), order_of(batch), RoutingOracle(problem)
    compared = 0
    for step in range(10):
        request = order[:, step]
        places = fleet.places(request, 16)
        plans = Plans(problem, 64, 10)
        plans.requests[:], plans.count[:] = requests[:, :10], 10
        plans.stops[:], plans.lengths[:] = fleet.routes()
        new = requests[np.arange(64), request.numpy()]
        extra_s, status = oracle.insertion_menu(plans, new)
        seen = plans.lengths.max(1) < GAPS
        ours = places.extra_s[:, 0].numpy()
        assert np.array_equal((ours < NOWHERE)[seen], (status[:, NO_CHANGE] == Status.OK)[seen])
        there = seen & (ours < NOWHERE)
        assert np.array_equal(ours[there], extra_s[there, NO_CHANGE])
        compared += there.sum()
        chosen = (part[:, 0] for part in (places.vehicle, places.pickup_gap, places.dropoff_gap))
        fleet.put(request, *chosen, places.extra_s[:, 0] < NOWHERE)
    assert compared > 200


def same(one, other, rows=slice(None)) -> bool:
    return all(
        np.array_equal(getattr(one, name)[rows], getattr(other, name)) for name in type(one).__dataclass_fields__
    )


@on_each_device
def test_the_chunk_and_the_days_beside_it_change_no_bit_of_a_day(device):
    problem, tile = world().problem, tile_days(device)
    requests, count = days(4 * tile + 22, 30)
    whole = Router(network(), problem, device=device).route(requests, count)
    for chunk in (tile, 2 * tile, 30 * tile):
        assert same(whole, Router(network(), problem, chunk=chunk, device=device).route(requests, count))
    rows = np.array([7, 99, 3])
    assert same(whole, Router(network(), problem, device=device).route(requests[rows], count[rows]), rows)


@on_each_device
@pytest.mark.parametrize("words", ["best-of-3", "sampled-3"])
def test_nor_do_they_where_the_best_of_several_plans_counts(words, device):
    problem, decoding, tile = world().problem, Decoding.of(words)._asdict(), tile_days(device)
    requests, count = days(2 * tile + 6, 16)
    whole = Router(network(), problem, chunk=30 * tile, device=device).route(requests, count, **decoding)
    assert same(whole, Router(network(), problem, chunk=tile, device=device).route(requests, count, **decoding))
    rows = np.array([7, 69, 3])
    assert same(whole, Router(network(), problem, device=device).route(requests[rows], count[rows], **decoding), rows)


def test_a_chunk_is_halved_when_memory_runs_out(monkeypatch):
    """Also where the allocator merely refuses; the results are the same, and the smaller chunk is kept."""
    problem = world().problem
    requests, count = days(200, 12)
    count[:] = 12
    whole = Router(network(), problem).route(requests, count)
    decode = router_module.decode
    errors = iter([RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), MemoryError()])

    def scarce(network, batch, order, **options):
        if len(order) > 64:
            raise next(errors)
        return decode(network, batch, order, **options)

    monkeypatch.setattr(router_module, "decode", scarce)
    router = Router(network(), problem, chunk=256)
    assert same(whole, router.route(requests, count))
    assert (router.chunk, router.halved) == (64, 2)
    assert same(whole, router.route(requests, count))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_that_really_runs_out_of_memory_changes_no_bit():
    """The allocator refuses for true: 8,192 days at once do not fit into what this process may have."""
    problem = world().problem
    requests, count = days(6000, 30)
    whole = Router(network(), problem, chunk=1024, device="cuda").route(requests, count)
    torch.cuda.empty_cache()
    spare = 0.6 * 2**30
    share = (torch.cuda.memory_reserved() + spare) / torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction(share)
        router = Router(network(), problem, chunk=8192, device="cuda")
        assert same(whole, router.route(requests, count))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert router.halved >= 1


def test_a_gpu_that_is_not_there_is_refused():
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="computed on cuda, and torch sees no CUDA device"):
            Router(network(), world().problem, device="cuda")
    with pytest.raises(ValueError, match="expected --oracle neural beside --oracle-device cuda"):
        RidesOptions(oracle_device="cuda")


def test_no_memory_at_all_and_other_errors_are_told(monkeypatch):
    problem = world().problem
    requests, count = days(3, 5)

    def fails(error):
        def raising(*given, **options):
            raise error

        monkeypatch.setattr(router_module, "decode", raising)

    fails(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(MemoryError, match="out of memory with 32 days at once, its smallest batch"):
        Router(network(), problem).route(requests, count + 1)
    fails(RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        Router(network(), problem).route(requests, count + 1)
    with pytest.raises(ValueError, match="--oracle-batch as auto or a number of days from 1, got 'many'"):
        chunk_days("many")


def test_a_day_that_is_not_finished_is_decoded_again_in_another_order(monkeypatch):
    """Some are finished then; the others stay as they were or get more on their routes, and no chunk changes a bit."""
    problem = world(vehicles=2, capacity=2).problem
    requests, count = days(64, 24)
    found = Router(network(), problem).route(requests, count)
    judge(problem, requests, count, found)
    assert same(found, Router(network(), problem, chunk=32).route(requests, count))
    monkeypatch.setattr(router_module, "ORDERS", 1)
    once = Router(network(), problem).route(requests, count)
    whole = once.placed.sum(1) == count
    assert same(found, Routed(*(getattr(once, name)[whole] for name in Routed.__dataclass_fields__)), whole)
    assert (found.placed.sum(1) >= once.placed.sum(1)).all()
    assert (found.placed.sum(1) == count).sum() > whole.sum()


def test_more_starts_and_samples_are_never_worse():
    problem = world().problem
    requests, count = days(40, 20)
    router = Router(network(), problem)
    greedy = router.route(requests, count)
    for words in ("best-of-3", "sampled-3"):
        found = router.route(requests, count, **Decoding.of(words)._asdict())
        judge(problem, requests, count, found)
        more = found.placed.sum(1) > greedy.placed.sum(1)
        assert (more | (found.cost_s <= greedy.cost_s)).all()
        assert (found.cost_s < greedy.cost_s).any()
