"""Every option: what is accepted, what is refused and in which words, to JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config import PPOConfig, RunConfig, TrainConfig, VectorConfig, from_dict, group_of, to_dict

WHOLE_FROM_1 = ["frame_skip", "frame_stack", "env_threads", "restart_window", "rollout_steps", "update_interval",
                "update_epochs", "minibatch_size", "save_interval", "keep", "log_interval",
                "evaluate_episodes"]  # fmt: skip
OPTIONAL_WHOLE = [
    "workers",
    "policy_epochs",
    "value_epochs",
    "torch_threads",
    "steps",
    "epochs",
    "episodes",
    "min_envs",
    "evaluate_every",
    "evaluate_patience",
    "resize",
]
POSITIVE = ["rank_timeout", "step_timeout", "build_timeout", "learning_rate", "clip", "max_grad_norm", "initial_std"]
OPTIONAL_POSITIVE = ["memory_budget_gb", "value_clip", "target_kl"]
NOT_NEGATIVE = ["lr_final", "entropy_coef", "value_coef"]
SHARES = ["gamma", "gae_lambda"]
CHOICES = ["backend", "slices", "start_method", "on_fault", "lr_schedule", "clip_schedule", "entropy_schedule",
           "activation", "network", "encoder", "device", "on_save_error"]  # fmt: skip
SWITCHES = ["auto_scale", "normalise_advantages", "normalise_observations", "normalise_rewards", "grey", "clip_rewards",
            "noise_meter"]  # fmt: skip
TEXTS = ["task", "env_kwargs", "runs_dir", "track", "given"]
TEXTS += ["log_info", "init_from", "init_checkpoint", "wandb_project", "wandb_entity", "wandb_group", "wandb_tags"]
LISTS_OF_TEXTS = ["imports", "wrappers", "leave_out"]
HUGE = 10**400
NOT_NUMBERS = [math.nan, math.inf, -math.inf, "1", True, [1], HUGE]

BAD = [
    *((name, value) for name in WHOLE_FROM_1 for value in (0, -1, 1.5, True, "4", None, math.nan)),
    *((name, value) for name in OPTIONAL_WHOLE for value in (0, -1, 1.5, True, "4", math.nan)),
    *(("num_envs", value) for value in (0, -3, 2.0, True, "many", None, math.nan)),
    *(("max_restarts", value) for value in (-1, 0.5, None)),
    *(("seed", value) for value in (-1, 0.5, None, 2**63, HUGE)),
    *((name, value) for name in POSITIVE for value in (0, -1.0, None, *NOT_NUMBERS)),
    *((name, value) for name in OPTIONAL_POSITIVE for value in (0, -1.0, *NOT_NUMBERS)),
    *((name, value) for name in NOT_NEGATIVE for value in (-1e-9, None, *NOT_NUMBERS)),
    *((name, value) for name in SHARES for value in (-0.01, 1.01, None, *NOT_NUMBERS)),
    *((name, value) for name in ("target_return", "evaluate_target") for value in NOT_NUMBERS),
    *(("callbacks", value) for value in ("module:Class", (1,), None)),
    *((name, value) for name in CHOICES for value in ("nonsense", "", 1, True, ["cpu"])),
    *((name, value) for name in SWITCHES for value in (0, 1, "yes", None)),
    *((name, value) for name in TEXTS for value in (3, None, ["x"])),
    *((name, value) for name in LISTS_OF_TEXTS for value in ("minigrid", (1,), 3, None, (["x"],))),
    *((name, value) for name in ("name", "ray_address") for value in (3, True)),
    *(("hidden", value) for value in (64, (0,), (64, -1), (1.5,), ("64",), None, "64")),
]


def shown(case: tuple[str, object]) -> str:
    return f"{case[0]}={str(case[1])[:12]}"


@pytest.mark.parametrize("case", BAD, ids=shown)
def test_every_bad_value_is_refused_by_name(case) -> None:
    """In Python and from a file alike: the option is named, and the message is of a readable length."""
    name, value = case
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} as") as caught:
        TrainConfig().replace(**{name: value})
    assert len(str(caught.value)) < 400
    group = group_of(name)
    data = {group: {name: value}} if group else {name: value}
    with pytest.raises(ValueError, match=name.replace("_", "[-_]")) as caught:
        from_dict(data)
    assert len(str(caught.value)) < 400


def test_every_field_is_in_a_table_of_bad_values() -> None:
    """A new option cannot be forgotten here."""
    fields = {f.name for kind in (VectorConfig, PPOConfig, RunConfig, TrainConfig) for f in dataclasses.fields(kind)}
    assert fields - {"vector", "ppo", "run"} == {name for name, _ in BAD}


@pytest.mark.parametrize(
    "options",
    [
        {"num_envs": "auto"}, {"num_envs": 4096}, {"gamma": 0}, {"gamma": 1}, {"gae_lambda": 1.0}, {"clip": 1},
        {"max_restarts": 0}, {"seed": 0}, {"seed": 2**63 - 1}, {"target_return": -100}, {"hidden": ()},
        {"hidden": (256, 256)}, {"policy_epochs": 3, "value_epochs": 1}, {"entropy_coef": 0}, {"steps": 10**12},
        {"env_threads": "auto"},
    ],
    ids=str,
)  # fmt: skip
def test_values_at_the_edge_are_accepted(options) -> None:
    """And come back from JSON equal."""
    config = TrainConfig().replace(**options)
    assert from_dict(json.loads(json.dumps(to_dict(config), allow_nan=False))) == config


def test_a_list_of_widths_becomes_a_tuple() -> None:
    """`hidden=[64, 64]` is what people write; the config stays hashable and equal to its copy."""
    config = TrainConfig().replace(hidden=[64, 64])
    assert config.ppo.hidden == (64, 64)
    assert hash(config) == hash(TrainConfig().replace(hidden=(64, 64)))


@pytest.mark.parametrize("option", ["policy_epochs", "value_epochs"])
def test_a_shared_trunk_cannot_train_apart(option) -> None:
    """With the cure."""
    with pytest.raises(ValueError, match=r"separate networks.*--network separate"):
        TrainConfig().replace(network="shared", **{option: 2})


@pytest.mark.parametrize("budgets", [("steps", "epochs"), ("epochs", "episodes"), ("steps", "epochs", "episodes")])
def test_two_budgets_are_refused(budgets) -> None:
    """Both are named."""
    with pytest.raises(ValueError, match=" and ".join(f"--{name}" for name in budgets)):
        TrainConfig().replace(**dict.fromkeys(budgets, 5))


def test_an_unknown_option_names_the_nearest() -> None:
    """A typing error gets a hint, nonsense gets none."""
    with pytest.raises(ValueError, match=r"unknown option 'num_env'; did you mean 'num_envs'\?"):
        TrainConfig().replace(num_env=3)
    with pytest.raises(ValueError, match=r"unknown option 'zzzzqqq'$"):
        TrainConfig().replace(zzzzqqq=3)


def test_a_group_is_not_an_option() -> None:
    """`replace(ppo=...)` would bypass the flat names."""
    with pytest.raises(ValueError, match="unknown option 'ppo'"):
        TrainConfig().replace(ppo=PPOConfig())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected config as an object, got list"),
        (None, "expected config as an object, got NoneType"),
        ({"ppo": 3}, "expected config.ppo as an object, got int"),
        ({"colour": 1}, "unknown option config.colour"),
        ({"ppo": {"colour": 1}}, r"unknown option config.ppo.colour; known: activation, auto_scale"),
        ({"ppo": {"hidden": 64}}, "expected config.ppo.hidden as a list of whole numbers, got 64"),
        ({"ppo": {"device": "tpu"}}, r"expected config.ppo.device as cpu \| cuda \| mps, got 'tpu'"),
        ({"vector": {"num_envs": "two"}}, "expected config.vector.num_envs as a whole number or auto, got 'two'"),
        ({"run": {"seed": None}}, "expected config.run.seed as a whole number, got None"),
        ({"run": {"steps": "x" * 10_000}}, "expected config.run.steps as a whole number or nothing, got 'xxx"),
        ({"ppo": {"learning_rate": math.nan}}, "expected --learning-rate as a finite number above 0, got nan"),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_file_says_wrong(data, message) -> None:
    """The place in the file, what was expected, what came."""
    with pytest.raises(ValueError, match=message):
        from_dict(data)


def test_frozen() -> None:
    """A config is a value."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().task = "Other-v0"  # type: ignore[misc]


