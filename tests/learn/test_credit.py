"""Learning from action values that an environment gives: the loss, the rows, and a world where they are known."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import shoal
from shoal.config import TrainConfig
from shoal.core.errors import Unsupported
from shoal.core.protocols import Credit, TrainingEnv
from shoal.learn.credit import AllActions, advantages_of, credited, surrogate
from shoal.learn.distributions import FORBIDDEN, Categorical, action_kind
from shoal.learn.learner import Learner
from shoal.learn.losses import policy_loss
from shoal.runs import checkpoint
from shoal.runs.folder import Run

NAN = float("nan")


def logits(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows).log()


def random_case(rows: int = 40, actions: int = 5) -> tuple[torch.Tensor, AllActions]:
    """New parameters, and what is known of old ones; every third action is forbidden in every other row."""
    draw = torch.Generator().manual_seed(3)
    old, new = (2 * torch.randn((rows, actions), generator=draw) for _ in range(2))
    forbidden = torch.zeros((rows, actions), dtype=torch.bool)
    forbidden[::2, ::3] = True
    old, new = old.masked_fill(forbidden, FORBIDDEN), (old + 0.5 * new).masked_fill(forbidden, FORBIDDEN)
    log_probs = torch.log_softmax(old, -1)
    return new, AllActions(log_probs, advantages_of(torch.randn((rows, actions), generator=draw), log_probs))


def test_the_loss_by_hand() -> None:
    """Two actions, ratios 1.5 and 0.5, clip 0.2: each term weighted by its old probability."""
    old = logits((0.5, 0.5))
    values = torch.tensor([[2.0, 0.0]])
    advantages = advantages_of(values, old)
    assert advantages.tolist() == [[1.0, -1.0]]
    params = logits((0.75, 0.25)).requires_grad_()
    loss, _, kl, clipped = surrogate(params, AllActions(old, advantages), 0.2)
    assert loss.item() == pytest.approx(-(0.5 * min(1.5, 1.2) + 0.5 * min(-0.5, -0.8)))
    loss.backward()
    assert params.grad.tolist() == [[0.0, 0.0]]  # both beyond the clip range, in the direction of their advantage
    assert float(clipped) == pytest.approx(1.0)
    assert float(kl) == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))


@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
def test_its_gradient_is_finite_and_what_is_forbidden_has_none(entropy_coef: float) -> None:
    """With clipping, masks and entropy."""
    params, known = random_case()
    leaf = params.clone().requires_grad_()
    loss, entropy, _, clipped = surrogate(leaf, known, 0.2)
    (loss - entropy_coef * entropy).backward()
    assert 0.05 < float(clipped) < 0.95
    assert torch.isfinite(leaf.grad).all()
    assert (leaf.grad[params == FORBIDDEN] == 0).all()
    assert (leaf.grad != 0).any()


def test_it_is_the_mean_of_the_usual_loss_over_sampled_actions() -> None:
    """Weighting each action's usual loss by the old probability gives the all-action loss."""
    params, known = random_case()
    new, kind, total = torch.log_softmax(params, -1), Categorical(5), 0.0
    for row in range(len(params)):
        for action in range(5):
            taken = torch.tensor([action])
            log_prob = kind.log_prob(params[row : row + 1], taken)
            assert float(log_prob) == pytest.approx(float(new[row, action]))
            loss, _, _ = policy_loss(log_prob, known.log_probs[row, taken], known.advantages[row, taken], 0.2)
            total += float(known.log_probs[row, action].exp() * loss) / len(params)
    assert float(surrogate(params, known, 0.2)[0]) == pytest.approx(total, rel=1e-5)


