"""`shoal rides fit`: weights from a command, with a card; what was made can be used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cli import main
from shoal.rides.fit.command import TAUGHT_WIDTH
from shoal.rides.options import RidesOptions
from shoal.rides.policies.lookahead import Lookahead
from shoal.rides.policies.network import RidesNetwork, space_of_days

DATA = Path(__file__).parents[2] / "src/shoal/rides/data"
SMALL = ["--customers", "6", "--prices", "insertion", "--workers", "1"]


def _run(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def _card(file: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads(file.with_suffix(".json").read_text())
    assert card["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    return card


def test_a_lookahead_is_made_and_training_starts_from_it(tmp_path, capsys):
    """Twice the same bits; the card names the command; `shoal train rides --lookahead` takes the file."""
    files = [tmp_path / "one" / "look.npz", tmp_path / "two.npz"]
    for file in files:
        assert _run("rides", "fit", "lookahead", "--days", 60, "--passes", 1, "--out", file, *SMALL) == 0
    cards = [_card(file) for file in files]
    assert cards[0]["command"] == cards[1]["command"]
    assert cards[0]["command"].startswith("shoal rides fit lookahead --prices insertion --days 60 --customers 6 ")
    assert cards[0]["scores"] == cards[1]["scores"]
    assert cards[0]["scores"]["days"] == 60  # thirty generous ones, and thirty under what was fitted on those
    one, two = map(Lookahead.load, files)
    assert all(np.array_equal(a, b) for a, b in zip(one.weights, two.weights, strict=True))
    assert "held_out_r2" in capsys.readouterr().out
    assert RidesOptions(lookahead=str(files[0]), start="lookahead").lookahead
    words = ["train", "rides", "--num-envs", "2", "--epochs", "1", "--start", "lookahead", "--lookahead", str(files[0])]
    words += ["--prices", "insertion", "--futures", "0", "--customers", "6", "--iterations", "1", "--name", "r"]
    assert _run(*words, "--runs-dir", tmp_path) == 0


def test_a_network_is_taught(tmp_path, capsys):
    """Its weights have the names and shapes of those that ship; --json prints the card."""
    file = tmp_path / "taught.npz"
    words = ["rides", "fit", "taught", "--days", "20", "--steps", "2", "--out", str(file), "--json", *SMALL]
    assert _run(*words) == 0
    assert json.loads(capsys.readouterr().out) == _card(file)
    network = RidesNetwork(space_of_days(6), width=TAUGHT_WIDTH, start="taught", temperature=1.0)
    network.learn_from(file)
    with np.load(DATA / "taught_insertion.npz", allow_pickle=False) as shipped, np.load(file) as made:
        assert {name: shipped[name].shape for name in shipped} == {name: made[name].shape for name in made}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["taught", "--days", "19"], "--days of at least 20, got 19"),
        (["lookahead", "--out", "x.csv"], "--out as a file that ends in .npz, got 'x.csv'"),
        (["lookahead", "--workers", "0"], "--workers of at least 1, got 0"),
    ],
)
def test_mistakes_are_told(words, said, capsys):
    assert _run("rides", "fit", *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(DATA.glob("*.npz")), ids=lambda file: file.stem)
def test_weights_that_ship_have_a_card(file):
    """Of these very weights."""
    card = _card(file)
    assert {"weights", "sha256", "command", "code", "made", "seed", "days", "scores"} <= set(card)
    assert card["weights"] == file.name
