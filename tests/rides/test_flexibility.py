"""Learning who is flexible."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from shoal.rides.flexibility import fit as fitting
from shoal.rides.flexibility import kernels
from shoal.rides.flexibility.buffer import AnswerBuffer, fair_quota, latest_of_each
from shoal.rides.flexibility.calibration import Calibration
from shoal.rides.flexibility.model import ANSWER, FlexibilityModel, epsilon_at, hard_mask, soft_bias
from shoal.rides.routing.problem import NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN
from shoal.rides.world.answers import COEFFICIENTS, PURPOSE_EFFECT, PURPOSE_MIX, Kind, accept_probability, rule_accepts

TRAINED, RIDERS = 120, 160  # riders 120 to 159 are held out


class Town:
    """A population whose profile (one of eight groups) says something about the type, and its answers."""

    def __init__(self, seed: int = 0, rule: bool = False) -> None:
        rng = np.random.default_rng(seed)
        group = rng.integers(0, 8, RIDERS)
        favourite = np.array([0, 0, 0, 1, 1, 2, 2, 3])[group]
        self.kind = np.where(rng.random(RIDERS) < 0.5, favourite, rng.choice(4, RIDERS, p=[0.43, 0.27, 0.2, 0.1]))
        self.effect = rng.normal(0, 0.4, RIDERS)
        self.profile = np.eye(8, dtype=np.float32)[group]
        self.rule = rule

    def p(self, answers: np.ndarray) -> np.ndarray:
        earlier, later = OFFER_EARLIER_MIN[answers["offer"]], OFFER_LATER_MIN[answers["offer"]]
        kind = self.kind[answers["rider"]]
        if self.rule:
            return rule_accepts(kind, earlier, later).astype(float)
        return accept_probability(kind, self.effect[answers["rider"]], answers["purpose"], earlier, later)

    def answers(self, count: int, riders: Any, seed: int) -> np.ndarray:
        """`count` answers of these riders to uniform offers."""
        rng = np.random.default_rng(seed)
        out = np.zeros(count, ANSWER)
        out["rider"] = rng.choice(riders, count)
        out["purpose"] = rng.choice(5, count, p=PURPOSE_MIX)
        out["pickup_open_s"], out["direct_s"] = rng.integers(12, 44, count) * 1800, rng.integers(300, 2400, count)
        offer = rng.integers(0, 15, count)
        out["offer"] = offer + (offer >= NO_CHANGE)
        out["accepted"] = rng.random(count) < self.p(out)
        return out


def loss(model: FlexibilityModel, town: Town, riders: Any) -> tuple[float, float]:
    """Expected log loss on new answers, and its floor (of somebody who knows the truth)."""
    rows = town.answers(8000, riders, 99)
    p = model.predict(rows["rider"], rows["purpose"], rows["pickup_open_s"], rows["direct_s"])
    p, truth = p[np.arange(len(rows)), rows["offer"]].astype(float), town.p(rows)
    return _cross_entropy(truth, p), _cross_entropy(truth, truth)


def _cross_entropy(truth: np.ndarray, p: np.ndarray) -> float:
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return float(-(truth * np.log(p) + (1 - truth) * np.log1p(-p)).mean())


@pytest.fixture(scope="module")
def town() -> Town:
    return Town()


@pytest.fixture(scope="module")
def trained(town: Town) -> FlexibilityModel:
    model = FlexibilityModel(town.profile, seed=0)
    model.add(town.answers(6000, np.arange(TRAINED), 1))
    model.train()
    return model


def state_equal(a: FlexibilityModel, b: FlexibilityModel) -> bool:
    one, two = a.state(), b.state()
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


# -- the arithmetic --------------------------------------------------------------------------------


def true_theta(num_features: int) -> np.ndarray:
    theta = fitting.first_theta(num_features, 0, np.zeros(4))
    theta[: kernels.LOG_SPREAD] = COEFFICIENTS.T.ravel()
    theta[kernels.PURPOSE : kernels.HIDDEN_BIAS] = PURPOSE_EFFECT
    return theta


def test_a_node_predicts_the_true_logit(town: Town) -> None:
    """With the true coefficients and all weight on one type and no extra willingness, P is the truth of that type."""
    theta = true_theta(8)[: kernels.NUM_TRIP_PARAMETERS].copy()
    odds = np.ascontiguousarray(kernels.node_odds(theta).T)
    weights = np.zeros((4, kernels.NUM_NODES))
    weights[range(4), [kind * kernels.NUM_LEVELS + kernels.NUM_LEVELS // 2 for kind in Kind]] = 1.0
    purpose, out = np.array([0, 1, 3, 4]), np.empty((4, 16))
    kernels.predict_rows(theta, odds, weights, np.arange(4), purpose, np.zeros((4, 3)), out, 0, 4)
    truth = accept_probability(np.arange(4)[:, None], 0.0, purpose[:, None], OFFER_EARLIER_MIN, OFFER_LATER_MIN)
    np.testing.assert_allclose(out, truth, rtol=1e-12)


def test_one_answer_is_bayes_rule_by_hand(town: Town) -> None:
    """Posterior odds of two types are prior odds times the ratio of their chances, willingness integrated out."""
    model = FlexibilityModel(town.profile, seed=0)
    before = model.type_probabilities([3])[0].astype(float)
    assert before == pytest.approx([0.25] * 4, abs=1e-6)
    answers = np.zeros(1, ANSWER)
    answers[0] = (3, 0, 8 * 3600, 1200, 0, 1)  # 30 minutes earlier, accepted
    model.add(answers)
    levels = 0.5 * np.linspace(-3, 3, 13)
    weights = np.exp(-0.5 * (levels / 0.5) ** 2)
    logits = np.array([2.0, 2.0, -1.0, 2.0]) - 3 * np.array([0.5, 2.0, 1.0, 0.5])  # where learning starts
    chance = (weights / weights.sum() / (1 + np.exp(-(logits[:, None] + levels)))).sum(1)
    assert model.type_probabilities([3])[0] == pytest.approx(chance / chance.sum(), rel=1e-4)


def test_the_gradient_is_that_of_the_likelihood(town: Town) -> None:
    """Central differences in every parameter of the trip part agree."""
    rng = np.random.default_rng(2)
    answers = town.answers(300, np.arange(20), 5)
    theta = fitting.first_theta(8, 0, np.zeros(4))[: kernels.NUM_TRIP_PARAMETERS].copy()
    theta += rng.normal(0, 0.2, len(theta))
    rows = fitting.rows_by_rider(answers, RIDERS)
    log_prior = np.log(rng.dirichlet(np.ones(4), RIDERS))
    edges = np.array([0, 7, RIDERS])
    value, gradient, posterior = np.empty(2), np.empty((2, len(theta))), np.empty((RIDERS, 4))

    def at(point: np.ndarray) -> float:
        kernels.likelihood(point, kernels.node_odds(point), log_prior, *rows, edges, value, gradient, posterior, 0, 2)
        return float(value.sum())

    at(theta)
    found = gradient.sum(0)
    np.testing.assert_allclose(posterior.sum(1), 1.0)
    for i in range(len(theta)):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        assert found[i] == pytest.approx((at(theta + step) - at(theta - step)) / 2e-5, rel=1e-5, abs=1e-6)


def test_the_likelihood_is_that_of_the_evidence(town: Town) -> None:
    """Fitting and updating are two kernels for one model: log sum over nodes of prior times exp(evidence)."""
    answers = town.answers(400, np.arange(30), 6)
    theta = fitting.first_theta(8, 3, np.zeros(4))[: kernels.NUM_TRIP_PARAMETERS].copy()
    odds = kernels.node_odds(theta)
    evidence = np.zeros((RIDERS, kernels.NUM_NODES))
    kernels.add_evidence(theta, odds, answers["rider"].astype(np.int64), *fitting.columns(answers), evidence)
    log_prior = np.full((RIDERS, 4), np.log(0.25))
    prior = np.repeat(log_prior, kernels.NUM_LEVELS, axis=1) + np.tile(kernels.LEVEL_LOG_WEIGHTS, 4)
    value, gradient, posterior = np.empty(1), np.empty((1, len(theta))), np.empty((RIDERS, 4))
    rows = fitting.rows_by_rider(answers, RIDERS)
    kernels.likelihood(theta, odds, log_prior, *rows, np.array([0, RIDERS]), value, gradient, posterior, 0, 1)
    assert value[0] == pytest.approx(np.logaddexp.reduce(prior + evidence, axis=1).sum(), rel=1e-12)


def test_no_parameter_breaks_the_arithmetic() -> None:
    """Coefficients of a thousand and a thousand identical answers: finite everywhere."""
    model = FlexibilityModel(np.zeros((2, 1), np.float32), seed=0)
    state = model.state()
    state["theta"][: kernels.LOG_SPREAD] = 1000.0
    model.set_state(state)
    answers = np.zeros(1000, ANSWER)
    answers["accepted"] = 1
    model.add(answers)
    assert np.isfinite(model.predict([0, 1, -1], [0, 1, 2], [0, 1, 2], [3, 4, 5])).all()
    assert all(np.isfinite(value) for value in model.train().values())
    assert np.isfinite(model.state()["evidence"]).all()


# -- learning --------------------------------------------------------------------------------------


def test_it_learns_close_to_the_floor(town: Town, trained: FlexibilityModel) -> None:
    """50 answers a rider: within 0.015 nats of somebody who knows everything, nearly all types found."""
    found, floor = loss(trained, town, np.arange(TRAINED))
    assert floor < found < floor + 0.015
    guess = trained.type_probabilities().argmax(1)
    assert (guess == town.kind)[:TRAINED].mean() > 0.95


def test_a_rider_never_seen_is_predicted_from_the_profile(town: Town, trained: FlexibilityModel) -> None:
    """Better than taking everybody for the average rider, and the same for equal profiles."""
    held_out = np.arange(TRAINED, RIDERS)
    cold, _ = loss(trained, town, held_out)
    rows = town.answers(8000, held_out, 99)
    anybody = trained.predict(np.full(8000, -1), rows["purpose"], rows["pickup_open_s"], rows["direct_s"])
    assert cold < _cross_entropy(town.p(rows), anybody[np.arange(8000), rows["offer"]].astype(float)) - 0.01
    group = town.profile[held_out].argmax(1)
    same = held_out[group == group[0]]
    assert len(same) > 1
    assert (trained.type_probabilities(same) == trained.type_probabilities(same[:1])).all()


def test_ten_answers_adapt_a_held_out_rider_without_training(town: Town, trained: FlexibilityModel) -> None:
    """A history moves its riders and nobody else, and the model it is asked of stays as it was."""
    held_out = np.arange(TRAINED, RIDERS)
    history = np.concatenate([town.answers(10, [rider], 50 + rider) for rider in held_out])
    before = trained.state()
    adapted = trained.posterior(history)
    assert all(np.array_equal(before[name], after) for name, after in trained.state().items())
    assert (adapted.type_probabilities(range(TRAINED)) == trained.type_probabilities(range(TRAINED))).all()
    cold, _ = loss(trained, town, held_out)
    warm, floor = loss(adapted, town, held_out)
    assert floor < warm < floor + 0.3 * (cold - floor)
    assert (adapted.type_probabilities(held_out).argmax(1) == town.kind[held_out]).mean() > 0.8


def test_answers_that_are_only_observed_outlive_a_training(town: Town) -> None:
    """Held-out histories move their riders before and after a training, but not what is trained."""
    plain = FlexibilityModel(town.profile, seed=0, epochs=5)
    other = FlexibilityModel(town.profile, seed=0, epochs=5)
    for model in (plain, other):
        model.add(town.answers(500, np.arange(TRAINED), 1))
    other.observe_only(town.answers(100, [TRAINED], 2))
    plain.train(), other.train()
    assert (plain.state()["theta"] == other.state()["theta"]).all()
    assert other.type_probabilities([TRAINED]).max() > 0.95 > plain.type_probabilities([TRAINED]).max()


def test_the_strict_rule_is_learned_too() -> None:
    """Riders that never waver: predictions go to the edges, and each type is found."""
    strict = Town(4, rule=True)
    model = FlexibilityModel(strict.profile, seed=0)
    model.add(strict.answers(4000, np.arange(TRAINED), 1))
    model.train()
    found, floor = loss(model, strict, np.arange(TRAINED))
    assert floor < 1e-6
    assert found < 0.03
    assert (model.type_probabilities().argmax(1) == strict.kind)[:TRAINED].mean() > 0.98


def test_a_trip_effect_is_learned(town: Town) -> None:
    """If all refuse in the morning, the network says so, for riders it has never seen too."""
    model = FlexibilityModel(town.profile, seed=0)
    answers = town.answers(6000, np.arange(TRAINED), 1)
    answers["accepted"][answers["pickup_open_s"] < 9 * 3600] = 0
    model.add(answers)
    model.train()
    hours = np.array([7, 17]) * 3600
    p = model.predict([TRAINED] * 2, [0, 0], hours, [1200, 1200])
    assert p[0, 8] < 0.4 * p[1, 8]


def test_metrics_score_predictions_made_before_the_answer(town: Town) -> None:
    """The log loss of `finish` is that of `score` before `add`; after a training the count begins anew."""
    model = FlexibilityModel(town.profile, seed=0, epochs=3)
    answers = town.answers(200, np.arange(TRAINED), 1)
    expected = model.score(answers).metrics()
    model.add(answers)
    metrics = model.train()
    assert metrics["flexibility/log_loss"] == pytest.approx(expected["log_loss"])
    assert (metrics["flexibility/answers"], metrics["flexibility/trained_on"]) == (200, 200)
    assert "flexibility/log_loss" not in model.train()


def test_no_change_is_certain_and_tells_nothing(town: Town) -> None:
    """Column 12 is exactly 1; answers to it are not learned from, kept or scored."""
    model = FlexibilityModel(town.profile, seed=0)
    before = model.state()
    answers = town.answers(50, np.arange(TRAINED), 1)
    answers["offer"], answers["accepted"] = NO_CHANGE, 1
    model.add(answers)
    assert all(np.array_equal(before[name], after) for name, after in model.state().items())
    p = model.predict(answers["rider"], answers["purpose"], answers["pickup_open_s"], answers["direct_s"])
    assert p.dtype == np.float32
    assert (p[:, NO_CHANGE] == 1.0).all()
    assert ((p > 0) & (p <= 1)).all()


# -- same bits -------------------------------------------------------------------------------------


def test_batches_threads_and_background_change_no_bit(town: Town) -> None:
    """One call or many, one thread or three, in the background or not: the same model and predictions."""
    answers = town.answers(900, np.arange(TRAINED), 1)
    whole = FlexibilityModel(town.profile, seed=0, epochs=6)
    whole.add(answers)
    whole.train()
    pieces = FlexibilityModel(town.profile, seed=0, epochs=6, threads=3)
    for start in range(0, 900, 100):
        pieces.add(answers[start : start + 100])
    pieces.start_training()
    pieces.finish()
    assert (whole.state()["theta"] == pieces.state()["theta"]).all()
    rows = answers[:64]
    columns = [rows[name] for name in ("rider", "purpose", "pickup_open_s", "direct_s")]
    one_by_one = np.concatenate([pieces.predict(*(column[i : i + 1] for column in columns)) for i in range(64)])
    assert (whole.predict(*columns) == one_by_one).all()


def test_until_finish_predictions_are_the_old_ones(town: Town) -> None:
    """Answers that come while it trains count for their riders, before and after the swap."""
    first, late = town.answers(600, np.arange(TRAINED), 1), town.answers(300, np.arange(TRAINED), 2)
    model = FlexibilityModel(town.profile, seed=0, epochs=5)
    model.add(first)
    old = model.state()["theta"]
    model.start_training()
    with pytest.raises(RuntimeError, match="training already"):
        model.start_training()
    model.add(late)
    assert (model.state()["theta"] == old).all()
    metrics = model.finish()
    assert metrics["flexibility/trained_on"] == 600
    assert model.finish() == {}
    other = FlexibilityModel(town.profile, seed=0, epochs=5)
    other.add(first)
    other.train()
    assert (other.state()["theta"] == model.state()["theta"]).all()
    other.add(late)
    np.testing.assert_allclose(other.type_probabilities(), model.type_probabilities(), atol=1e-6)


def test_state_goes_round(town: Town, trained: FlexibilityModel) -> None:
    """A restored model predicts, learns and trains on to the same bits."""
    one, two = trained.posterior(np.zeros(0, ANSWER)), FlexibilityModel(town.profile, seed=7)
    one.add(town.answers(100, np.arange(TRAINED), 8))
    one.observe_only(town.answers(20, [130], 9))
    two.set_state(one.state())
    assert state_equal(one, two)
    for model in (one, two):
        model.add(town.answers(100, np.arange(TRAINED), 10))
        model.train()
    assert state_equal(one, two)
    assert (one.type_probabilities() == two.type_probabilities()).all()


def test_a_failed_training_is_raised_at_finish(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread's exception comes out where somebody can act on it, and the model goes on as before."""
    model = FlexibilityModel(town.profile, seed=0)
    monkeypatch.setattr(fitting, "fit", lambda *_, **__: 1 / 0)
    model.start_training()
    with pytest.raises(ZeroDivisionError):
        model.finish()
    assert model.finish() == {}


