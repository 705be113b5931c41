"""The exported agent: one file and its weights, equal to the run's greedy policy on the recordings of CybORG."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.cage2.defender import cage2_policy
from shoal.cage2.leaderboard import rollout
from shoal.cage2.simulator.memory import MEMORY, forget, remember_bits, write_features, write_useful
from shoal.cage2.simulator.network import NUM_ACTIONS
from shoal.cage2.simulator.step import STATE, start, write_bits
from shoal.cage2.traces import load
from shoal.cage2.workflows.ordered import AT_ORDER, AT_PLAIN_ORDER, forbid_others, write_order, write_suspicion
from shoal.cage2.workflows.orders import number_of
from shoal.cage2.workflows.suspicion import WATCH, begin_watch, due_set, watch
from shoal.cli import main
from shoal.tasks.networks import load_policy

ORDER = "user,enterprise,op_server,op_host,defender"
VARIANTS: dict[str, dict[str, Any]] = {
    "memory": {},
    "plain": {"features": "plain"},
    "no mask": {"mask": "none", "features": "plain"},
    "ordered": {"order": ORDER},
    "obedient": {"order": ORDER, "mask": "obedient"},
    "plain ordered": {"order": ORDER, "features": "plain"},
    "drawn": {"order": "drawn", "mask": "obedient"},
}


def trained(folder: Path, name: str, options: dict[str, Any], **more: Any) -> Path:
    """A run that has learnt a little: enough for its actions to differ from state to state."""
    result = shoal.train(
        "cage2", env_kwargs=json.dumps(options), num_envs=16, rollout_steps=32, minibatch_size=128, epochs=3,
        learning_rate=0.01, hidden=(16, 16), runs_dir=str(folder), name=name.replace(" ", "-"), seed=3,
        **{"lr_final": 0.01, **more},
    )  # fmt: skip
    return Path(result.run)


def imported(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"agent_{folder.name}", folder / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Agent()


def observations(recorded: np.ndarray, options: dict[str, Any]) -> dict[str, np.ndarray]:
    """What a policy of these options sees along episodes, by shoal's own functions."""
    m, w = (np.zeros(1, kind).view(np.recarray)[0] for kind in (MEMORY, WATCH))
    order = options.get("order", "none")
    number = -1 if order == "none" else number_of(ORDER if order == "drawn" else order)
    plain = options.get("features") == "plain"
    width = (52 if plain else 295) + (0 if number < 0 else 10 if plain else 49)
    seen = np.zeros((*recorded.shape, width), np.uint8)
    masks = np.zeros((*recorded.shape, NUM_ACTIONS), np.int8)
    for episode in range(recorded.shape[0]):
        forget(m)
        begin_watch(w)
        for t in range(recorded.shape[1]):
            bits = recorded["obs"][episode, t]
            remember_bits(m, bits, int(recorded["blue_action"][episode, t]))
            watch(w, m, bits)
            row, mask, due = seen[episode, t], masks[episode, t], 0
            row[:52] = bits
            if not plain:
                write_features(m, row)
            if number >= 0:
                write_order(number, row, AT_PLAIN_ORDER if plain else AT_ORDER)
                due = due_set(number, int(w.suspected))
                if not plain:
                    write_suspicion(int(w.suspected), int(w.doubtful), due, row)
            write_useful(m.standing, bits, mask)
            if options.get("mask") == "obedient":
                forbid_others(due, mask)
    found = {"obs": seen.reshape(-1, width)}
    return found if options.get("mask") == "none" else {**found, "action_mask": masks.reshape(-1, NUM_ACTIONS)}


def follow(agent: Any, recorded: np.ndarray) -> np.ndarray:
    """The agent's choice after every step of the recordings, whose actions were taken in place of its own."""
    chosen = np.zeros(recorded.shape, np.int64)
    for episode in range(recorded.shape[0]):
        agent.end_episode()
        agent.get_action(np.zeros(52, np.int64), None)
        for t in range(recorded.shape[1]):
            agent.took(recorded["blue_action"][episode, t])
            chosen[episode, t] = agent.get_action(recorded["obs"][episode, t].astype(np.int64), None)
    return chosen


def check_equal(run: Path, agent: Any, options: dict[str, Any], files: list[Path], episodes: int) -> int:
    """The same action wherever two of them are not as good as alike; returns how many steps were compared."""
    policy = load_policy(run)
    compared, kinds = 0, set()
    for path in files:
        recorded = load(path)[:episodes]
        leaves: Any = observations(recorded, options)
        batch = leaves if "action_mask" in leaves else leaves["obs"]
        expected = policy(batch, batched=True)
        chosen = follow(agent, recorded).ravel()
        assert (chosen == expected).mean() == 1.0, f"{path.name}: {np.flatnonzero(chosen != expected)[:5]}"
        compared += chosen.size
        kinds |= set(chosen.tolist())
    assert len(kinds) > 1, "a policy that always does the same proves nothing"
    return compared


