"""Every option of a training run: frozen, documented, validated. A field's docstring is its help text."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from shoal.core import plain
from shoal.core.checks import FromPython, check_numbers, check_types, check_whole, check_wholes
from shoal.core.plain import to_dict
from shoal.core.spelling import ELSEWHERE, unaliased

__all__ = ["FromPython", "PPOConfig", "RunConfig", "TrainConfig", "VectorConfig", "from_dict", "group_of", "to_dict"]

Backend = Literal["auto", "serial", "process", "split", "compiled", "ray"]
ScheduleName = Literal["constant", "linear", "cosine"]

MOST_SEED = 2**63 - 1
# Of an option that came after results were stored by a hash of their settings: at its default it is not written down.
LATER = {"later": True}


@dataclass(frozen=True)
class VectorConfig:
    """How many environments step, where and how."""

    num_envs: int | Literal["auto"] = 8
    """Environments stepped together; "auto" picks a number that saturates this machine."""
    backend: Backend = "auto"
    """Where environments step: serial in this process, process in workers, split in both, ray in actors of a Ray
    cluster; "auto" measures and picks among the first three."""
    workers: int | None = None
    """Processes that step environments (split counts this process too); default: one per usable core."""
    ray_address: str | None = field(default=None, metadata=LATER)
    """With --backend ray: the cluster, as auto, HOST:PORT or ray://HOST:PORT; default: an instance on this machine."""
    env_threads: int | Literal["auto"] = 1
    """Threads of the compiled backend; "auto" uses all usable cores if that is faster."""
    slices: Literal["lockstep", "double", "ready"] = "lockstep"
    """lockstep: all together. double: two halves, acting overlaps stepping. ready: act for each worker as soon as it is
    done (the run is then labelled inexact)."""
    start_method: Literal["spawn", "fork", "forkserver"] | None = None
    """How workers start; default: the safest method of the platform (forkserver, otherwise spawn)."""
    step_timeout: float = 300.0
    """Seconds after which a worker that does not answer counts as hanging. Environments in this process (serial, and
    some of split) have no such limit."""
    build_timeout: float = 120.0
    """Seconds that a worker may take to build one environment."""
    on_fault: Literal["fail", "restart"] = "fail"
    """restart: rebuild the environment and begin its next episode; the broken episode is masked out of the loss."""
    max_restarts: int = 10
    """Restarts allowed within --restart-window steps; one more stops the run."""
    restart_window: int = 10_000
    """Steps over which restarts are counted."""
    min_envs: int | None = field(default=None, metadata=LATER)
    """With --backend ray --on-fault restart: fewest environments to continue with if the cluster has no room for a new
    actor; default: stop with a checkpoint."""
    memory_budget_gb: float | None = None
    """Memory that a rollout may use, in GB; default: half of the free memory."""

    def __post_init__(self) -> None:
        check_types(self)
        check_wholes(self, 1, "num_envs", "workers", "env_threads", "min_envs", "restart_window")
        check_wholes(self, 0, "max_restarts")
        check_numbers(self, "step_timeout", "build_timeout", "memory_budget_gb", above=0)
        if self.min_envs is not None and self.on_fault != "restart":
            raise ValueError("--min-envs is for --on-fault restart: otherwise the first fault ends the run")
        if self.ray_address is not None and self.backend == "auto":
            raise ValueError("--ray-address is for --backend ray: add that")