# -- buffer ----------------------------------------------------------------------------------------


def test_no_rider_is_pushed_out() -> None:
    """Rider 1 answered twice, long ago; rider 0 a thousand times since."""
    answers = np.zeros(1002, ANSWER)
    answers["rider"][:2] = 1
    answers["direct_s"] = np.arange(1002)
    buffer = AnswerBuffer(100, 3)
    for row in range(0, 1002, 7):
        buffer.add(answers[row : row + 7])
    kept = buffer.answers()
    assert kept["direct_s"].tolist() == [0, 1, *range(904, 1002)]


@pytest.mark.parametrize("seed", range(5))
def test_making_room_early_or_late_leaves_the_same(seed: int) -> None:
    """The quota is the largest that fits, everybody keeps the latest, and pieces do not matter."""
    rng = np.random.default_rng(seed)
    answers = np.zeros(3000, ANSWER)
    answers["rider"] = np.minimum(rng.geometric(0.15, 3000), 20) - 1
    answers["direct_s"] = np.arange(3000)
    kept = latest_of_each(answers, 500, 20)
    counts = np.bincount(answers["rider"], minlength=20)
    quota = fair_quota(counts, 500)
    assert np.minimum(counts, quota).sum() <= 500 < np.minimum(counts, quota + 1).sum()
    for rider in range(20):
        own = answers["direct_s"][answers["rider"] == rider]
        assert kept["direct_s"][kept["rider"] == rider].tolist() == own[-quota:].tolist()
    buffer = AnswerBuffer(500, 20)
    for part in np.split(answers, np.sort(rng.integers(0, 3000, 9))):
        buffer.add(part)
        if rng.random() < 0.5:
            buffer.answers()
    assert (buffer.answers() == kept).all()


