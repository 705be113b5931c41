"""`shoal tune` as a user types it."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import pytest

from shoal import cli
from shoal.config import TrainConfig

QUICK = ["--num-envs", "2", "4", "--seconds", "0.02", "--turns", "2"]


def run(*args: str, code: int = 0) -> None:
    """Call the command line in this process and check its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(args))
    assert (ended.value.code or 0) == code


def test_tune_measures_every_backend_with_every_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--json has each trial with its flags; what will be measured, and for how long, is said before."""
    monkeypatch.setattr("shoal.vector.tune.usable_cores", lambda: 2)
    run("tune", "CartPole-v1", *QUICK, "--json")
    out, err = capsys.readouterr()
    found = json.loads(out)
    tried = {(one["backend"], one["num_envs"]) for one in found["trials"]}
    assert tried == {(backend, number) for backend in ("serial", "process", "split") for number in (2, 4)}
    assert all(one["steps_per_s"] > 0 and one["cpu_s_per_step"] > 0 for one in found["trials"])
    assert found["flags"] in [one["flags"] for one in found["trials"]]
    assert found["env"] == "CartPole-v1"
    assert "serial, process, split with 2, 4 environments: each steps for 0.02 s in 2 turns" in err


def test_tune_prints_a_table_and_the_flags_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a trial, one of them marked; its flags are options of a training."""
    run("tune", "CartPole-v1", *QUICK, "--backends", "serial")
    out = capsys.readouterr().out
    assert sum(line.startswith("serial") for line in out.splitlines()) == 2
    assert sum("<-" in line for line in out.splitlines()) == 1
    (use,) = (line for line in out.splitlines() if line.startswith("use"))
    number = use.split()[-1]
    assert use.endswith(f"shoal train CartPole-v1 --backend serial --num-envs {number}")
    assert number in ("2", "4")
    TrainConfig(task="CartPole-v1").replace(backend="serial", num_envs=int(number))


@pytest.fixture
def picky() -> Any:
    """An environment of the user's own that needs an argument and has few legal actions."""

    class Picky(gym.Env[Any, Any]):
        action_space = gym.spaces.Discrete(50)

        def __init__(self, legal: int) -> None:
            mask = gym.spaces.MultiBinary(50)
            self.observation_space, self.legal = gym.spaces.Dict({"action_mask": mask}), legal

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return {"action_mask": [int(i == self.legal) for i in range(50)]}, {}

        def step(self, action: Any) -> Any:
            if action != self.legal:
                raise ValueError(f"illegal action {action}")
            return {"action_mask": [int(i == self.legal) for i in range(50)]}, 0.0, False, False, {}

    gym.register("Picky-v0", entry_point=Picky)
    yield "Picky-v0"
    del gym.registry["Picky-v0"]


def test_tune_takes_the_users_own_environment(picky: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --env-kwargs, and with legal actions only."""
    run("tune", picky, *QUICK, "--backends", "serial", "--env-kwargs", '{"legal": 7}', "--json")
    assert [one["num_envs"] for one in json.loads(capsys.readouterr().out)["trials"]] == [2, 4]
    run("tune", picky, *QUICK, "--backends", "serial", "--env-kwargs", '{"legal": 7}')
    assert """ --env-kwargs '{"legal": 7}'\n""" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["CartPol-v1"], "CartPole-v1"),
        (["CartPole-v1", "--num-envs", "0"], "--num-envs as whole numbers of at least 1"),
        (["CartPole-v1", "--backends", "threads"], "serial, process, split"),
        (["CartPole-v1", "--seconds", "0"], "--seconds above 0"),
        (["CartPole-v1", "--env-kwargs", "["], "JSON"),
        (["shoal/CartPole-v1", "--backends", "serial"], "expected no --backends"),
    ],
)
def test_wrong_usage_names_the_cure(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and no traceback."""
    run("tune", *args, code=2)
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
