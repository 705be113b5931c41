"""The commands as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from shoal import cli

SMALL = ["--num-envs", "4", "--rollout-steps", "32", "--backend", "serial", "--minibatch-size", "64"]


def run(*args: str, code: int = 0) -> None:
    """Call the command line in this process and check its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(args))
    assert (ended.value.code or 0) == code


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny finished run."""
    root = tmp_path_factory.mktemp("runs")
    run("train", "CartPole-v1", *SMALL, "--steps", "512", "--runs-dir", str(root), "--name", "tiny")
    return root / "tiny"


def last_json(text: str) -> dict:
    return json.loads(text.strip().splitlines()[-1])


def test_train_prints_where_it_is_and_what_to_type_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a run the person knows the folder, the page and the next command."""
    run("train", "CartPole-v1", *SMALL, "--steps", "256", "--save-dir", str(tmp_path), "--name", "a")
    out = capsys.readouterr().out
    assert "finished: budget of 256 steps spent" in out
    assert f"shoal evaluate {tmp_path / 'a'}" in out
    assert (tmp_path / "a" / "report.html").exists()


def test_both_spellings_of_familiar_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--n-envs, --lr, --num-episodes and --checkpoint-dir mean what people expect."""
    flags = ["--n-envs", "2", "--lr=0.01", "--num-episodes", "3", "--checkpoint-dir", str(tmp_path)]
    run("train", "CartPole-v1", *flags, "--rollout_steps", "32", "--backend", "serial", "--name", "b", "--json")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["vector"]["num_envs"] == 2
    assert config["ppo"]["learning_rate"] == 0.01
    assert config["run"]["episodes"] == 3
    assert config["run"]["steps"] is None
    assert last_json(capsys.readouterr().out)["episodes"] >= 3


def test_evaluate_gives_both_modes_with_intervals(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json ends with one object that holds the means, their intervals and every return."""
    run("evaluate", str(trained), "--episodes", "5", "--json")
    result = last_json(capsys.readouterr().out)
    for mode in ("deterministic", "sampled"):
        assert len(result[mode]["returns"]) == 5
        assert result[mode]["low"] <= result[mode]["mean"] <= result[mode]["high"]
    run("evaluate", str(trained), "--episodes", "5")
    assert "95 % interval" in capsys.readouterr().out