def test_the_model_trains_on_a_bounded_buffer(town: Town) -> None:
    """Of 1,000 answers a buffer of 200 keeps 200 at most."""
    model = FlexibilityModel(town.profile, seed=0, buffer=200, epochs=1)
    model.add(town.answers(1000, np.arange(TRAINED), 1))
    assert 80 < model.train()["flexibility/trained_on"] <= 200
    with pytest.raises(ValueError, match="an answer of each of 160 riders at least, got 100"):
        FlexibilityModel(town.profile, seed=0, buffer=100)


# -- masks, calibration, errors --------------------------------------------------------------------


def test_masks_for_all_environments_at_once() -> None:
    """Soft: kappa log P with a floor; hard: by threshold; no change is free under both."""
    p = np.full((3, 16), 0.5, np.float32)
    p[1, 4], p[2, 5], p[:, NO_CHANGE] = 0.0, 0.3, 1.0
    bias = soft_bias(p, 2.0)
    assert bias.dtype == np.float32
    assert bias[0, 0] == pytest.approx(2 * np.log(0.5))
    assert bias[1, 4] == pytest.approx(2 * np.log(1e-3))
    assert (bias[:, NO_CHANGE] == 0).all()
    allowed = hard_mask(p, 0.3)
    assert np.argwhere(~allowed).tolist() == [[1, 4]]
    assert hard_mask(p, 1.1).sum() == 3  # no change is left, always
    assert (p[:, NO_CHANGE] == 1.0).all()


