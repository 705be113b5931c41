"""Do two commits of shoal behave alike? Seeded runs, recordings and error messages of both, side by side.

    python tools/golden.py BASE [HEAD]     e.g. the commit before a refactoring, and the working tree (the default)

Weights, optimiser state and metrics of short seeded runs are hashed in both trees on this machine, because hashes
depend on the processor and on torch. Nothing is stored. Exit code 1 when anything differs. Everything goes through
what a user calls (`shoal.train`, the command line), so the tool survives any move of files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

# name -> (what to train, options). Every one is explicit about its settings: a changed default is no changed behaviour.
SMALL = {"rollout_steps": 32, "minibatch_size": 64, "update_epochs": 2, "epochs": 4, "seed": 7, "learning_rate": 1e-3}
RUNS: dict[str, tuple[str, dict[str, object]]] = {
    "CartPole serial": ("CartPole-v1", {"num_envs": 8, "backend": "serial", **SMALL}),
    "CartPole process": ("CartPole-v1", {"num_envs": 8, "backend": "process", "workers": 2, **SMALL}),
    "CartPole split": ("CartPole-v1", {"num_envs": 8, "backend": "split", "workers": 2, **SMALL}),
    "compiled CartPole": ("shoal/CartPole-v1", {"num_envs": 64, "backend": "compiled", **SMALL}),
    "Pendulum": (
        "Pendulum-v1",
        {"num_envs": 8, "backend": "serial", "normalise_rewards": True, "policy_epochs": 1, "value_epochs": 3, **SMALL},
    ),
    "masked GridWorld": ("shoal/GridWorld-v0", {"num_envs": 8, **SMALL}),
    "cage2": ("cage2", {"num_envs": 32, **SMALL}),
    "cage2 without memory": ("cage2", {"num_envs": 32, "env_kwargs": '{"features": "plain"}', **SMALL}),
    "cage2 with an order": (
        "cage2",
        {
            "num_envs": 32,
            "env_kwargs": '{"order": "user,op_host,op_server,enterprise,defender", "red": "bline"}',
            **SMALL,
        },
    ),
    "rides, insertion prices": (
        "rides",
        {"num_envs": 8, **SMALL, "rollout_steps": 30, "epochs": 2, "env_kwargs": '{"start": "none", "prices": "insertion"}'},
    ),
    "rides, pooled prices": (
        "rides",
        {"num_envs": 8, **SMALL, "rollout_steps": 30, "epochs": 2, "env_kwargs": '{"start": "lookahead", "prices": "pooled"}'},
    ),
}  # fmt: skip

TRAIN = """
import io, json, sys
import shoal
name, options = json.loads(sys.argv[1])
result = shoal.train(name, runs_dir=sys.argv[2], name="golden", stream=io.StringIO(), **options)
print(json.dumps({"steps": result.steps, "mean_return": result.mean_return}))
"""

# Command lines that are refused: what they say is part of the behaviour.
MISTAKES = [
    "train CartPole", "train Taxi-v3", "train CartPole-v1 --num-envs 0", "train CartPole-v1 --num-envs many",
    "train CartPole-v1 --gamma 1.5", "train CartPole-v1 --learning-rate -0.1", "train CartPole-v1 --steps 10 --epochs 2",
    "train CartPole-v1 --name a/b", "train CartPole-v1 --env-kwargs {g:9}", "train CartPole-v1 --backend compiled",
    "train CartPole-v1 --num-envs 1000000000", "train CartPole-v1 --resume nope", "train --resume",
    "train CartPole-v1 --num-env 8", "train CartPole-v1 --hidden 0", "train CartPole-v1 --clip 0",
    "train CartPole-v1 --device mps", "train CartPole-v1 --track somewhere", "train cage2 --red nobody",
    "train cage2 --order user", "train rides --customers 0", "train rides --prices gold", "train rides --city nowhere.csv",
    "evaluate nope", "evaluate nope --leaderboard", "evaluate rides --policy nobody", "report nope", "trian CartPole-v1",
    "search chess", "cage2 score nobody", "cage2 replay README.md", "rides offer nope --day x.csv --row 1", "rides day --seed x",
]  # fmt: skip


def run(tree: Path, code: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A Python command in a tree's code."""
    environment = {
        **os.environ,
        **ONE_THREAD,
        "PYTHONPATH": str(tree / "src"),
        "SHOAL_CACHE_DIR": str(
            Path(tempfile.gettempdir()) / f"golden-{tree.name}"
        ),  # one tree's machine code is not the other's
        "WANDB_MODE": "offline",
        "COLUMNS": "200",
    }
    return subprocess.run(
        [sys.executable, *code], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )


