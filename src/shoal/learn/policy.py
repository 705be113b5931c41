"""A policy ready to act: features, normalisation, network and action distribution in one place.

Training, evaluation and deployment all act through this class, so they cannot disagree about how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.config import PPOConfig
from shoal.core.arrays import Array
from shoal.core.errors import Unsupported
from shoal.learn.distributions import action_kind
from shoal.learn.encoders import Features
from shoal.learn.frames import Observations, PictureRows
from shoal.learn.lean import acting_policy
from shoal.learn.networks import ActorCritic, PolicyAndValue
from shoal.learn.normalise import RunningMoments
from shoal.learn.pictures import SeeingActorCritic, chosen_encoder

CLIP = 10.0  # normalised observations are cut off here: an outlier must not blow up the network
Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]  # of observations and of actions
_CHUNK_ROWS = 16_384  # of a rollout are taken at once: what is made of them stays in the cache
_CHUNK_BYTES = 1 << 22  # and no more of large observations than this, as features
_PICTURE_CHUNK_BYTES = 1 << 24  # of pictures, whose convolutions need rows to share out among threads


@dataclass(frozen=True)
class OwnNetwork:
    """A network that a task brings. A checkpoint holds the task's registered name and the options, never the maker."""

    task: str
    options: Mapping[str, Any]  # plain data
    make: Callable[[Spaces, PPOConfig], nn.Module | None] = field(repr=False)  # None: the built-in network


Resolver = Callable[[str, dict[str, Any]], OwnNetwork]  # from what a checkpoint holds; refuses what is not registered