def test_epsilon_falls_linearly_to_nothing() -> None:
    """From its start to 0 over training, and never beyond."""
    assert [epsilon_at(progress, 0.4) for progress in (-1.0, 0.0, 0.25, 1.0, 2.0)] == pytest.approx(
        [0.4, 0.4, 0.3, 0, 0]
    )


def test_calibration_by_hand() -> None:
    """Predictions of 0.9 that come true half the time are 0.4 off; pieces add up to the whole."""
    p, y = np.array([0.9, 0.9, 0.1, 0.1]), np.array([1, 0, 0, 0])
    whole, pieces = Calibration(), Calibration()
    whole.add(p, y)
    pieces.add(p[:1], y[:1]), pieces.add(p[1:], y[1:])
    assert whole.metrics() == pytest.approx(pieces.metrics())
    assert whole.metrics()["ece"] == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)
    assert whole.metrics()["brier"] == pytest.approx((0.01 + 0.81 + 0.01 + 0.01) / 4)
    assert whole.metrics()["log_loss"] == pytest.approx(-(3 * np.log(0.9) + np.log(0.1)) / 4)
    predicted, accepted, count = whole.curve()
    assert (predicted.tolist(), accepted.tolist(), count.tolist()) == (pytest.approx([0.1, 0.9]), [0.0, 0.5], [2, 2])
    assert Calibration().metrics() == {}
    certain = Calibration()
    certain.add(np.array([0.0, 1.0]), np.array([1, 1]))
    assert np.isfinite(certain.metrics()["log_loss"])


