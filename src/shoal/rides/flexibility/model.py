"""Learning who is flexible: P(accept | rider, trip, offer) and a type distribution per rider, from answers.

`flexibility_kernels` states the model. Two things are learned at two speeds. What all riders share (what the types
do, what profile and trip say) is fitted by likelihood from time to time, if wanted in the background. What is known of
one rider is a Bayes update at every answer, given the shared part: exact, in microseconds, and for a rider
who was never trained on as well.

A prediction is scored before its answer is learned from, so the calibration in the metrics is of the future, never of
training data.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from shoal.rides.flexibility import fit as fitting
from shoal.rides.flexibility.buffer import AnswerBuffer
from shoal.rides.flexibility.calibration import Calibration
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS
from shoal.rides.world.answers import ANSWER, PURPOSES

__all__ = ["ANSWER", "FlexibilityModel", "epsilon_at", "hard_mask", "soft_bias"]

Array = np.ndarray[Any, Any]
LEAST_P = 1e-3  # the soft mask takes no refusal for surer than this: log P has no floor of its own


class FlexibilityModel:
    """What an operator knows of its riders' flexibility.

    >>> model = FlexibilityModel(np.eye(2, dtype=np.float32), seed=0)
    >>> answers = np.zeros(4, ANSWER)
    >>> answers["offer"], answers["accepted"] = [0, 3, 15, 15], [0, 0, 1, 1]  # rider 0: later yes, earlier no
    >>> model.add(answers)
    >>> [["early", "late", "inflexible", "both"][k] for k in model.type_probabilities([0]).argmax(1)]
    ['late']
    """

    def __init__(
        self,
        profile: Array,
        *,
        seed: int,
        prior: Any | None = None,
        buffer: int = 64_000,
        epochs: int = 50,
        threads: int = 1,
    ) -> None:
        """`profile` float32[R, F]; `prior`: shares of the 4 types, if known (default: learned from nothing)."""
        profile = np.asarray(profile, np.float64)
        if profile.ndim != 2 or not np.isfinite(profile).all():
            raise ValueError(f"expected a finite profile [riders, features], got shape {list(profile.shape)}")
        if epochs < 1:
            raise ValueError(f"expected at least 1 epoch, got {epochs}")
        self.epochs, self.threads = epochs, threads
        self._profile, self._log_shares = profile, fitting.log_shares(prior)
        self._buffer = AnswerBuffer(buffer, len(profile))
        self._observed = np.zeros(0, ANSWER)  # of riders who are not trained on
        self._calibration = Calibration()
        self._training: _Training | None = None
        self._use(fitting.first_theta(profile.shape[1], seed, self._log_shares))

    # -- learning ----------------------------------------------------------------------------------

    def add(self, answers: Array) -> None:
        """Learn about riders from their answers at once, and keep these to train on; no change tells nothing."""
        answers = self._checked(answers)
        self._calibration.add(self._predicted(answers), answers["accepted"])
        self._buffer.add(answers)
        self._hear(answers)

    def observe_only(self, answers: Array) -> None:
        """Learn about riders from their answers, but never train on them: histories of held-out riders."""
        answers = self._checked(answers)
        self._observed = np.concatenate([self._observed, answers])
        self._hear(answers)

    def posterior(self, history: Array) -> FlexibilityModel:
        """The same model after a history, for a what-if: this one stays as it is. The copy has nothing to train on."""
        other = FlexibilityModel.__new__(FlexibilityModel)
        other.__dict__.update(self.__dict__)
        other._buffer = AnswerBuffer(self._buffer.capacity, len(self._profile))
        other._calibration, other._training = Calibration(), None
        other._evidence, other._weights = self._evidence.copy(), self._weights.copy()
        other.observe_only(history)
        return other

    def train(self) -> dict[str, float]:
        """Fit what all riders share to the remembered answers; returns metrics."""
        self.start_training()
        return self.finish()

    def start_training(self) -> None:
        """Begin `train` in a thread. Until `finish`, predictions come from the parameters of before."""
        if self._training is not None:
            raise RuntimeError("the flexibility model is training already: call finish() first")
        self._training = _Training(self._buffer.answers(), self._profile, self._theta, self._log_shares, self)

    def finish(self) -> dict[str, float]:
        """Wait for the training, if one was started, and use its result from now on; returns metrics.

        The moment is the caller's, so that no result depends on how fast a thread was. Answers added in the
        meantime count for their riders.
        """
        training, self._training = self._training, None
        if training is None:
            return {}
        fit = training.result()
        self._use(fit.theta)
        metrics = {f"flexibility/{name}": value for name, value in self._calibration.metrics().items()}
        self._calibration = Calibration()
        metrics["flexibility/trained_on"] = training.size
        metrics["flexibility/train_loss"] = -fit.log_likelihood / max(1, training.size)
        metrics["flexibility/train_s"] = training.seconds
        return metrics

    # -- asking ------------------------------------------------------------------------------------

    def predict(self, rider: Any, purpose: Any, pickup_open_s: Any, direct_s: Any) -> Array:
        """P(accept) of each of the 16 offers, float32[N, 16]; no change is exactly 1. Rider -1 is anybody."""
        from shoal.rides.flexibility.kernels import predict_rows

        rider, purpose = np.asarray(rider, np.int64), np.asarray(purpose, np.int64)
        self._check_range("rider", rider, -1, len(self._profile))
        self._check_range("purpose", purpose, 0, len(PURPOSES))
        inputs = fitting.trip_inputs(pickup_open_s, direct_s)
        out = np.empty((len(rider), NUM_OFFERS), np.float32)
        if not len(rider) == len(purpose) == len(inputs):
            raise ValueError(
                f"expected as many purposes and trips as riders, got {len(purpose)}, {len(inputs)}, {len(rider)}"
            )
        predict_rows(self._trip, self._odds_by_node, self._weights, rider, purpose, inputs, out, 0, len(rider))
        return out

    def type_probabilities(self, riders: Any | None = None) -> Array:
        """P(type) of the riders, or of all: float32[R, 4], in the order early, late, inflexible, both."""
        rows = self._weights[:-1] if riders is None else self._weights[np.asarray(riders, np.int64)]
        return np.asarray(rows.reshape(len(rows), 4, -1).sum(axis=2), np.float32)

    def score(self, answers: Array) -> Calibration:
        """Compare predictions with answers, without learning from them."""
        answers = self._checked(answers)
        seen = Calibration()
        seen.add(self._predicted(answers), answers["accepted"])
        return seen

    # -- on disk -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        """All that was learned, as arrays. A training under way is not in it: start it again after `set_state`."""
        return {
            "theta": self._theta.copy(),
            "evidence": self._evidence.copy(),
            "buffer": self._buffer.answers().view(np.uint8),
            "observed": self._observed.view(np.uint8).copy(),
            "calibration": self._calibration.sums.copy(),
        }

    def set_state(self, state: dict[str, Array]) -> None:
        """The inverse of `state`."""
        shapes = {"theta": self._theta.shape, "evidence": self._evidence.shape}
        for name, shape in shapes.items():
            if state[name].shape != shape:
                raise ValueError(
                    f"flexibility {name}: expected shape {list(shape)}, got {list(state[name].shape)}: "
                    "the state is of another population"
                )
        if self._training is not None:
            self._training.result()
            self._training = None
        self._buffer.clear()
        self._buffer.add(np.ascontiguousarray(state["buffer"]).view(ANSWER))
        self._observed = np.array(np.ascontiguousarray(state["observed"]).view(ANSWER))
        self._calibration = Calibration(state["calibration"])
        self._use(np.array(state["theta"], np.float64), np.array(state["evidence"], np.float64))

    # -- inside ------------------------------------------------------------------------------------

    def _use(self, theta: Array, evidence: Array | None = None) -> None:
        """Take over parameters; what riders' answers mean is worked out anew unless it is given."""
        from shoal.rides.flexibility import kernels

        self._theta = theta
        self._trip = np.ascontiguousarray(theta[: kernels.NUM_TRIP_PARAMETERS])
        self._odds = kernels.node_odds(self._trip)
        self._odds_by_node = np.ascontiguousarray(self._odds.T)
        by_type = fitting.log_type_prior(theta, self._profile)
        anybody = np.log(np.exp(by_type).mean(axis=0, keepdims=True))
        by_type = np.concatenate([by_type, anybody])  # [R + 1, 4], so that rider -1 is anybody
        self._log_prior = np.repeat(by_type, kernels.NUM_LEVELS, axis=1) + np.tile(kernels.LEVEL_LOG_WEIGHTS, 4)
        self._weights = np.empty_like(self._log_prior)
        self._evidence = np.zeros((len(self._profile), kernels.NUM_NODES)) if evidence is None else evidence
        self._weigh(np.arange(len(self._profile) + 1))
        if evidence is None:
            self._hear(np.concatenate([self._buffer.answers(), self._observed]))

    def _hear(self, answers: Array) -> None:
        """Bayes' rule for the riders who answered."""
        from shoal.rides.flexibility.kernels import add_evidence

        rider = answers["rider"].astype(np.int64)
        add_evidence(self._trip, self._odds, rider, *fitting.columns(answers), self._evidence)
        self._weigh(np.unique(rider))

    def _weigh(self, riders: Array) -> None:
        logs = self._log_prior[riders]
        known = riders < len(self._evidence)
        logs[known] += self._evidence[riders[known]]
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        self._weights[riders] = weights / weights.sum(axis=1, keepdims=True)

    def _predicted(self, answers: Array) -> Array:
        p = self.predict(answers["rider"], answers["purpose"], answers["pickup_open_s"], answers["direct_s"])
        return np.asarray(p[np.arange(len(answers)), answers["offer"]])

    def _checked(self, answers: Array) -> Array:
        """Answers to real offers; the kernels do not check bounds."""
        if answers.dtype != ANSWER or answers.ndim != 1:
            raise ValueError(f"expected answers as ANSWER[K], got {answers.dtype}{list(answers.shape)}")
        self._check_range("rider", answers["rider"], 0, len(self._profile))
        self._check_range("purpose", answers["purpose"], 0, len(PURPOSES))
        self._check_range("offer", answers["offer"], 0, NUM_OFFERS)
        return np.asarray(answers[answers["offer"] != NO_CHANGE])

    @staticmethod
    def _check_range(what: str, values: Array, low: int, high: int) -> None:
        if values.size and not (low <= values.min() and values.max() < high):
            raise ValueError(f"expected every {what} from {low} to {high - 1}, got {values.min()} to {values.max()}")