positive = st.floats(1e-9, 1e9)
options = st.fixed_dictionaries(
    {},
    optional={
        "num_envs": st.one_of(st.just("auto"), st.integers(1, 10**6)),
        "backend": st.sampled_from(["auto", "serial", "process", "compiled"]),
        "workers": st.none() | st.integers(1, 999),
        "gamma": st.floats(0, 1),
        "clip": positive,
        "hidden": st.lists(st.integers(1, 4096), max_size=4).map(tuple),
        "target_kl": st.none() | positive,
        "lr_schedule": st.sampled_from(["constant", "linear", "cosine"]),
        "normalise_rewards": st.booleans(),
        "seed": st.integers(0, 2**63 - 1),
        "epochs": st.none() | st.integers(1, 10**15),
        "target_return": st.none() | st.floats(-1e12, 1e12),
        "name": st.none() | st.text(max_size=20),
        "task": st.text(max_size=20),
        "env_kwargs": st.text(max_size=20),
    },
)


@settings(max_examples=100, deadline=None)
@given(options)
def test_json_and_back(chosen) -> None:
    """Whatever was accepted comes back equal, through strict JSON."""
    config = TrainConfig().replace(**chosen)
    assert from_dict(json.loads(json.dumps(to_dict(config), allow_nan=False))) == config


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = sorted({f.name for kind in (VectorConfig, PPOConfig, RunConfig, TrainConfig) for f in dataclasses.fields(kind)})


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(names), json_values, max_size=3), st.sampled_from(["vector", "ppo", "run", ""]))
def test_no_file_crashes_the_reader(data, group) -> None:
    """Any JSON gives a config or a ValueError, never anything else."""
    try:
        config = from_dict({group: data} if group else data)
    except ValueError:
        return
    assert from_dict(to_dict(config)) == config