def test_predictions_are_calibrated(town: Town, trained: FlexibilityModel) -> None:
    """On new answers the share that accepts is what was predicted, within two points."""
    assert trained.score(town.answers(20_000, np.arange(TRAINED), 77)).metrics()["ece"] < 0.02


def test_a_prior_is_where_types_start(town: Town) -> None:
    """Shares that are known from elsewhere; none may be 0, or no answer could change it."""
    model = FlexibilityModel(town.profile, seed=0, prior=[13, 8, 6, 3])
    assert model.type_probabilities([0])[0] == pytest.approx(np.array([13, 8, 6, 3]) / 30, rel=1e-5)
    for bad in ([1, 1, 1], [1, 1, 1, 0], [[1, 1, 1, 1]]):
        with pytest.raises(ValueError, match="expected a prior of 4 shares above 0"):
            FlexibilityModel(town.profile, seed=0, prior=bad)


def test_bad_input_is_named(town: Town) -> None:
    """Kernels check no bounds, so the model does."""
    model = FlexibilityModel(town.profile, seed=0)
    answers = town.answers(3, np.arange(TRAINED), 1)
    for name, value, most in (("rider", 160, 159), ("rider", -1, 159), ("purpose", 5, 4), ("offer", 16, 15)):
        bad = answers.copy()
        bad[name][1] = value
        with pytest.raises(ValueError, match=f"every {name} from 0 to {most}"):
            model.add(bad)
    with pytest.raises(ValueError, match=r"expected answers as ANSWER\[K\]"):
        model.add(np.zeros(3))
    with pytest.raises(ValueError, match="rider from -1 to 159, got 0 to 160"):
        model.predict([0, 160], [0, 0], [0, 0], [0, 0])
    with pytest.raises(ValueError, match="as many purposes and trips as riders"):
        model.predict([0, 1], [0, 0], [0], [0])
    with pytest.raises(ValueError, match="another population"):
        FlexibilityModel(town.profile[:9], seed=0).set_state(model.state())
    with pytest.raises(ValueError, match="finite profile"):
        FlexibilityModel(np.full((2, 2), np.nan), seed=0)
    with pytest.raises(ValueError, match="at least 1 epoch"):
        FlexibilityModel(town.profile, seed=0, epochs=0)