@dataclass(frozen=True)
class PPOConfig:
    """The algorithm. Names and defaults follow common usage."""

    rollout_steps: int = 128
    """Steps of each environment in one rollout (one epoch)."""
    update_interval: int = 1
    """Rollouts per update."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation (GAE)."""
    update_epochs: int = 4
    """Passes over the data per update, policy and value together."""
    policy_epochs: int | None = None
    """Passes for the policy alone; this or --value-epochs trains policy and value separately."""
    value_epochs: int | None = None
    """Passes for the value alone."""
    minibatch_size: int | Literal["auto"] = 256
    """Samples per gradient step; a batch is cut into equal parts of at most this size. "auto": 64 for continuous
    actions, otherwise 256."""
    learning_rate: float | Literal["auto"] = 3e-4
    """Learning rate of Adam. "auto": 0.0003 for continuous actions, otherwise 0.001."""
    lr_schedule: ScheduleName = "linear"
    """From --learning-rate to --lr-final over the run."""
    lr_final: float = 0.0
    """Learning rate at the end of the schedule."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    clip_schedule: ScheduleName = "constant"
    """From --clip to 0 over the run."""
    value_clip: float | None = None
    """Clip range of the change in value; none by default."""
    entropy_coef: float | Literal["auto"] = 0.0
    """Weight of the entropy bonus. "auto": 0 for continuous actions, otherwise 0.02, or 0.05 where an observation is
    the number of a state."""
    entropy_schedule: ScheduleName = "constant"
    """From --entropy-coef to 0 over the run."""
    value_coef: float = 0.5
    """Weight of the value loss when policy and value are trained together."""
    max_grad_norm: float = 0.5
    """Largest norm of the gradient; larger ones are scaled down."""
    target_kl: float | None = None
    """End an update when the KL from the old policy exceeds this or is NaN."""
    normalise_advantages: bool = True
    """Scale the advantages of a batch to mean 0 and standard deviation 1."""
    normalise_observations: bool = False
    """Scale observations by their running mean and standard deviation (saved with the run)."""
    normalise_rewards: bool = False
    """Scale rewards by the running standard deviation of the return (saved with the run)."""
    clip_rewards: bool = field(default=False, metadata=LATER)
    """Learn from the sign of each reward, as is usual for Atari; reported returns are not clipped."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers."""
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    """Activation after each hidden layer."""
    network: Literal["separate", "shared"] = "separate"
    """Separate networks for policy and value, or one trunk with two heads."""
    encoder: Literal["auto", "nature", "impala-small", "flat"] = field(default="auto", metadata=LATER)
    """Network for pictures (uint8). nature: the convolutions of DQN. impala-small: a small residual network. flat: the
    perceptron alone. "auto": nature, but impala-small below 36 pixels and flat below 1,000 numbers."""
    initial_std: float = 1.0
    """Standard deviation of a continuous policy at the start (in the scaled action range)."""
    auto_scale: bool = False
    """Adapt learning rate and clip range from the task's own number of environments to --num-envs, because updates are
    fewer and larger; every choice is printed."""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """Device of the learner."""
    torch_threads: int | None = None
    """Threads of the learner; default: 1 for small minibatches, otherwise one per usable core."""

    def __post_init__(self) -> None:
        check_types(self)
        check_wholes(self, 1, "rollout_steps", "update_interval", "update_epochs", "minibatch_size")
        check_wholes(self, 1, "policy_epochs", "value_epochs", "torch_threads")
        check_numbers(self, "gamma", "gae_lambda", least=0, most=1)
        check_numbers(self, "learning_rate", "clip", "max_grad_norm", "initial_std", above=0)
        check_numbers(self, "lr_final", "entropy_coef", "value_coef", least=0)
        check_numbers(self, "value_clip", "target_kl", above=0)
        for width in self.hidden:
            check_whole("hidden", width, 1)
        if self.network == "shared" and (self.policy_epochs or self.value_epochs):
            raise ValueError(
                "expected separate networks with --policy-epochs or --value-epochs: with a shared trunk the passes of "
                "one would move the other. Add --network separate"
            )

    def for_spaces(self, continuous: bool, numbered: bool = False) -> PPOConfig:
        """The same with a number for each "auto": what learns well with such actions and observations. `numbered`
        observations name a state and nothing else.

        >>> PPOConfig(learning_rate="auto").for_spaces(continuous=False).learning_rate
        0.001
        """
        kind = 0 if continuous else 2 if numbered else 1
        chosen = {name: values[kind] for name, values in BY_SPACES.items() if getattr(self, name) == "auto"}
        return dataclasses.replace(self, **chosen) if chosen else self