def test_advantages_have_mean_zero_under_the_policy_and_ignore_what_it_cannot_do() -> None:
    """A constant added to a row changes nothing; a forbidden action has no say, whatever its value, NaN included."""
    log_probs = torch.log_softmax(torch.tensor([[0.0, 1.0, FORBIDDEN]]), -1)
    one = advantages_of(torch.tensor([[1.0, 4.0, NAN]]), log_probs)
    assert float((log_probs.exp() * one).sum()) == pytest.approx(0.0, abs=1e-6)
    assert one[0, 2] == 0.0
    assert torch.allclose(advantages_of(torch.tensor([[11.0, 14.0, 7.0]]), log_probs), one, atol=1e-5)


def test_rows_without_values_are_not_learned_from() -> None:
    """A row counts if every action that the policy could take has a value, and only where a step was one."""
    params = torch.zeros((2, 2, 3))
    params[0, 0, 2] = FORBIDDEN
    values = np.array([[[1.0, 2.0, NAN], [1.0, NAN, 3.0]], [[NAN] * 3, [1.0, 2.0, 3.0]]])
    known, every = credited(Credit(values), params, np.ones((2, 2), np.bool_), Categorical(3))
    assert known.tolist() == [[True, False], [False, True]]
    assert every.advantages.shape == (2, 3)
    valid = np.array([[True, True], [True, False]])
    assert credited(Credit(values), params, valid, Categorical(3))[0].tolist() == [[True, False], [False, False]]


def test_without_any_value_it_learns_from_the_rewards() -> None:
    """No credit and credit that is all NaN are the same."""
    params, valid = torch.zeros((2, 1, 3)), np.ones((2, 1), np.bool_)
    assert credited(None, params, valid, Categorical(3)) is None
    assert credited(Credit(np.full((2, 1, 3), NAN)), params, valid, Categorical(3)) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 3)), r"expected credit values as \[steps, environments, actions\] \[2, 1, 3\], got \[2, 3\]"),
        (np.full((2, 1, 3), np.inf), "got inf for action 0 of environment 0 in step 0"),
    ],
)
def test_a_wrong_credit_is_refused(values, message) -> None:
    """Expected, got, and where."""
    with pytest.raises(ValueError, match=message):
        credited(Credit(values), torch.zeros((2, 1, 3)), np.ones((2, 1), np.bool_), Categorical(3))


def test_credit_is_for_discrete_actions() -> None:
    """A Box has no list of actions."""
    kind = action_kind(gym.spaces.Box(-1, 1, (1,), np.float32))
    with pytest.raises(Unsupported, match="Discrete"):
        credited(Credit(np.zeros((2, 1, 2))), torch.zeros((2, 1, 2)), np.ones((2, 1), np.bool_), kind)