class Agent:
    """Network, features and observation statistics for one pair of spaces."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PPOConfig,
        *,
        init_seed: int = 0,
        network: nn.Module | None = None,
        own_network: OwnNetwork | None = None,
    ) -> None:
        self.features = Features(observation_space)  # flat, as a network of the user's or of a task takes them
        self.kind = action_kind(action_space)
        self.device = config.device
        self.own_network = own_network if network is None else None  # what a checkpoint says of it
        self._check_mask_width(observation_space)
        if network is None:
            network = self._made(observation_space, action_space, config, init_seed, own_network)
        for method in ("policy", "value"):
            if not callable(getattr(network, method, None)):
                raise Unsupported(
                    f"a network needs the methods policy(features) -> [B, {self.kind.num_params}] and "
                    f"value(features) -> [B]; {type(network).__name__} has no {method}"
                )
        self.network = cast(PolicyAndValue, network.to(self.device).eval())
        self._rows: Tensor | None = None  # of a rollout, for the network
        self._check_outputs()
        self.begin_acting()
        # A one-hot feature that is seen rarely has a tiny spread. Divided by it, it would saturate the first layer and
        # the policy would settle before it knows the state. Undivided, a state among many hardly counts beside the
        # biases, and the policy settles on what is best without looking. (Taxi-v4: stuck at -100 instead of +7.)
        features = self.features
        scaled = config.normalise_observations and features.size > 0  # pictures are never scaled by statistics
        self.moments = RunningMoments((features.size,), features.known_variances) if scaled else None
        self._set_scale()

    def _made(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PPOConfig,
        init_seed: int,
        own_network: OwnNetwork | None,
    ) -> nn.Module:
        """A task's own network, or the built-in one. By one thread: the QR decomposition that makes initial weights
        orthogonal gives other bits for another number of threads."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):  # initialisation draws from torch's global generator
                torch.manual_seed(init_seed)
                if own_network is not None:
                    made = own_network.make((observation_space, action_space), config)
                    if made is not None:
                        return made
                return self._built_in(observation_space, config)
        finally:
            torch.set_num_threads(threads)

    def _built_in(self, observation_space: spaces.Space[Any], config: PPOConfig) -> nn.Module:
        """Convolutions where there are pictures, otherwise perceptrons alone."""
        encoder = chosen_encoder(config.encoder, observation_space)
        self.features = Features(observation_space, encoder)
        layers: dict[str, Any] = {
            "hidden": config.hidden,
            "activation": config.activation,
            "shared": config.network == "shared",
            "initial_std": config.initial_std,
        }
        seen = self.features.pictures
        if not seen:
            return ActorCritic(self.features.size, self.kind, **layers)
        if config.policy_epochs or config.value_epochs:
            raise ValueError(
                "expected no --policy-epochs and no --value-epochs with pictures: policy and value share the encoder, "
                "so the passes of one would move the other. Use --update-epochs"
            )
        return SeeingActorCritic(seen, self.features.size, self.kind, encoder, **layers)

    def encode(self, leaves: Sequence[Tensor]) -> Tensor:
        """Observation leaves to rows for the network, on the learner's device: numbers scaled, pictures as bytes."""
        return self.features.pack(leaves, self._numbers(leaves))

    def _numbers(self, leaves: Sequence[Tensor]) -> Tensor:
        if self.moments is None:
            return self.features.encode(leaves).to(self.device)
        if not self.features.wide:
            features = self.features.encode(leaves).to(self.device)
            return features.sub(self._mean).mul_(self._scale).clamp_(-CLIP, CLIP)
        # A float32 of 1e8 has no digits left for a spread of 1: the mean goes off before they are cut.
        features = self.features.encode(leaves, torch.float64)
        return features.sub(self._wide_mean).mul_(self._wide_scale).clamp_(-CLIP, CLIP).float().to(self.device)

    def chunks(self, rows: int) -> Iterator[slice]:
        """So many rows of a rollout in parts that fit the cache, and of large observations the memory."""
        step = chunk_rows(self.features)
        return (slice(first, min(first + step, rows)) for first in range(0, rows, step))

    def distribution(self, leaves: Sequence[Tensor]) -> Tensor:
        """Parameters of the behaviour policy `[B, P]`, mask applied."""
        return self._params(self.network.policy, leaves)

    def begin_acting(self) -> None:
        """Look at the network once, not at every step. Called before every rollout: a layer may have been replaced."""
        self._policy = acting_policy(self.network)
        self._both: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
        if isinstance(self.network, SeeingActorCritic) and self.network.is_plain():
            self._both = self.network.both
        self.acted_values: Tensor | None = None  # [B] of the last `act`, where the same look gave them

    def __getstate__(self) -> dict[str, Any]:
        """Without what is looked up in the network (a copy acts by its own), nor what a rollout left."""
        unkept = ("_policy", "_both", "acted_values")
        return {name: value for name, value in self.__dict__.items() if name not in unkept} | {"_rows": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.begin_acting()

    def act(self, leaves: Sequence[Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and sampled actions."""
        if self._both is None:
            params = self._params(self._policy, leaves)
        else:
            parts = [self._both(rows) for rows in self._looks(leaves)]
            params = self._masked(torch.cat([params for params, _ in parts]), leaves)
            self.acted_values = torch.cat([values for _, values in parts])
        return params, self.kind.sample(params, noise)

    def _params(self, policy: Callable[[Tensor], Tensor], leaves: Sequence[Tensor]) -> Tensor:
        """Of pictures, part by part: what the convolutions take for a thousand environments would not be bounded."""
        if not self.features.pictures:
            return self._masked(policy(self.encode(leaves)), leaves)
        return self._masked(torch.cat([policy(rows) for rows in self._looks(leaves)]), leaves)

    def _looks(self, leaves: Sequence[Tensor]) -> Iterator[Tensor]:
        return (self.encode([leaf[part] for leaf in leaves]) for part in self.chunks(len(leaves[0])))

    def _masked(self, params: Tensor, leaves: Sequence[Tensor]) -> Tensor:
        masks = self.features.masks(leaves)
        return params if masks is None else self.kind.mask(params, masks.to(self.device))

    @torch.inference_mode()
    def values(self, features: Tensor) -> Array:
        """Value estimates of features `[B, F]`, float32[B]."""
        parts = [self.network.value(features[part]) for part in self.chunks(len(features))]
        return torch.cat(parts).cpu().numpy() if parts else np.zeros(0, np.float32)

    def encode_and_value(self, seen: Observations, valid: Array, known: Array | None = None) -> tuple[Any, Array]:
        """Rows for the network of what is marked in bool[B], and values of all that was seen [B + more], the last
        observations' included: part by part, so that rows are held once, in memory that every rollout uses again, and
        those of pictures not at all. `known` are values [B] that are known already."""
        told, values = 0 if known is None else len(known), np.empty(len(seen), np.float32)
        if known is not None:
            values[:told] = known
        leaves, count = seen.flat, int(valid.sum())
        if self.features.pictures:
            for part in self.chunks(len(seen) - told):
                last = slice(told + part.start, told + part.stop)
                values[last] = self.values(self.encode(seen.leaves(last)))
            picked, numbers = torch.from_numpy(np.flatnonzero(valid)), None
            if self.features.size:
                numbers, unread = self._room(count, self.features.size), {one.leaf for one in self.features.pictures}
                for part in self.chunks(count):
                    there = picked[part]
                    numbers[part] = self._numbers(
                        [leaf[:0] if at in unread else leaf[there] for at, leaf in enumerate(leaves)]
                    )
            return PictureRows(seen, self.features, picked, numbers, self.device), values
        rows, at = self._room(count, self.features.size), 0
        for part in self.chunks(len(seen)):
            encoded = self.encode([leaf[part] for leaf in leaves])
            if part.stop > told:
                values[max(part.start, told) : part.stop] = self.values(encoded[max(told - part.start, 0) :])
            here = valid[part]  # shorter than the part where the last observations begin: nobody acted from them yet
            chosen = encoded[: len(here)] if here.all() else encoded[torch.from_numpy(np.flatnonzero(here))]
            rows[at : at + len(chosen)] = chosen
            at += len(chosen)
        return rows, values

    def _room(self, rows: int, width: int) -> Tensor:
        """For rows of a rollout, float32[rows, width]."""
        if self._rows is None or len(self._rows) < rows:
            self._rows = torch.empty((rows, width), device=self.device)
        return self._rows[:rows]

    def learn_scale(self, leaves: Sequence[Tensor], valid: Array) -> None:
        """Take observation leaves `[B, *shape]` into the statistics, those rows that are marked in bool[B]."""
        if self.moments is not None:
            dtype = torch.float64 if self.features.wide else torch.float32
            for part in self.chunks(len(valid)):
                self.moments.update(self.features.encode([leaf[part] for leaf in leaves], dtype).numpy()[valid[part]])
            self._set_scale()

    def moments_state(self) -> dict[str, Array]:
        return {} if self.moments is None else self.moments.state()

    def set_moments_state(self, state: dict[str, Array]) -> None:
        if self.moments is not None:
            self.moments.set_state(state)
            self._set_scale()

    def _set_scale(self) -> None:
        if self.moments is not None:
            self._wide_mean, self._wide_scale = (
                torch.from_numpy(self.moments.mean),
                torch.from_numpy(self.moments.scale),
            )
            self._mean, self._scale = (part.float().to(self.device) for part in (self._wide_mean, self._wide_scale))

    @torch.inference_mode()
    def _check_outputs(self) -> None:
        """A value of shape [B, 1] would broadcast against targets [B] to [B, B]: silent nonsense."""
        features = torch.zeros((2, self.features.width), dtype=self.features.dtype, device=self.device)
        for method, expected in (("policy", (2, self.kind.num_params)), ("value", (2,))):
            got = tuple(getattr(self.network, method)(features).shape)
            if got != expected:
                name = f"{type(self.network).__name__}.{method}"
                raise ValueError(f"expected {name} to give shape {expected} for 2 rows of features, got {got}")

    def _check_mask_width(self, space: spaces.Space[Any]) -> None:
        leaf = self.features.mask_leaf
        if leaf is None:
            return
        _, shape, _ = self.features.layout.leaves[leaf]
        if int(np.prod(shape)) != self.kind.num_masks:
            raise ValueError(f"expected an action_mask of {self.kind.num_masks} entries, got shape {shape} in {space}")


def chunk_rows(features: Features) -> int:
    """Rows of a rollout that are encoded and valued at once."""
    most = _PICTURE_CHUNK_BYTES if features.pictures else _CHUNK_BYTES
    return min(_CHUNK_ROWS, max(most // (4 * features.width), 1))


def check_device(name: str) -> None:
    """Refuse a device that is not there, with what to do."""
    if name == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "--device cuda: torch sees no CUDA device here. Use --device cpu, or install a CUDA build of torch"
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise RuntimeError("--device mps: torch sees no Apple GPU here. Use --device cpu")