# (continuous actions, discrete ones, discrete ones on numbered states): small steps on many small minibatches, or large
# steps and a policy kept from settling early, which it does soonest where no state tells of another (Taxi-v4).
BY_SPACES: dict[str, tuple[Any, Any, Any]] = {
    "minibatch_size": (64, 256, 256),
    "learning_rate": (3e-4, 1e-3, 1e-3),
    "entropy_coef": (0.0, 0.02, 0.05),
}


def chosen(value: int | float | Literal["auto"]) -> Any:
    """An option that may be "auto", once the actions are known."""
    if value == "auto":
        raise ValueError('expected a number, got "auto": call PPOConfig.for_spaces first')
    return value


@dataclass(frozen=True)
class RunConfig:
    """The length of the run, where it is kept, and what is shown."""

    steps: int | None = None
    """Budget in environment steps (rounded up to whole epochs, as the header says)."""
    epochs: int | None = None
    """Budget in epochs; an epoch is one rollout of all environments."""
    episodes: int | None = None
    """Budget in completed episodes; the run ends with the epoch that reaches it."""
    target_return: float | None = None
    """End early when the mean return of the last 100 episodes reaches this."""
    seed: int = 0
    """The seed from which every random number of the run is derived."""
    name: str | None = None
    """Name of the run folder; default: task, date and time."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""
    save_interval: int = 50
    """Epochs between checkpoints; the last epoch always gets one."""
    keep: int = 3
    """Number of checkpoints to keep."""
    log_interval: int = 10
    """Epochs between lines when the output is not a terminal."""
    track: str = ""
    """Additional trackers, separated by commas: tensorboard, wandb, or a class of your own as module:Class."""
    log_info: str = field(default="auto", metadata=LATER)
    """Numbers in an episode's last info to record as means of the last 100 episodes: names separated by commas (a.b for
    b inside a); auto: every number, none: nothing."""
    evaluate_every: int | None = field(default=None, metadata=LATER)
    """Epochs between evaluations on held-out episodes during training, with the most probable and with sampled actions.
    The checkpoint with the best return (most probable actions) is kept; evaluate, play and load_policy use it."""
    evaluate_episodes: int = field(default=20, metadata=LATER)
    """With --evaluate-every: episodes of each evaluation, always the same and never those of `shoal evaluate`."""
    evaluate_target: float | None = field(default=None, metadata=LATER)
    """With --evaluate-every: end early when the held-out return reaches this, and again on fresh episodes."""
    evaluate_patience: int | None = field(default=None, metadata=LATER)
    """With --evaluate-every: end early after this many evaluations in a row without an improvement."""
    wandb_project: str = ""
    """Project at Weights & Biases; default: WANDB_PROJECT, otherwise shoal."""
    wandb_entity: str = ""
    """User or team at Weights & Biases; default: WANDB_ENTITY, otherwise your own."""
    wandb_group: str = ""
    """Group of runs at Weights & Biases; default: WANDB_RUN_GROUP."""
    wandb_tags: str = ""
    """Tags at Weights & Biases, separated by commas; default: WANDB_TAGS."""
    noise_meter: bool = field(default=True, metadata=LATER)
    """Measure the gradient noise scale (docs/metrics.md), which shows how many environments are useful. It costs a few
    percent of an update at most and does not change the weights."""
    on_save_error: Literal["warn", "fail"] = "warn"
    """After a failed checkpoint: warn and try again at the next one, or stop the run."""
    rank_timeout: float = field(default=1800.0, metadata=LATER)
    """Under torchrun: seconds after which a rank that does not answer counts as lost."""

    def __post_init__(self) -> None:
        check_types(self)
        check_wholes(self, 1, "steps", "epochs", "episodes", "evaluate_every", "evaluate_patience")
        check_wholes(self, 1, "save_interval", "keep", "log_interval", "evaluate_episodes")
        check_numbers(self, "rank_timeout", above=0)
        check_numbers(self, "target_return", "evaluate_target")
        check_whole("seed", self.seed, 0, MOST_SEED)
        given = [name for name in ("steps", "epochs", "episodes") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"expected one budget, got {' and '.join('--' + name for name in given)}")
        for name in ("evaluate_target", "evaluate_patience"):
            if getattr(self, name) is not None and self.evaluate_every is None:
                raise ValueError(
                    f"--{name.replace('_', '-')} goes by held-out evaluations: add --evaluate-every EPOCHS"
                )


@dataclass(frozen=True)
class TrainConfig:
    """One training run."""

    task: str = "CartPole-v1"
    """A Gymnasium id, or module:id of a package that registers it (`shoal tasks` lists what ships)."""
    env_kwargs: str = "{}"
    """Arguments of the environment as JSON, e.g. '{"g": 9.81}'."""
    imports: tuple[str, ...] = ()
    """Modules that register environments, imported first. The flag may be given several times."""
    wrappers: tuple[str, ...] = ()
    """Wrappers of each environment, innermost first. The flag may be given several times."""
    frame_skip: int = field(default=1, metadata=LATER)
    """Times that each action is repeated; a picture is the brighter of the last two frames."""
    grey: bool = field(default=False, metadata=LATER)
    """Convert pictures to grey (also --gray)."""
    resize: int | None = field(default=None, metadata=LATER)
    """Side of the pictures in pixels; they are resized by averaging areas."""
    frame_stack: int = field(default=1, metadata=LATER)
    """Number of recent frames stacked into one picture, so that the policy can see movement."""
    leave_out: tuple[str, ...] = field(default=(), metadata=LATER)
    """Parts of a Dict observation that the policy does not see, such as a text."""
    callbacks: tuple[str, ...] = field(default=(), metadata=LATER)
    """Callbacks, your own code in the training loop, called in the order given. The flag may be given several times."""
    init_from: str = field(default="", metadata=LATER)
    """Start with the weights and the normalisation of another run: its folder, or its name under --runs-dir."""
    init_checkpoint: str = field(default="", metadata=LATER)
    """With --init-from: last, best or the number of an epoch; default: the best by --evaluate-every, if that run has
    one, otherwise the last."""
    given: FromPython = FromPython("")  # noqa: RUF009 (text, frozen)
    """The name of env=, if the environment came from Python; no id can make it again."""
    vector: VectorConfig = field(default_factory=VectorConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        check_types(self)
        check_wholes(self, 1, "frame_skip", "frame_stack", "resize")

    def replace(self, **changes: Any) -> TrainConfig:
        """A copy with changes given by flat name, e.g. `replace(num_envs=64, seed=1)`."""
        groups: dict[str, dict[str, Any]] = {}
        for name, value in unaliased(changes).items():
            groups.setdefault(group_of(name), {})[name] = value
        top = groups.pop("", {})
        parts = {g: dataclasses.replace(getattr(self, g), **values) for g, values in groups.items()}
        return dataclasses.replace(self, **top, **parts)


def group_of(name: str) -> str:
    """The group ("vector", "ppo", "run" or "") that an option belongs to."""
    for group, kind in (("vector", VectorConfig), ("ppo", PPOConfig), ("run", RunConfig), ("", TrainConfig)):
        if name in {f.name for f in fields(kind)} and name not in ("vector", "ppo", "run"):
            return group
    known = [f.name for kind in (VectorConfig, PPOConfig, RunConfig) for f in fields(kind)]
    near = [ELSEWHERE[name]] if name in ELSEWHERE else difflib.get_close_matches(name, known, 1)
    raise ValueError(f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def from_dict(data: Any) -> TrainConfig:
    """The inverse of `to_dict`; unknown names, wrong types and values out of range are refused by name."""
    config: TrainConfig = plain.from_dict(data, TrainConfig)
    return config
