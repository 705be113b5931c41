"""Proximal policy optimisation (Schulman et al. 2017): the update. Its loss is in `losses.py`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from shoal.config import PPOConfig, ScheduleName, chosen
from shoal.core.arrays import Array
from shoal.core.errors import RankFailed
from shoal.learn.adam import adam
from shoal.learn.backprop import loss_of
from shoal.learn.distributions import ActionKind
from shoal.learn.losses import Batch, Recipe
from shoal.learn.networks import PolicyAndValue
from shoal.learn.noise import NoiseMeter
from shoal.learn.team import ALONE, Team

MAX_SKIPPED_IN_A_ROW = 10
_OF_POLICY, _OF_VALUE = ("loss/policy", "policy/kl", "policy/clip_share", "policy/entropy"), ("loss/value",)


LossTerm = Callable[[PolicyAndValue, Batch], Tensor | None]  # (network, minibatch) -> a number with a graph


class Diverged(RuntimeError):
    """Gradients stayed non-finite: training cannot go on from here."""


def schedule(name: ScheduleName, start: float, end: float, progress: float) -> float:
    """A value between `start` (progress 0) and `end` (progress 1).

    >>> schedule("linear", 1.0, 0.0, 0.25), schedule("cosine", 1.0, 0.0, 0.5), schedule("constant", 1.0, 0.0, 0.9)
    (0.75, 0.5, 1.0)
    """
    progress = min(max(progress, 0.0), 1.0)
    if name == "linear":
        return start + (end - start) * progress
    if name == "cosine":
        return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))
    return start


def normalised(advantages: Tensor, team: Team = ALONE) -> tuple[Tensor, bool]:
    """Advantages with mean 0 and spread 1 over the whole batch, that of all ranks; as they are (and False) where there
    is no spread."""
    mean: Tensor | float
    std: Tensor | float
    if team.size > 1:
        count, means, variances = _pooled(advantages, team)
        mean, std = float(means), math.sqrt(float(variances) * count / max(count - 1, 1))
    else:
        std, mean = torch.std_mean(advantages) if len(advantages) > 1 else (math.nan, math.nan)
    if not std > 1e-8:
        return advantages, False
    return (advantages - mean) / (std + 1e-8), True


def _variances(values: Sequence[Tensor], team: Team) -> list[Tensor]:
    """Of each, over all ranks, in one exchange."""
    if team.size == 1:
        return [one.var(correction=0) for one in values]
    return list(torch.from_numpy(_pooled(torch.stack(list(values), -1), team)[2]))


def _pooled(values: Tensor, team: Team) -> tuple[float, Array, Array]:
    """Number, mean and variance along the first axis."""
    own = values.detach().double().cpu().numpy()
    nothing = np.zeros(own.shape[1:])
    return team.pooled(len(own), *((own.mean(0), own.var(0)) if len(own) else (nothing, nothing)))


class PPO:
    """A network, its optimiser (which lives as long as the run) and the update."""

    def __init__(
        self,
        network: PolicyAndValue,
        kind: ActionKind,
        config: PPOConfig,
        meter: NoiseMeter | None = None,
        team: Team = ALONE,
    ) -> None:
        self.network, self.kind, self.config, self.meter, self.team = network, kind, config, meter, team
        self.terms: list[tuple[str, LossTerm]] = []  # added to the loss wherever the policy learns; names for figures
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimiser = adam(self.parameters, chosen(config.learning_rate), config.device)
        self.skipped_in_a_row = self.restored_in_a_row = 0

    def update(self, batch: Batch, progress: float, shuffle: torch.Generator) -> dict[str, float]:
        """Learn from one batch. `progress` (0 to 1) drives the schedules."""
        config = self.config
        rate = schedule(config.lr_schedule, chosen(config.learning_rate), config.lr_final, progress)
        self.optimiser.param_groups[0]["lr"] = rate
        self.clip = schedule(config.clip_schedule, config.clip, 0.0, progress)
        self.entropy_coef = schedule(config.entropy_schedule, chosen(config.entropy_coef), 0.0, progress)
        skipped_normalisation = False
        if config.normalise_advantages:
            if batch.every is not None:
                every, done = batch.every.scaled(self.team)
                batch = replace(batch, every=every)
            else:
                advantages, done = normalised(batch.advantages, self.team)
                batch = replace(batch, advantages=advantages)
            skipped_normalisation = not done
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.skipped = self.stopped = 0
        self._loss_of = loss_of(self.network)
        noise = self._noise(batch)
        before = [p.detach().clone() for p in self.parameters], self.state()
        self.network.train()
        try:
            if config.policy_epochs is None and config.value_epochs is None:
                self._passes(batch, config.update_epochs, shuffle, policy=True, value=True)
            else:
                self._passes(batch, config.policy_epochs or config.update_epochs, shuffle, policy=True, value=False)
                self._passes(batch, config.value_epochs or config.update_epochs, shuffle, policy=False, value=True)
        except RankFailed:  # amid an update: what is saved is of its beginning
            self._restore(*before)
            raise
        finally:
            self.network.eval()
            restored = self._restore_if_broken(*before)
        self._stop_if_always_restored(restored)
        metrics = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        variance, unexplained = _variances([batch.targets, batch.targets - batch.values], self.team)
        explained = 1 - unexplained / variance if variance > 0 else math.nan
        return {
            **metrics,
            **noise,
            "value/explained_variance": float(explained),
            "optim/learning_rate": rate,
            "optim/clip": self.clip,
            "optim/entropy_coef": self.entropy_coef,
            "optim/gradient_steps": self.counts.get("optim/grad_norm", 0),
            "guard/skipped_steps": self.skipped,
            "guard/kl_stops": self.stopped,
            "guard/restored_updates": int(restored),
            "guard/flat_advantages": int(skipped_normalisation),
        }

    def _noise(self, batch: Batch) -> dict[str, float]:
        """Figures of the gradient's noise, while the policy is still the one that acted."""
        if self.meter is None or batch.environments is None:
            return {}
        passes = self.config.policy_epochs or self.config.update_epochs
        steps = passes * -(-batch.total // chosen(self.config.minibatch_size))  # of all ranks: this one may have no row
        if not self.meter.due(passes, steps):
            return self.meter.scale()
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]):  # a network that draws random numbers draws the same ones afterwards
            seen = self.meter.look(batch.environments, partial(self._policy_gradient, batch))
        return {**seen, **self.meter.scale(), "time/noise_s": time.perf_counter() - start}

    def _policy_gradient(self, batch: Batch, rows: Tensor) -> Tensor:
        """Of the policy's loss alone, on these rows; nothing is left behind. Of pictures half as many rows are taken at
        once as by a gradient step: the gradients of other groups are kept beside what the convolutions take."""
        recipe = Recipe(self.clip, None, self.entropy_coef, value=False)
        gradient: Tensor | None = None
        most = max(chosen(self.config.minibatch_size) // 2, 1) if batch.features.dtype == torch.uint8 else len(rows)
        for part in torch.split(rows, most):
            self.optimiser.zero_grad(set_to_none=True)
            loss, _ = self._loss_of(self.network, self.kind, batch.pick(part.to(batch.features.device)), recipe)
            loss.backward()
            here = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.parameters])
            here.mul_(len(part) / len(rows))
            gradient = here if gradient is None else gradient.add_(here)
        self.optimiser.zero_grad(set_to_none=True)
        assert gradient is not None
        return gradient

    def _passes(self, batch: Batch, epochs: int, shuffle: torch.Generator, *, policy: bool, value: bool) -> None:
        weight = self.config.value_coef if policy else 1.0
        recipe = Recipe(self.clip, self.config.value_clip, self.entropy_coef, weight, policy, value)
        for _ in range(epochs):
            for rows in minibatches(batch.total, chosen(self.config.minibatch_size), shuffle):
                if not self._step(batch.share_of(rows), recipe):
                    self.stopped += 1
                    return

    def _step(self, batch: Batch, recipe: Recipe) -> bool:
        """One gradient step on one minibatch; False when the KL limit says stop."""
        told = self.team.average(self.parameters, self._differentiated(batch, recipe), batch.share)
        loss, kl, limit = told.pop("loss"), told.get("policy/kl"), self.config.target_kl
        if kl is not None and limit is not None and not (float(kl) <= limit):  # NaN stops too
            self._note({"policy/kl": kl})
            return False
        self._note(told)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.cat([grad.flatten() for grad in grads]))
        size = float(norm + 0 * loss)  # a clamp can hide a NaN loss from the gradient
        if not math.isfinite(size):
            self.skipped += 1
            self.skipped_in_a_row += 1
            if self.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
                raise Diverged(
                    f"{self.skipped_in_a_row} gradient steps in a row were not finite and were skipped. The last good "
                    "checkpoint stands; lower --learning-rate, or look for huge rewards or observations"
                )
            return True
        self.skipped_in_a_row = 0
        self._note({"optim/grad_norm": norm})
        if size > self.config.max_grad_norm:
            torch._foreach_mul_(grads, self.config.max_grad_norm / (norm + 1e-6))
        self.optimiser.step()
        return True

    def _differentiated(self, batch: Batch, recipe: Recipe) -> dict[str, Tensor]:
        """Set the gradients of the loss of a minibatch; returns the loss and its figures, which have no graph."""
        self.optimiser.zero_grad(set_to_none=True)
        told: dict[str, Tensor] = {}
        if self.team.size > 1:  # all ranks tell the same figures, and one may have no row of a minibatch
            told = dict.fromkeys(self._figures(recipe), torch.zeros((), device=batch.features.device))
            if not len(batch):
                return told
        loss, parts = self._loss_of(self.network, self.kind, batch, recipe)
        told |= parts
        for name, term in self.terms if recipe.policy else ():
            if (more := term(self.network, batch)) is not None:
                loss = loss + more
                told[f"loss/{name}"] = more.detach() + told.get(f"loss/{name}", 0.0)
        loss.backward()
        return {**told, "loss": loss.detach()}

    def _figures(self, recipe: Recipe) -> list[str]:
        terms = [f"loss/{name}" for name, _ in self.terms] if recipe.policy else []
        return [*(_OF_POLICY if recipe.policy else ()), *(_OF_VALUE if recipe.value else ()), *terms, "loss"]

    def _note(self, values: dict[str, Tensor]) -> None:
        """Add up diagnostics on the device; they are read once per update."""
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0) + 1

    def _restore_if_broken(self, weights: list[Tensor], optimiser: dict[str, Array]) -> bool:
        """Undo an update that left a weight that is not finite."""
        if all(bool(torch.isfinite(p.sum())) or bool(torch.isfinite(p).all()) for p in self.parameters):
            return False
        self._restore(weights, optimiser)
        return True

    def _restore(self, weights: list[Tensor], optimiser: dict[str, Array]) -> None:
        with torch.no_grad():
            for parameter, old in zip(self.parameters, weights, strict=True):
                parameter.copy_(old)
        self.set_state(optimiser)

    def _stop_if_always_restored(self, restored: bool) -> None:
        self.restored_in_a_row = self.restored_in_a_row + 1 if restored else 0
        if self.restored_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise Diverged(
                f"{self.restored_in_a_row} updates in a row left weights that were not finite and were undone. "
                "The last good checkpoint stands; lower --learning-rate"
            )

    def state(self) -> dict[str, Array]:
        """The optimiser's state as plain arrays."""
        tensors: dict[str, Array] = {}
        for index, parameter in enumerate(self.parameters):
            for name, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"{index}.{name}"] = np.array(value.detach().cpu().numpy())
        return tensors

    def set_state(self, tensors: dict[str, Array]) -> None:
        """The inverse of `state`."""
        self.optimiser.state.clear()
        for key, value in tensors.items():
            index, name = key.split(".", 1)
            parameter = self.parameters[int(index)]
            tensor = torch.from_numpy(np.array(value))
            on_device = tensor.to(parameter.device) if name != "step" or parameter.is_cuda else tensor
            self.optimiser.state.setdefault(parameter, {})[name] = on_device


def minibatches(size: int, minibatch_size: int, shuffle: torch.Generator) -> Iterator[Tensor]:
    """A random permutation of `size` rows, cut into equal parts of at most `minibatch_size`."""
    parts = -(-size // minibatch_size)
    yield from torch.randperm(size, generator=shuffle).tensor_split(parts)