def test_evaluate_shows_small_returns(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FrozenLake's 0.753 [0.725, 0.780] is not "0.8 [0.7, 0.8]"."""

    row = {"mean": 0.7534, "low": 0.7249, "high": 0.7801, "median": 1.0, "worst": 0.0, "best": 1.0, "mean_length": 40.0}
    found = {"task": "FrozenLake-v1", "epoch": 3, "episodes": 1000, "seed": 0, "deterministic": row, "sampled": row}
    monkeypatch.setattr(sys.modules["shoal.evaluation"], "evaluate", lambda *_, **__: found)
    run("evaluate", str(trained))
    assert "0.753" in (out := capsys.readouterr().out)
    assert "[0.725, 0.780]" in out


def test_evaluate_is_reproducible(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same evaluation twice gives the same returns, sampled ones too; another seed gives others."""
    results = []
    for seed in ("7", "7", "8"):
        run("evaluate", str(trained), "--episodes", "4", "--seed", seed, "--json")
        results.append(last_json(capsys.readouterr().out)["sampled"]["returns"])
    assert results[0] == results[1] != results[2]


def test_resume_goes_on_and_refuses_another_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A resumed run may get more budget, but not another learning rate."""
    run("train", "--resume", str(trained), "--lr", "0.5", code=2)
    assert "start a new run" in capsys.readouterr().err
    run("train", "--resume", str(trained), "--steps", "1024", "--json")
    assert last_json(capsys.readouterr().out)["steps"] == 1024


def test_report_can_be_written_again(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`shoal report RUN` rewrites the page."""
    (trained / "report.html").unlink()
    run("report", str(trained))
    assert (trained / "report.html").exists()


def test_tasks_lists_what_ships(capsys: pytest.CaptureFixture[str]) -> None:
    """Every listed task can be made: a Gymnasium id, or what its own function gives."""
    import gymnasium as gym

    from shoal.tasks import environment

    run("tasks", "--json")
    names = [row["task"] for row in last_json(capsys.readouterr().out)["tasks"]]
    assert "CartPole-v1" in names
    for name in names:
        made, _ = environment(name, {})
        assert not isinstance(made, str) or made in gym.registry


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "CartPol-v1"], "CartPole-v1"),
        (["train", "CartPole-v1", "--nun-envs", "3"], "--num-envs"),
        (["train", "CartPole-v1", "--num-envs", "0"], "at least 1"),
        (["train", "CartPole-v1", "--gamma", "1.5"], "at most 1"),
        (["train", "CartPole-v1", "--steps", "5", "--epochs", "5"], "one budget"),
        (["train", "CartPole-v1", "--env-kwargs", "{"], "JSON"),
        (["train", "CartPole-v1", "--name", "../x"], "not allowed"),
        (["train", "CartPole-v1", "--backend", "compiled"], "not a compiled environment"),
        (["train", "CartPole-v1", "--num-envs", "100000000"], "environments would fit"),
        (["train", "CartPole-v1", "--track", "comet"], "tensorboard"),
        (["train", "--resume", "nothing-there"], "no run"),
        (["evaluate", "nothing-there"], "no run"),
        (["evaluate"], "--run"),
        (["bench", "vector"], "unknown command 'bench'"),
        (["tune"], "expected ID"),
    ],
)
def test_wrong_usage_names_the_cure(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong command exits with 2 and says what to do, without a traceback."""
    if args[0] == "train" and "--resume" not in args:
        args = [*args, "--runs-dir", str(tmp_path)]
    run(*args, code=2)
    printed = " ".join("".join(capsys.readouterr()).replace("│", " ").split())  # messages may be wrapped in a box
    assert said in printed
    assert "Traceback" not in printed


def test_import_is_light() -> None:
    """`import shoal` touches neither torch nor numba nor matplotlib; `shoal --help` works."""
    code = "import shoal, sys; print([m for m in ('torch', 'numba', 'matplotlib') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
    helped = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "train", "--help"], capture_output=True, text=True, check=True
    )
    assert "--num-envs" in helped.stdout


@pytest.mark.parametrize(
    "first", ["import shoal", "import shoal.training", "from shoal.evaluation import interval, evaluate"]
)
def test_verbs_are_functions_whatever_was_imported_before(first: str) -> None:
    """`shoal.train` is the function although train.py is a file of the same name: help() and signatures show it."""
    code = f"""
        import inspect, pydoc
        {first}
        import shoal
        from shoal.training import train
        assert shoal.train is train and inspect.isfunction(train) and inspect.isfunction(shoal.evaluate)
        assert "resume" in inspect.signature(shoal.train).parameters
        assert "run folder" in pydoc.render_doc(shoal.train), pydoc.render_doc(shoal.train)
        assert dir(shoal) == sorted(shoal.__all__), dir(shoal)
        assert {{"make_vec", "load_policy", "WorkflowSearch"}} <= set(dir(shoal))
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_a_resumed_run_remembers_its_new_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After `--resume --steps MORE` the folder says so, and a plain `--resume` has nothing left to do."""
    run("train", "CartPole-v1", *SMALL, "--steps", "128", "--runs-dir", str(tmp_path), "--name", "r")
    run("train", "--resume", str(tmp_path / "r"), "--steps", "384")
    assert json.loads((tmp_path / "r" / "config.json").read_text())["run"]["steps"] == 384
    assert "changed steps: 128 -> 384" in (tmp_path / "r" / "events.jsonl").read_text()
    capsys.readouterr()
    run("train", "--resume", str(tmp_path / "r"), "--json")
    assert last_json(capsys.readouterr().out)["reason"] == "budget of 384 steps spent"


def test_a_task_has_the_same_defaults_from_python_and_from_the_command_line(tmp_path: Path) -> None:
    """cage2's own flags are written down whichever way the run was started."""
    import shoal
    from shoal.tasks.presets import config_for

    small = ["--num-envs", "4", "--rollout-steps", "8", "--minibatch-size", "16", "--steps", "32"]
    run("train", "cage2", *small, "--runs-dir", str(tmp_path), "--name", "typed")
    options = {"num_envs": 4, "rollout_steps": 8, "minibatch_size": 16, "steps": 32}
    shoal.train("cage2", **options, runs_dir=str(tmp_path), name="called")
    typed, called = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("typed", "called"))
    assert typed["env_kwargs"] == called["env_kwargs"] == config_for("cage2").env_kwargs
    assert json.loads(typed["env_kwargs"])["horizon"] == [30, 50, 100]


def test_cage2_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replay of a recording, an episode in words with its picture, and wrong usage."""
    recording = Path(__file__).parent / "data" / "cage2" / "traces_Sleep_sleep.npz"
    run("cage2", "replay", str(recording), "--json")
    assert last_json(capsys.readouterr().out)["mismatches"] == 0
    picture = tmp_path / "e.png"
    run("cage2", "play", "decoy-first", "--horizon", "12", "--picture", str(picture))
    printed = capsys.readouterr().out
    assert "blue deploys" in printed
    assert picture.stat().st_size > 1000
    run("cage2", "play", "nobody", code=2)
    run("cage2", "replay", str(tmp_path / "nothing.npz"), code=2)
    run("cage2", "dance", code=2)
    run("train", "cage2", "--horizon", "0", "--runs-dir", str(tmp_path), code=2)
    assert "horizon" in capsys.readouterr().err
    run("train", "cage2", "--simulator", "cyborg", "--runs-dir", str(tmp_path), code=2)
    assert "pip install" in capsys.readouterr().err