def hash_of_run(folder: Path) -> str:
    """Weights, optimiser, moments and counters of the last checkpoint, and every metric that is not a time."""
    found = hashlib.sha256()
    last = max((folder / "checkpoints").iterdir())
    found.update((last / "state.safetensors").read_bytes())
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = {name: value for name, value in json.loads(line).items() if not name.startswith("time/")}
        found.update(json.dumps(row, sort_keys=True).encode())
    return found.hexdigest()[:16]


def trained(tree: Path, name: str) -> str:
    """The hash of one seeded run, or the error that came in its place."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(tree, ["-c", TRAIN, json.dumps(RUNS[name]), folder], Path(folder))
        return hash_of_run(Path(folder) / "golden") if done.returncode == 0 else "failed: " + done.stderr[-300:]


def searched(tree: Path) -> str:
    """The table of a search of three pulls."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["search", "gridworld", "--workflows", "3", "--num-envs", "8", "--episodes-per-env", "4", "--name", "golden", "--json"]  # fmt: skip
        done = run(tree, ["-m", "shoal.cli", *words], Path(folder))
        if done.returncode != 0:
            return "failed: " + done.stderr[-300:]
        told = json.dumps(without_times(json.loads(done.stdout)), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def without_times(value: object) -> object:
    """JSON data without what takes another time in every run, and without paths."""
    if isinstance(value, dict):
        beside = ("_s", "folder", "report", "policy", "weights")
        return {name: without_times(part) for name, part in value.items() if not name.endswith(beside)}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def replayed(tree: Path) -> str:
    """Every recording of the real CybORG."""
    files = [str(path) for path in sorted((ROOT / "tests/data/cage2").glob("traces_*.npz"))]
    done = run(tree, ["-m", "shoal.cli", "cage2", "replay", *files, "--json"], ROOT)
    report = json.loads(done.stdout) if done.stdout else {}
    return f"{report.get('steps')} steps, {report.get('mismatches')} mismatches"


def said(tree: Path, words: str) -> str:
    """What a refused command says, without the folder it was typed in."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(tree, ["-m", "shoal.cli", *words.split()], Path(folder))
        text = (done.stderr or done.stdout).replace(folder, "FOLDER").replace(str(tree), "TREE")
        return f"exit {done.returncode}: {text.strip()[:1500]}"


def main() -> int:
    """Compare, print a table, exit 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("head", nargs="?", help="default: the working tree")
    parser.add_argument("--only", default="", help="names that contain this")
    given = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        trees = []
        for commit in (given.base, given.head):
            tree = ROOT if commit is None else Path(folder) / commit.replace("/", "-")
            if commit is not None:
                subprocess.run(
                    ["git", "-C", str(ROOT), "worktree", "add", "-q", "--detach", str(tree), commit], check=True
                )
            trees.append(tree)
        cases = [(name, lambda tree, name=name: trained(tree, name)) for name in RUNS]
        cases += [("search of 3 pulls", searched), ("recordings", replayed)]
        cases += [(f"shoal {words}", lambda tree, words=words: said(tree, words)) for words in MISTAKES]
        try:
            for name, measure in cases:
                if given.only not in name:
                    continue
                base, head = (measure(tree) for tree in trees)
                different += base != head
                print(
                    f"{'equal    ' if base == head else 'DIFFERENT'}  {name}  {base if base == head else ''}"[:150],
                    flush=True,
                )
                if base != head:
                    print(f"    {given.base}: {base}\n    {given.head or 'working tree'}: {head}", flush=True)
        finally:
            for commit, tree in zip((given.base, given.head), trees, strict=True):
                if commit is not None:
                    subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=True)
    print(f"{different} of {len(cases)} differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
