"""`shoal rides fit oracle`: the network learns to copy plans; a fit can be interrupted; the file can be used."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch

from shoal.cli import main
from shoal.rides.fit import imitation, oracle
from shoal.rides.fit.imitation import copied
from shoal.rides.fit.lessons import loss_of
from shoal.rides.fit.plans_to_copy import copybook
from shoal.rides.options import RidesOptions
from shoal.rides.routing.neural.fleet import City
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.weights import load_network
from shoal.rides.world.world import make_world


def _run(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(imitation, "BOOK_DAYS", 24)
    monkeypatch.setattr(imitation, "PASSES", 1)
    monkeypatch.setattr(imitation, "AGAIN", 1)
    monkeypatch.setattr(oracle, "_HELD_OUT_DAYS", 4)


def test_a_network_learns_to_copy_plans():
    """Nearly all places of the plans are among those that it chooses from, and it comes to prefer them."""
    world = make_world(RidesOptions(customers=45))
    book = copybook(world, 0, 0, 48)
    torch.manual_seed(0)
    network = RoutingNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    lesson = copied(City.of(world.problem), book, np.random.default_rng(0))
    found = []
    for _ in range(12):
        loss, _ = loss_of(network, lesson)
        found.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert lesson.known.sum() > 0.9 * book.count.sum()
    assert found[-1] < 0.8 * found[0]


def test_a_fit_goes_on_where_it_stopped(small, tmp_path, capsys):
    file = tmp_path / "w.safetensors"
    words = ["rides", "fit", "oracle", "--out", file, "--seed", 3]
    assert _run(*words, "--hours", 1, "--minutes", 0.0001) == 0
    first = json.loads(file.with_suffix(".json").read_text())
    assert (first["days"] > 15, first["steps"]) == (True, 1)
    assert _run(*words, "--hours", 1e-9) == 0  # nothing is left to do
    assert json.loads(file.with_suffix(".json").read_text())["sha256"] == first["sha256"]
    (tmp_path / "w.fit" / "plans-00000.npz").unlink()  # it is made again
    hours = (first["fit_cpu_s"] + 0.5) / 3600 + 0.001
    assert _run(*words, "--hours", hours, "--json") == 0
    said = capsys.readouterr()
    assert "going on after 1 steps" in said.err + said.out
    card = json.loads(file.with_suffix(".json").read_text())
    assert card["steps"] > 1
    assert card["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert card["command"] == f"shoal rides fit oracle --seed 3 --hours {hours}"
    assert {"gap_percent_30", "finished_percent_30"} <= set(card["scores"])
    assert load_network(file).shape == RoutingNetwork().shape
    assert _run(*words[:-1], 4, "--hours", hours) == 2
    assert "holds a fit of --seed 3, got --seed 4" in capsys.readouterr().err


def test_mistakes_are_told(capsys, tmp_path):
    assert _run("rides", "fit", "oracle", "--hours", 0) == 2
    assert "--hours above 0, got 0.0" in capsys.readouterr().err
    assert _run("rides", "fit", "oracle", "--out", "x.npz") == 2
    assert "--out as a file that ends in .safetensors, got 'x.npz'" in capsys.readouterr().err
    assert _run("rides", "fit", "oracle", "--minutes", 0) == 2
    assert "--minutes above 0, got 0.0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected a file, there is none; shoal rides fit oracle --hours 3 makes"):
        load_network(tmp_path / "none.safetensors")
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        load_network(tmp_path / "junk.safetensors")
