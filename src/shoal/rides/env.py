"""The task as one batched Gymnasium vector environment: N days booked at once, all priced in one call.

One step is one request: the action is one of 16 offers, the rider answers, the request is planned. An episode is a day.
The rewards of a day add up exactly to the day's saving against the same day without offers, less the burden on riders.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from shoal.compiled.random import mix
from shoal.core.machine import Stopwatch
from shoal.core.protocols import Acting, Credit, TrainingEnv
from shoal.core.seeds import SCHEME, Stream, episode_seed
from shoal.rides.bookings import Bookings
from shoal.rides.coach import Coach, figures_of
from shoal.rides.flexibility.model import ANSWER, epsilon_at, hard_mask, soft_bias
from shoal.rides.kept import of_all_ranks, part_of
from shoal.rides.knowledge import answers_to, figures_of_types, first_flexibility, new_flexibility, settle
from shoal.rides.observe import FEATURES_VERSION, Menu, anticipate, make_menu, observation_space, observe
from shoal.rides.options import RidesOptions
from shoal.rides.oracles import make_oracle
from shoal.rides.policies.futures import future_values
from shoal.rides.policies.lookahead import Lookahead
from shoal.rides.routing.problem import NUM_OFFERS, OFFER_MIN
from shoal.rides.world.tables import Notice
from shoal.rides.world.world import make_world

Array = np.ndarray[Any, Any]
TRAIN_EVERY_DAYS = 10  # the flexibility model learns after so many days of every environment
_EXPLORE = np.uint64(0x5851F42D4C957F2D)  # sets the draws of exploration apart from the oracle's


class RidesVectorEnv(TrainingEnv):
    """N days of booking at once; `Dict` observations as docs/rides.md names them, 16 actions.

    Rows are environments. The same seed gives the same days for any number of environments or threads; the training
    stream draws days of training riders, the evaluation stream of held-out ones.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012
    features_version = FEATURES_VERSION

    def __init__(
        self,
        num_envs: int = 1,
        options: RidesOptions | None = None,
        *,
        threads: int = 1,
        stream: Stream = Stream.TRAIN,
        again: bool = False,
    ) -> None:
        """`again`: riders may call more than once a day, as they do at the booking desk."""
        if num_envs < 1:
            raise ValueError(f"num_envs: expected at least 1, got {num_envs}")
        self.options = options or RidesOptions()
        self.believed = self.options  # the world that futures are drawn from; a shift test changes only the real one
        self.num_envs, self.stream = num_envs, stream
        self.world = make_world(self.options)
        if self.world.notice and not again:
            warnings.warn(self.world.notice, Notice, stacklevel=1)  # of here: said once, however many are made
        self.days = self.world.days("train" if stream == Stream.TRAIN else "held_out", again=again)
        self.oracle = make_oracle(self.options, self.world.problem, threads, training=stream == Stream.TRAIN)
        self.bookings = Bookings(self.world, num_envs, self.oracle)
        self.single_observation_space = observation_space(self.options.customers)
        self._parts = list(self.single_observation_space.spaces)
        self.single_action_space = gym.spaces.Discrete(NUM_OFFERS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.flexibility = new_flexibility(self.world)
        if self.options.knowledge != "true":  # begin with what every rider answered earlier
            self.flexibility.set_state(first_flexibility(self.options))
        self.lookahead: Lookahead | None = None
        if self.options.start in ("lookahead", "taught"):
            own, prices = self.options.lookahead, self.options.prices
            self.lookahead = Lookahead.load(own) if own else Lookahead.shipped(prices)
        self.progress = 0.0  # of training: drives epsilon
        self.exploring = stream == Stream.TRAIN  # evaluation never ignores the mask
        self.menu: Menu  # of the current requests
        self._seeds: list[int] | None = None
        self._episode = np.zeros(num_envs, np.int64)  # episodes begun, per environment
        self._rows = np.arange(num_envs)
        self._coach = Coach(self.options, self.oracle) if stream == Stream.TRAIN else None
        self._unseen: list[Array] = []  # answers that the flexibility model has not been given yet
        self._ended: list[dict[str, Array]] = []  # figures of days ended since the last report
        self._days_learned_at = 0
        self._days_ended = 0
        self._planning = Stopwatch()  # since the last report: planning, prices, futures
        self._in_training = False
        self._learned: dict[str, float] = {}  # figures of the model's last training

    # -- the Gymnasium interface -------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin a day everywhere, or where options["reset_mask"] (bool[N]) is True. A list seeds one each."""
        mask = (options or {}).get("reset_mask")
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else np.asarray(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise ValueError(f"reset_mask: expected bool[{self.num_envs}], got {chosen.dtype}{list(chosen.shape)}")
        if not chosen.any():
            raise ValueError(
                "reset_mask: expected at least one True, got none; look() shows the current requests again"
            )
        if seed is None and self._seeds is None:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
        if seed is not None:
            seeds = [int(seed)] * self.num_envs if isinstance(seed, int | np.integer) else [int(one) for one in seed]
            if len(seeds) != self.num_envs:
                raise ValueError(f"seed: expected an int or {self.num_envs} ints, one an environment, got {len(seeds)}")
            of_run = isinstance(seed, int | np.integer)
            self._own_index = self.first_env + self._rows if of_run else np.zeros_like(self._rows)
            self._seeds = seeds
            self._episode[chosen] = 0
        self._begin(np.flatnonzero(chosen))
        seen = self.look()
        self._planning.take()  # no step's time
        return seen, {}

    def step(self, actions: Any) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Make one offer in every environment and hear the answers."""
        if self._seeds is None:
            raise gym.error.ResetNeeded("rides: call reset() before step()")
        if self.closed:
            raise gym.error.ClosedEnvironmentError("rides: step() after close()")
        offers = np.asarray(actions)
        if offers.shape != (self.num_envs,) or offers.dtype.kind not in "iu":
            raise ValueError(f"actions: expected int[{self.num_envs}], got {offers.dtype}{list(offers.shape)}")
        if offers.min() < 0 or offers.max() >= NUM_OFFERS:
            raise ValueError(f"actions: expected offers of 0 to {NUM_OFFERS - 1}, got {offers.min()} to {offers.max()}")
        offers = offers.astype(np.int64)
        bookings = self.bookings
        before_s = bookings.base_cost_s() - bookings.cost_s()
        accepted = bookings.answers(offers)
        if self.exploring:
            self._unseen.append(answers_to(bookings, offers, accepted))
        if self._coach is not None:
            self._coach.note(bookings, self.menu.p_accept, offers)
        with self._planning:
            bookings.put(offers, accepted, self.options.iterations)
        saved_s = bookings.base_cost_s() - bookings.cost_s() - before_s
        patience, refusal = self.options.burden_rates
        burden = np.where(accepted, patience * OFFER_MIN[offers], refusal)
        rewards = (saved_s / 60.0 - burden).astype(np.float32)
        terminated = bookings.t >= bookings.customers
        infos: dict[str, Any] = self._end(np.flatnonzero(terminated), terminated) if terminated.any() else {}
        return self.look(), rewards, terminated, np.zeros(self.num_envs, np.bool_), infos

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self.flexibility.finish()
        self.oracle.close()
        if self._coach is not None:
            self._coach.close()

    # -- what training asks of it ------------------------------------------------------------------

    def after_rollout(self, progress: float) -> dict[str, Any]:
        """Let the flexibility model learn when it is due; figures of the days that ended since the last call."""
        self.progress = progress
        ended = of_all_ranks(self.ranks, self._ended)
        metrics: dict[str, Any] = figures_of(ended, self.options.customers)
        self._days_ended += sum(len(day["offers"]) for day in ended)
        self._ended.clear()
        metrics |= self.oracle.figures() | {"time/oracle_s": self._planning.take()}
        if self._coach is not None and "rides/net_min" in metrics:
            self._coach.watch(metrics["rides/net_min"], metrics["rides/agreed_min"])
        if self.options.knowledge != "learned":
            return metrics
        if self._in_training:
            self._learned = self.flexibility.finish()
            self._in_training = False
        for answers in of_all_ranks(self.ranks, [{"answers": part.view(np.uint8)} for part in self._unseen]):
            if len(answers["answers"]):
                self.flexibility.add(answers["answers"].view(ANSWER))
        self._unseen.clear()
        if self._days_ended - self._days_learned_at >= TRAIN_EVERY_DAYS * self.num_envs * self.ranks.size:
            self._days_learned_at = self._days_ended
            self.flexibility.start_training()
            self._in_training = self.options.background
            if not self._in_training:
                self._learned = self.flexibility.finish()
        metrics |= self._learned
        metrics |= figures_of_types(self.flexibility, self.world, self.days.members)
        return metrics | {"flexibility/epsilon": epsilon_at(progress, self.options.epsilon)}

    def mark(self) -> None:
        """A rollout begins here."""
        super().mark()
        if self._coach is not None:
            self._coach.begin(self.num_envs)

    def credit(self, rollout: Any, policy: Acting) -> Credit | None:
        """What each offer was worth by the end of its day (credit.py)."""
        return None if self._coach is None else self._coach.credit(rollout.steps, self, policy)

    def examine(self, policy: Acting, epoch: int) -> dict[str, Any]:
        """How well the agent does on a few held-out days (examination.py)."""
        return {} if self._coach is None else self._coach.examine(policy, epoch, self.flexibility.state)

    def bytes_needed(self, num_envs: int) -> int:
        """Of the neural oracle, which routes each day and the same day without offers in one call."""
        return self.oracle.bytes_needed(2 * num_envs, self.options.customers)

    def follow(self, training: TrainingEnv) -> None:
        """Know of riders what the training has learnt; of held-out ones only their histories."""
        if isinstance(training, RidesVectorEnv):
            settle(self, training.flexibility.state())

    @property
    def alarms(self) -> Mapping[str, str]:
        return {} if self._coach is None else self._coach.alarms

    @property
    def messages(self) -> Sequence[str]:
        return () if self._coach is None else self._coach.messages

    def get_state(self) -> dict[str, Array]:
        """All that decides how the environments go on, as arrays."""
        unseen = np.concatenate(self._unseen) if self._unseen else np.zeros(0, ANSWER)
        # While it trains, the model's state is that from before: a resumed run starts the same training again.
        counters = [self._days_learned_at, self._days_ended, self._in_training]
        return {
            **{f"bookings.{name}": value for name, value in self.bookings.state().items()},
            **{f"flexibility.{name}": value for name, value in self.flexibility.state().items()},
            "seeds": np.array(self._seeds if self._seeds is not None else [], np.int64),
            "own_index": self._own_index.copy(),
            "episode": self._episode.copy(),
            "counters": np.array(counters, np.int64),
            "progress": np.array([self.progress]),
            "unseen": unseen.view(np.uint8).copy(),
            "watched": np.zeros((0, 3)) if self._coach is None else self._coach.watched(),
            "p_accept": self.menu.p_accept.copy(),  # as the present observations show it: the model has learned since
        }

    def set_state(self, tensors: dict[str, Array]) -> list[int]:
        """The inverse of `get_state`; no environment differs."""
        self.bookings.set_state(part_of(tensors, "bookings."))
        self.flexibility.set_state(part_of(tensors, "flexibility."))
        self._seeds = [int(seed) for seed in tensors["seeds"]]
        self._own_index, self._episode = tensors["own_index"].copy(), tensors["episode"].copy()
        self._days_learned_at, self._days_ended, in_training = (int(value) for value in tensors["counters"])
        if in_training:
            self.flexibility.start_training()
        self._in_training = bool(in_training)
        self.progress = float(tensors["progress"][0])
        unseen = np.ascontiguousarray(tensors["unseen"]).view(ANSWER)
        self._unseen = [unseen.copy()] if len(unseen) else []
        self._ended.clear()
        self.look()
        if "p_accept" in tensors:  # else saved by an older version
            self.menu = replace(self.menu, p_accept=tensors["p_accept"].copy())
        if self._coach is not None and "watched" in tensors:
            self._coach.go_on(tensors["watched"])
        self._planning.take()
        return []

    # -- inside ------------------------------------------------------------------------------------

    def _begin(self, rows: Array) -> None:
        assert self._seeds is not None
        # Scheme 1 in evaluation: the same held-out days as ever, and held out from runs of older versions too.
        scheme = 1 if self.stream == Stream.EVALUATE else SCHEME
        seeds = [
            episode_seed(self._seeds[row], int(self._own_index[row]), int(self._episode[row]), self.stream, scheme)
            for row in rows
        ]
        self._episode[rows] += 1
        self.bookings.begin(rows, [self.days.draw(seed) for seed in seeds])

    def _end(self, rows: Array, terminated: Array) -> dict[str, Any]:
        """Figures of the days that ended; their last observations; then new days."""
        day = self.bookings.figures(rows, *self.options.burden_rates)
        self._ended.append(day)
        if self._coach is not None:
            self._coach.end(rows, self.bookings, day["net_min"])
        infos: dict[str, Any] = {}
        for name, values in day.items():
            whole = np.zeros(self.num_envs, values.dtype)
            whole[rows] = values
            infos[name], infos[f"_{name}"] = whole, terminated.copy()
        final = self.look()
        last = np.empty(self.num_envs, object)
        for row in rows:
            last[row] = {name: array[row] for name, array in final.items()}
        self._begin(rows)
        return {
            "final_obs": last,
            "_final_obs": terminated.copy(),
            "final_info": infos,
            "_final_info": terminated.copy(),
        }

    def look(self, prices: str | None = None) -> dict[str, Array]:
        """Price the current requests (by `prices` if given, else the options') and write down what the agent sees."""
        bookings, options = self.bookings, self.options
        request = bookings.now(bookings.requests)
        with self._planning:
            if (prices or options.prices) == "pooled":
                keys = mix(bookings.step_keys())
                going_on = bookings.t < bookings.customers  # after a day's last request there is nothing to price
                total_s, status = self.oracle.pooled_menu(
                    bookings.plans, request, keys, options.offer_effect, active=going_on
                )
                extra_s = total_s - bookings.plans.cost_s[:, None]
            else:
                extra_s, status = self.oracle.insertion_menu(bookings.plans, request, options.offer_effect)
        self.menu = make_menu(bookings, extra_s, status, self._p_accept())
        obs = observe(bookings, self.days, self.menu)
        value_min = None if self.lookahead is None else self.lookahead.values(obs)
        with self._planning:
            future_min = future_values(self, options.futures) if options.futures else None
        anticipate(obs, self.menu, value_min, future_min, options.burden_rates)
        free = self._ignores_mask()
        obs["bias"] = np.zeros((self.num_envs, NUM_OFFERS), np.float32)
        obs["action_mask"] = np.ones((self.num_envs, NUM_OFFERS), np.int8)
        if options.mask == "soft":
            obs["bias"][:] = np.where(free[:, None], 0.0, soft_bias(self.menu.p_accept, options.kappa))
        elif options.mask == "hard":
            obs["action_mask"][:] = free[:, None] | hard_mask(self.menu.p_accept, options.threshold)
        return {name: obs[name] for name in self._parts}

    def _p_accept(self) -> Array:
        bookings, knowledge = self.bookings, self.options.knowledge
        rider, purpose = bookings.now(bookings.rider), bookings.now(bookings.purpose)
        if knowledge == "true":
            return self.world.true_probability(rider, purpose)
        request = bookings.now(bookings.requests)
        direct_s = self.world.problem.travel_s[request["pickup"], request["dropoff"]]
        if knowledge == "prior":
            rider = np.full_like(rider, -1)
        return self.flexibility.predict(rider, purpose, request["pickup_open"], direct_s)

    def _ignores_mask(self) -> Array:
        """bool[N]: the environments whose present step ignores the mask, a function of day, step and epsilon."""
        if not self.exploring:
            return np.zeros(self.num_envs, np.bool_)
        with np.errstate(over="ignore"):
            draws = mix(self.bookings.step_keys() + _EXPLORE) >> np.uint64(11)
        return np.asarray(draws * 2.0**-53 < epsilon_at(self.progress, self.options.epsilon))