class _Training:
    """One fit in a thread of its own; the kernels release the GIL."""

    def __init__(
        self, answers: Array, profile: Array, theta: Array, log_shares: Array, model: FlexibilityModel
    ) -> None:
        self.size, self.seconds = len(answers), 0.0
        self._outcome: fitting.Fit | BaseException | None = None
        options = {"epochs": model.epochs, "threads": model.threads}
        self._thread = threading.Thread(
            target=self._run, args=(answers, profile, theta, log_shares, options), name="shoal-flexibility", daemon=True
        )
        self._thread.start()

    def _run(self, answers: Array, profile: Array, theta: Array, log_shares: Array, options: dict[str, int]) -> None:
        start_s = time.perf_counter()
        try:
            self._outcome = fitting.fit(answers, profile, theta, shares=log_shares, **options)
        except BaseException as error:  # raised where somebody can act on it, in result()
            self._outcome = error
        self.seconds = time.perf_counter() - start_s

    def result(self) -> fitting.Fit:
        self._thread.join()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


def soft_bias(p_accept: Array, kappa: float, least: float = LEAST_P) -> Array:
    """What the soft mask adds to the policy's logits: kappa * log P, float32[N, 16]; 0 for no change.

    >>> print(soft_bias(np.array([[1.0, 0.5, 0.0]]), 1.0).round(2))
    [[ 0.   -0.69 -6.91]]
    """
    return np.asarray(kappa * np.log(np.maximum(p_accept, least)), np.float32)


def hard_mask(p_accept: Array, threshold: float) -> Array:
    """Offers that the hard mask allows, bool[N, 16]: P at the threshold or above it, and no change always."""
    allowed = np.asarray(p_accept) >= threshold
    allowed[..., NO_CHANGE] = True
    return np.asarray(allowed)


def epsilon_at(progress: float, start: float = 0.2) -> float:
    """Share of steps that ignore the mask, `progress` (0 to 1) into training: from `start` to 0 linearly.

    >>> [epsilon_at(progress) for progress in (0.0, 0.5, 1.0, 1.5)]
    [0.2, 0.1, 0.0, 0.0]
    """
    return start * (1.0 - min(max(progress, 0.0), 1.0))