class Crossing(TrainingEnv):
    """Two steps; the first decides between two second states. Noise of spread 30 drowns every return. Which action is
    best in each of the three states is known, and with it the value of every action."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    best = (2, 0, 1)
    checks_finite = True

    def __init__(self, num_envs: int, informed: bool) -> None:
        self.num_envs, self.informed = num_envs, informed
        self.single_observation_space = gym.spaces.Dict(
            {"state": gym.spaces.Box(0, 1, (3,), np.float32), "action_mask": gym.spaces.MultiBinary(4)}
        )
        self.single_action_space = gym.spaces.Discrete(4)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.noise = np.random.default_rng(0)
        self.state = np.zeros(num_envs, np.int64)

    def look(self):
        mask = np.ones((self.num_envs, 4), np.int8)
        mask[self.state == 2, 3] = 0
        return {"action_mask": mask, "state": np.eye(3, dtype=np.float32)[self.state]}

    def reset(self, *, seed=None, options=None):
        self.state[:] = 0
        return self.look(), {}

    @classmethod
    def reward(cls, state, action):
        return np.where(action == np.array(cls.best)[state], 1.0, 0.0) + 2.0 * ((state == 0) & (action == 2))

    def step(self, actions):
        rewards = self.reward(self.state, actions) + self.noise.normal(0, 30, self.num_envs)
        over = self.state > 0
        self.state = np.where(over, 0, np.where(actions == 2, 1, 2))
        last = np.empty(self.num_envs, object)
        last[:] = [{name: part[i] for name, part in self.look().items()} for i in range(self.num_envs)]
        return self.look(), rewards, over, np.zeros_like(over), {"final_obs": last, "_final_obs": over}

    def credit(self, rollout, policy):
        if not self.informed:
            return None
        state = rollout.observations[1][:-1].argmax(-1)  # [T, N]; the parts are sorted by name
        values = np.stack([self.reward(state, np.full_like(state, action)) for action in range(4)], -1)
        values[..., 3][state == 2] = NAN  # forbidden there
        return Credit(values, {"credit/claimed": float(values.mean())})

    def get_state(self):
        return {"state": self.state.copy()}

    def set_state(self, state):
        self.state = state["state"].copy()
        return []


def learner_of(env: TrainingEnv, **options) -> Learner:
    settings = {"num_envs": env.num_envs, "rollout_steps": 4, "minibatch_size": 64, "learning_rate": 0.01, "epochs": 60}
    learner = Learner(TrainConfig().replace(**settings, hidden=(16,), update_epochs=4, **options), env)
    learner.start()
    return learner


def test_it_learns_what_the_rewards_cannot_tell() -> None:
    """With the true values of all actions, 30 rollouts of 64 steps find the best action of every state; the returns of
    those rollouts, whose noise is thirty times what is to be learned, do not."""
    best = {}
    for informed in (True, False):
        env = Crossing(16, informed)
        learner = learner_of(env)
        for _ in range(30):
            metrics = learner.update(learner.estimate(learner.collect()), 0.0)
        env.state = np.array([0, 1, 2, *[0] * 13])
        best[informed] = learner.policy()(env.look(), batched=True)[:3].tolist()
        assert ("credit/rows" in metrics) == informed
    assert best[True] == list(Crossing.best)
    assert best[False] != list(Crossing.best)


@pytest.mark.parametrize("options", [{}, {"policy_epochs": 2, "value_epochs": 1}, {"normalise_advantages": False}])
def test_the_first_ratio_is_one(options) -> None:
    """Before any step the policy at update is the one that acted, masks included; the value learns beside it."""
    learner = learner_of(Crossing(16, True), entropy_coef=0.01, **options)
    learner.config = learner.config.replace(minibatch_size=10**6)
    learner.ppo.config = learner.config.ppo
    batch = learner.estimate(learner.collect())
    with torch.no_grad():
        params = learner.agent.kind.mask(learner.agent.network.policy(batch.features), batch.masks)
    assert len(batch) == 64
    assert torch.allclose(torch.log_softmax(params, -1), batch.every.log_probs, atol=1e-5)
    metrics = learner.update(batch, 0.0)
    assert metrics["credit/rows"] == 64
    assert metrics["credit/spread"] > 0
    assert metrics["loss/value"] > 0


def test_a_run_with_credit_resumes_to_the_same_bits(tmp_path) -> None:
    """Through shoal.train: four epochs at once, and two and two more."""

    def kept(name: str) -> dict[str, np.ndarray]:
        return checkpoint.load_latest(Run.open(tmp_path / name, tmp_path).checkpoints).tensors

    class Silent(Crossing):
        def __init__(self) -> None:
            super().__init__(8, True)
            self.noise = np.random.default_rng(0)

        def step(self, actions):
            self.noise = np.random.default_rng(self.state)  # of the state alone: what it resumes from
            return super().step(actions)

    common = {"rollout_steps": 4, "runs_dir": str(tmp_path), "lr_schedule": "constant", "stream": None}
    shoal.train(env=Silent(), epochs=4, name="whole", **common)
    shoal.train(env=Silent(), epochs=2, name="half", **common)
    shoal.train(env=Silent(), resume=tmp_path / "half", epochs=4)
    whole, half = kept("whole"), kept("half")
    assert [name for name in whole if not np.array_equal(whole[name], half[name])] == []
