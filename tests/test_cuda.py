"""The user's doors on a GPU: train, resume, evaluate, load. Skipped where torch sees no CUDA device."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shoal import evaluate, load_policy, train
from shoal.runs import checkpoint

sys.path.append(str(Path(__file__).parent / "learn"))
from flashes import Flashes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

SMALL: dict[str, Any] = {"num_envs": 8, "rollout_steps": 32, "minibatch_size": 64, "torch_threads": 1, "seed": 3}
RIDES = {"start": "none", "futures": 0, "held_out_days": 0, "prices": "insertion", "oracle": "neural",
         "oracle_device": "cuda", "epsilon": 0.0}  # fmt: skip

KINDS: dict[str, dict[str, Any]] = {
    "numbers": SMALL | {"env": "CartPole-v1", "backend": "serial"},
    "continuous": SMALL | {"env": "Pendulum-v1", "backend": "serial"},
    "compiled": SMALL | {"env": "shoal/CartPole-v1", "num_envs": 64},
    "pictures": SMALL | {"env": Flashes, "backend": "serial", "resize": 36, "frame_stack": 3, "rollout_steps": 8},
    "masks and memory": SMALL | {"task": "cage2", "num_envs": 16},
    "credit, neural oracle": SMALL
    | {"task": "rides", "env_kwargs": json.dumps(RIDES), "num_envs": 16, "rollout_steps": 30},
}  # fmt: skip


def run_of(folder: Path, epochs: int, kind: str, **options: Any) -> str:
    given = {**KINDS[kind], "device": "cuda", "epochs": epochs, "runs_dir": str(folder), **options}
    return train(stream=StringIO(), lr_schedule="constant", entropy_schedule="constant", **given).run


def tensors(run: str) -> dict[str, np.ndarray]:
    return {k: v for k, v in checkpoint.load_latest(Path(run) / "checkpoints").tensors.items() if "env" not in k}


@pytest.mark.parametrize("kind", KINDS)
def test_train_resume_evaluate_load_on_a_gpu(tmp_path: Path, kind: str) -> None:
    """The same bits twice, and after a resume; the saved policy acts on a CPU."""
    whole = run_of(tmp_path, 4, kind, name="whole")
    assert (Path(whole) / "config.json").read_text().count('"device": "cuda"') == 1
    again = run_of(tmp_path, 4, kind, name="again")
    parted = run_of(tmp_path, 2, kind, name="parted")
    given = {name: value for name, value in KINDS[kind].items() if name == "env"}
    train(resume=parted, epochs=4, stream=StringIO(), **given)
    expected = tensors(whole)
    for other in (again, parted):
        found = tensors(other)
        assert found.keys() == expected.keys()
        differ = [name for name in expected if not np.array_equal(expected[name], found[name], equal_nan=True)]
        assert not differ, (other, differ)
    assert load_policy(whole) is not None
    if "env" in given:
        assert evaluate(whole, episodes=2, **given).mean is not None


def test_a_gpu_learns_what_a_cpu_learns(tmp_path: Path) -> None:
    """One update on the same rollout: parameters agree within rounding."""
    found = [tensors(run_of(tmp_path, 1, "numbers", name=device, device=device)) for device in ("cuda", "cpu")]
    names = [name for name in found[0] if "network" in name]
    assert names
    for name in names:
        assert np.allclose(found[0][name], found[1][name], rtol=2e-3, atol=2e-5), name
