"""The options of the task as one frozen value: flags of `shoal train rides`, arguments of its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from shoal.core.checks import check_numbers, check_wholes
from shoal.core.machine import usable_cores
from shoal.core.protocols import Batched
from shoal.core.seeds import Stream
from shoal.core.single import SingleEnv
from shoal.rides.routing.neural.decoding import Decoding

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv

_LATER = {"later": True}  # at its default such an option is neither written down nor hashed (shoal.tasks.plain)
FUTURES = 32  # sampled before each offer in evaluation and at the desk, where time matters less than in training
BURDENS = {"default": (0.05, 1.0), "easy": (0.02, 0.5)}  # (patience, refusal): docs/rides.md says why


@dataclass(frozen=True)
class RidesOptions:
    """The city, its riders, the fleet, what an offer does and what the agent knows."""

    customers: int = 30
    """Requests per day."""
    vehicles: int = 5
    """Number of vehicles (a hard limit)."""
    capacity: int = 6
    """Seats per vehicle."""
    city: str = ""
    """A CSV of travel times between zones, in seconds; default: San Francisco in 207 zones."""
    zones: str = ""
    """A CSV of zone names and coordinates for --city."""
    population: int = 300
    """Number of riders; a fifth of them is held out for evaluation if that is enough for a day."""
    riders: str = ""
    """A CSV of riders; default: a population drawn from --population-seed."""
    trips: str = ""
    """A CSV of the trips that --riders make; default: drawn from home and occupation."""
    population_seed: int = 0
    """Seed of the population."""
    type_mix: tuple[float, ...] = ()
    """Shares of early-only, late-only, inflexible and both among the riders of a day; default: as in the population."""
    acceptance: Literal["logit", "rule"] = "logit"
    """How riders answer: with probabilities from a logit model, or by the strict rule of their type."""
    offer_effect: Literal["widen", "shift"] = "widen"
    """What an accepted offer does to the windows."""
    burden: Literal["default", "easy", "own"] = "default"
    """Cost per minute and per refusal: default (0.05, 1), easy (0.02, 0.5), own (--patience, --refusal)."""
    patience: float = 0.05
    """Route minutes per minute that a rider agreed to (with --burden own)."""
    refusal: float = 1.0
    """Route minutes per refused offer (with --burden own)."""
    iterations: int = 30
    """Ruin-and-recreate iterations of the routing oracle after each request (300 for evaluation)."""
    lookahead: str = ""
    """Weights of the lookahead (.npz, made by shoal.rides.fit.lookahead); default: those that come with shoal."""
    prices: Literal["insertion", "pooled"] = "pooled"
    """Prices of the 16 offers that the agent sees: pooled prices are three times slower and far more accurate."""
    futures: int = 8
    """Futures of the day sampled before each offer, in which all 16 offers are priced (32 for evaluation). 0 (none) is
    five times as fast."""
    knowledge: Literal["learned", "true", "prior"] = "learned"
    """Source of P(accept): learned from answers, the true model, or the mix of types alone."""
    history: int = 10
    """Earlier answers known of every rider, to offers drawn at random."""
    mask: Literal["soft", "hard", "off"] = "soft"
    """soft: logits + kappa log P. hard: offers with P below the threshold are forbidden. off: neither."""
    kappa: float = 1.0
    """Weight of log P in the soft mask."""
    threshold: float = 0.3
    """The hard mask forbids an offer with P below this."""
    epsilon: float = 0.2
    """Initial share of steps that ignore the mask; decays linearly to 0 over the run."""
    start: Literal["none", "myopic", "lookahead", "taught"] = "taught"
    """The policy that training starts from: initial logits are its scores divided by --start-temperature. taught: the
    lookahead and a network trained on sampled futures."""
    start_temperature: float = 0.15
    """Minutes of expected net gain that initially multiply an offer's odds by e."""
    credit: Literal["auto", "rebuilt", "negotiated", "rewards"] = "auto"
    """Source of PPO's advantages. rebuilt: all 16 offers of a request, priced at the end of the agent's own day.
    negotiated: the same, but without the request the agent negotiates the later ones again; fifteen times as slow, so
    use few --credit-requests. rewards: the sum of later rewards. auto: rebuilt, but rewards for --start taught."""
    credit_requests: int = 15
    """Requests drawn from each day to be credited; PPO does not learn from the others."""
    credit_generous: float = 0.5
    """Share of the later riders in a rebuilt day that get the largest change they are likely to accept, instead of the
    agent's offer. 0 favours agreed changes, 1 favours room that stays unused."""
    held_out_days: int | None = None
    """Held-out days on which the agent is evaluated during training (0: none), never those of shoal evaluate. Default:
    256, or none if futures are sampled, which takes five times as long."""
    background: bool = True
    """Train the flexibility model in the background during rollouts."""
    oracle: Literal["incremental", "neural"] = field(default="incremental", metadata=_LATER)
    """Route planner of the training days. incremental: the compiled search. neural: one batched pass of a network for
    all environments; on a CPU it is slower and worse. Prices, futures and evaluation always use the compiled search."""
    oracle_weights: str = field(default="", metadata=_LATER)
    """Weights of --oracle neural (.safetensors, by shoal rides fit oracle); default: those that come with shoal."""
    oracle_batch: str = field(default="auto", metadata=_LATER)
    """Plans that --oracle neural keeps in memory at once: auto or a number. It is halved when memory runs out, and does
    not change results."""
    oracle_device: Literal["cpu", "cuda"] = field(default="cpu", metadata=_LATER)
    """Where the network of --oracle neural is computed."""
    oracle_decode: str = field(default="greedy", metadata=_LATER)
    """Plans that --oracle neural makes for a day; the best one counts. greedy: one. best-of-N: N greedy plans, each
    with another order of requests. sampled-N: the greedy plan and N - 1 sampled from the scores."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_mix", tuple(self.type_mix))  # JSON knows lists only
        check_wholes(self, 2, "population")
        check_wholes(self, 1, "customers", "vehicles", "capacity", "credit_requests")
        check_wholes(self, 0, "history", "iterations", "futures", "held_out_days")
        check_numbers(self, "patience", "refusal", "kappa", least=0)
        check_numbers(self, "threshold", "epsilon", "credit_generous", least=0, most=1)
        check_numbers(self, "start_temperature", above=0)
        for name, needs in (("zones", "city"), ("trips", "riders")):
            if getattr(self, name) and not getattr(self, needs):
                raise ValueError(f"expected --{needs} beside --{name} {getattr(self, name)}, got none: it says which")
        if self.oracle_weights and self.oracle != "neural":
            raise ValueError(f"expected --oracle neural beside --oracle-weights {self.oracle_weights}: it reads them")
        if self.oracle_batch != "auto" and not (self.oracle_batch.isdigit() and int(self.oracle_batch)):
            raise ValueError(f"expected --oracle-batch as auto or a number of days, got {self.oracle_batch!r}")
        Decoding.of(self.oracle_decode)
        if self.oracle_device != "cpu" and self.oracle != "neural":
            raise ValueError(f"expected --oracle neural beside --oracle-device {self.oracle_device}: it computes there")
        if self.oracle_decode != "greedy" and self.oracle != "neural":
            raise ValueError(f"expected --oracle neural beside --oracle-decode {self.oracle_decode}: it decodes")
        mix = self.type_mix
        if mix and (len(mix) != 4 or min(mix) < 0 or sum(mix) <= 0):
            raise ValueError(f"expected --type-mix as 4 shares of at least 0 that do not add up to 0, got {mix}")

    @property
    def credited(self) -> bool:
        """Whether PPO learns from what each offer was worth at the end of the day."""
        return self.credit in ("rebuilt", "negotiated") or (self.credit == "auto" and self.start != "taught")

    @property
    def burden_rates(self) -> tuple[float, float]:
        """(patience, refusal) in route minutes."""
        return BURDENS.get(self.burden, (self.patience, self.refusal))


@dataclass(frozen=True)
class RidesTask(Batched):
    """What `make_vec` takes: makes any number of environments as one."""

    options: RidesOptions

    def make_vector(
        self, num_envs: int, threads: int | Literal["auto"] = 1, stream: Stream = Stream.TRAIN
    ) -> RidesVectorEnv:
        """N days at a time; training riders for the training stream, held-out ones for evaluation."""
        from shoal.rides.env import RidesVectorEnv

        count = usable_cores() if threads == "auto" else threads
        return RidesVectorEnv(num_envs, self.options, threads=count, stream=stream)

    def make_single(self) -> SingleEnv:
        """One day at a time."""
        from shoal.rides.env import RidesVectorEnv

        return SingleEnv(RidesVectorEnv(1, self.options))


def environment(**options: Any) -> RidesTask:
    """The environment behind the id `shoal/Rides-v0`, with its options checked."""
    return RidesTask(RidesOptions(**options))
