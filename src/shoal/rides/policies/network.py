"""The policy and value networks that suit this task: a set encoder and one head shared by the 16 offers.

The policy's logits are `(start score + P(accept) * worth) / temperature + bias`: the network learns what an accepted
offer is worth beyond the score that training starts from. That begins at 0, so that the first policy is exactly the one
started from. The bias is the soft mask, part of the observation, so that the update replays the behaviour policy
as it acted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.core.arrays import Layout
from shoal.rides.observe import ACCEPTED, CONTEXT, MINUTES, OFFER_COLUMN, OFFERS
from shoal.rides.observe import observation_space as space_of_days

_DATA = Path(__file__).parents[1] / "data"
_TAUGHT_WIDTH = 64
_P_ACCEPT, _IS_CHANGE = OFFER_COLUMN["p_accept"], OFFER_COLUMN["is_change"]
Seen = Tensor | Mapping[str, Tensor]  # rows of features, or an observation by its parts `[B, *shape]`
_BEST = [OFFER_COLUMN["myopic"], OFFER_COLUMN["lookahead"]]


class RidesNetwork(nn.Module):
    """Separate policy and value networks over the parts of an observation: by name, or as rows of features."""

    def __init__(self, space: spaces.Dict, *, width: int, start: str, temperature: float) -> None:
        super().__init__()
        self.layout = Layout(space)
        self.start_column = OFFER_COLUMN.get("lookahead" if start == "taught" else start)
        # Per 10 minutes of expected net gain; learned, so that training may sharpen or soften what it started from.
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(MINUTES / temperature)))
        self.policy_set, self.value_set = _SetEncoder(width), _SetEncoder(width)
        self.policy_context = nn.Sequential(nn.Linear(width + len(CONTEXT), width), nn.ReLU(), nn.Linear(width, width))
        self.policy_offer = nn.Linear(len(OFFERS), width)
        self.policy_head = nn.Linear(width, 1)
        self.value_body = nn.Sequential(
            nn.Linear(width + len(CONTEXT) + len(OFFERS) + len(_BEST), width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
        )  # fmt: skip
        nn.init.zeros_(self.policy_head.weight)
        nn.init.zeros_(self.policy_head.bias)

    def policy(self, seen: Seen) -> Tensor:
        """Logits `[B, 16]`, soft mask included."""
        parts = self._parts(seen)
        offers = parts["offers"]
        scores = offers[:, :, _P_ACCEPT] * self.worth(parts)
        if self.start_column is not None:
            scores = scores + offers[:, :, self.start_column]
        return self.log_sharpness.exp() * scores + parts["bias"]

    def worth(self, seen: Seen) -> Tensor:
        """What the network adds to each offer's worth if it is accepted, in units of 10 minutes, `[B, 16]`."""
        parts = self._parts(seen)
        offers = parts["offers"]
        day = torch.cat([self.policy_set(parts["accepted"]), parts["context"]], 1)
        hidden = torch.relu(self.policy_offer(offers) + self.policy_context(day)[:, None])
        worth: Tensor = self.policy_head(hidden).squeeze(-1) * offers[:, :, _IS_CHANGE]
        return worth

    def value(self, seen: Seen) -> Tensor:
        """Expected rest of the day's reward `[B]`."""
        parts = self._parts(seen)
        offers, day = parts["offers"], [self.value_set(parts["accepted"]), parts["context"]]
        value: Tensor = self.value_body(torch.cat([*day, offers.mean(1), offers[:, :, _BEST].amax(1)], 1))
        return value.squeeze(-1)

    def learn_from(self, path: Path) -> None:
        """Take over the policy's weights of a file; a network of another width cannot."""
        with np.load(path, allow_pickle=False) as data:
            weights = {name: torch.from_numpy(data[name]) for name in data}
        own = self.state_dict()
        for name, weight in weights.items():
            if name not in own or own[name].shape != weight.shape:
                raise ValueError(
                    f"{path.name}: expected {name} of shape {list(own[name].shape) if name in own else 'nothing'}, got "
                    f"{list(weight.shape)}: --start taught needs --hidden {len(weights['policy_offer.bias'])}"
                )
        self.load_state_dict(weights, strict=False)

    def taught(self) -> dict[str, np.ndarray[Any, Any]]:
        """The policy's weights, for `learn_from`."""
        kept = ("policy_set.", "policy_context.", "policy_offer.", "policy_head.")
        return {name: value.numpy() for name, value in self.state_dict().items() if name.startswith(kept)}

    def _parts(self, seen: Seen) -> Mapping[str, Tensor]:
        return self.layout.named(seen) if isinstance(seen, Tensor) else seen


class _SetEncoder(nn.Module):
    """Each accepted request by the same layer, then the sum over those present (Zaheer et al. 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(len(ACCEPTED), width), nn.ReLU())

    def forward(self, accepted: Tensor) -> Tensor:
        """`[B, C, 6]` to `[B, width]`; an empty set gives zeros."""
        place = accepted[:, :, 0].nonzero()  # [M, 2]: half of all places are empty on average, so only M are computed
        each = self.body(accepted[place[:, 0], place[:, 1]])
        total = torch.zeros((len(accepted), each.shape[1]), dtype=each.dtype, device=each.device)
        return total.index_add(0, place[:, 0], each) / 10


def make_network(
    observation_space: spaces.Dict,
    action_space: spaces.Space[Any],
    config: Any,
    *,
    start: str = "none",
    start_temperature: float = 1.0,
    prices: str = "insertion",
) -> RidesNetwork:
    """The network for a run's settings (a `shoal.config.PPOConfig`), as wide as the first of its `hidden`."""
    width = config.hidden[0] if config.hidden else 32
    network = RidesNetwork(observation_space, width=width, start=start, temperature=start_temperature)
    if start == "taught":
        network.learn_from(_DATA / f"taught_{prices}.npz")
    return network


@functools.lru_cache(maxsize=8)
def taught_network(customers: int, prices: str, temperature: float) -> RidesNetwork:
    """The network that training starts from, for days of any number of customers."""
    network = RidesNetwork(space_of_days(customers), width=_TAUGHT_WIDTH, start="taught", temperature=temperature)
    network.learn_from(_DATA / f"taught_{prices}.npz")
    return network