_FIT = """
import hashlib
import numpy as np
from shoal.rides.flexibility.model import ANSWER
from shoal.rides.knowledge import new_flexibility
from shoal.rides.options import RidesOptions
from shoal.rides.world.world import make_world

rng = np.random.default_rng(0)
answers = np.zeros(12000, ANSWER)
answers["rider"], answers["purpose"] = rng.integers(300, size=12000), rng.integers(5, size=12000)
answers["pickup_open_s"] = rng.integers(14, 40, size=12000) * 1800
answers["direct_s"], answers["offer"] = rng.integers(300, 2400, 12000), rng.integers(16, size=12000)
world = make_world(RidesOptions())
p = world.true_probability(answers["rider"], answers["purpose"])
answers["accepted"] = rng.random(12000) < p[np.arange(12000), answers["offer"]]
model = new_flexibility(world)
model.add(answers)
model.train()
print(hashlib.sha256(model.state()["theta"].tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_every_process_learns_the_same_to_the_bit() -> None:
    """With more than 16 steps remembered, LAPACK rounded differently in every second process or so."""
    running = [subprocess.Popen([sys.executable, "-c", _FIT], stdout=subprocess.PIPE, text=True) for _ in range(6)]
    found = {one.communicate()[0] for one in running}
    assert all(one.returncode == 0 for one in running)
    assert len(found) == 1