@pytest.mark.parametrize("name", VARIANTS)
def test_it_acts_as_the_run_does_on_recordings(name: str, data: Path, tmp_path: Path) -> None:
    """Of every kind of observation, an episode of each recording under either rules."""
    options = VARIANTS[name]
    run = trained(tmp_path, name, options, **({"normalise_observations": True} if name == "plain" else {}))
    words = ["cage2", "export", str(run), str(tmp_path / "agent")]
    words += ["--order", ORDER] if options.get("order") == "drawn" else []
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert sorted(path.name for path in (tmp_path / "agent").iterdir()) == ["README.txt", "agent.py", "weights.npz"]
    files = [path for pattern in ("traces_*.npz", "final_*.npz") for path in sorted(data.glob(pattern))]
    assert len(files) == 16
    few = files if name == "memory" else files[::4]
    check_equal(run, imported(tmp_path / "agent"), options, few, 1)


@pytest.mark.slow
def test_it_acts_as_the_run_does_on_every_step_of_all_recordings(data: Path, tmp_path: Path) -> None:
    """127,200 steps, with memory and mask."""
    run = trained(tmp_path, "r", {}, epochs=10)
    main_words = ["cage2", "export", str(run), str(tmp_path / "agent")]
    with pytest.raises(SystemExit):
        main(main_words)
    files = [path for pattern in ("traces_*.npz", "final_*.npz") for path in sorted(data.glob(pattern))]
    assert check_equal(run, imported(tmp_path / "agent"), {}, files, 10**6) == 127_200


def test_it_scores_what_the_run_scores(tmp_path: Path) -> None:
    """Its own episodes, from reset on: the same returns to a tenth, against Meander."""
    run = trained(tmp_path, "r", {})
    with pytest.raises(SystemExit):
        main(["cage2", "export", str(run), str(tmp_path / "agent")])
    act, options = cage2_policy(run)
    whole = rollout(act, "meander", 3, seed=5, num_envs=3, **options)
    agents = [imported(tmp_path / "agent") for _ in range(3)]

    def one_by_one(bits: Any, begun: Any) -> np.ndarray:
        for agent, first in zip(agents, begun, strict=True):
            if first:
                agent.end_episode()
        return np.array([agent.get_action(row) for agent, row in zip(agents, bits, strict=True)])

    found = rollout(one_by_one, "meander", 3, seed=5, num_envs=3, features="plain", mask="none")
    np.testing.assert_array_equal(found, whole)
    s: Any = np.zeros(1, STATE).view(np.recarray)[0]
    start(s, 0)
    bits = np.zeros(52, np.uint8)
    write_bits(s, bits)
    assert not bits.any(), "the first observation is all zero, as the agent's test assumes"


def test_it_needs_numpy_alone(tmp_path: Path) -> None:
    """In a process where shoal and torch cannot be imported, and as a BaseAgent where CybORG is there."""
    run = trained(tmp_path, "r", {})
    with pytest.raises(SystemExit):
        main(["cage2", "export", str(run), str(tmp_path / "agent")])
    code = (
        "import sys\n"
        "for name in ('shoal', 'torch', 'numba', 'gymnasium'): sys.modules[name] = None\n"
        "from agent import Agent, BaseAgent\n"
        "import numpy as np\n"
        "agent = Agent()\n"
        "print(isinstance(agent, BaseAgent), agent.get_action(np.zeros(52), None) in range(145))\n"
        "agent.end_episode(); agent.train(None); agent.set_initial_values(None)\n"
        "try: agent.get_action(np.zeros(60))\n"
        "except ValueError as error: print(error)\n"
    )
    base = tmp_path / "CybORG" / "Agents" / "SimpleAgents"
    base.mkdir(parents=True)
    (base / "BaseAgent.py").write_text("class BaseAgent: pass\n")
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {[str(tmp_path), str(tmp_path / 'agent')]}\n{code}"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["True True", "expected an observation of 52 bits, got shape (60,)"], done.stderr


def test_what_cannot_be_exported_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with files in it, an order that is missing or too many, a run of another task, one word."""
    run = trained(tmp_path, "r", {})
    drawn = trained(tmp_path, "d", {"order": "drawn"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    pole = shoal.train("CartPole-v1", steps=64, num_envs=2, rollout_steps=16, minibatch_size=32, backend="serial",
                       runs_dir=str(tmp_path), name="pole").run  # fmt: skip
    for words, said in (
        ([str(run), str(tmp_path / "full")], "empty, got one with files in it"),
        ([str(drawn), str(tmp_path / "a")], "--order: expected one of the 120 orders"),
        ([str(run), str(tmp_path / "a"), "--order", ORDER], "trained without one"),
        ([str(drawn), str(tmp_path / "a"), "--order", "user,moon"], "expected"),
        ([pole, str(tmp_path / "a")], "expected a run of cage2, got one of CartPole-v1"),
        ([str(run)], "expected a run and a folder"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["cage2", "export", *words])
        assert end.value.code not in (0, None)
        assert said in capsys.readouterr().err
        assert not (tmp_path / "a").exists()
