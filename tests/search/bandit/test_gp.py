"""The Gaussian process against its closed form, and the Mallows kernel on all 120 orders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from shoal.search.bandit.gp import JITTER, FiniteGP, standard, white_level
from shoal.search.bandit.kernels import Mallows
from shoal.search.bandit.orders import all_ranks, check_ranks, kendall, pair_signs

RANKS = all_ranks(5)


def test_kendall_counts_the_pairs_that_disagree() -> None:
    """Against counting pairs one by one, for every pair of the 24 orders of four things."""
    ranks = all_ranks(4)
    distances = kendall(ranks)
    for i, j in itertools.product(range(24), range(24)):
        pairs = itertools.combinations(range(4), 2)
        counted = sum((ranks[i, a] < ranks[i, b]) != (ranks[j, a] < ranks[j, b]) for a, b in pairs)
        assert distances[i, j] == counted


def test_kendall_does_not_depend_on_the_names_of_the_things() -> None:
    """Relabelling the things leaves every distance as it was; an order and its reverse are furthest apart."""
    relabelled = RANKS[:, [3, 0, 4, 1, 2]]
    assert (kendall(relabelled) == kendall(RANKS)).all()
    assert kendall(RANKS[:1], 4 - RANKS[:1])[0, 0] == 10 == kendall(RANKS).max()


def test_ranks_are_inverse_to_orders() -> None:
    """Row r of all_ranks says where each thing stands in the r-th order."""
    for order, ranks in zip(itertools.permutations(range(5)), RANKS, strict=True):
        assert [ranks[thing] for thing in order] == [0, 1, 2, 3, 4]


def test_tied_ranks_are_refused() -> None:
    """Two things in one place are no order."""
    check_ranks(RANKS)
    with pytest.raises(ValueError, match=r"rows that permute 0 \.\. k - 1"):
        check_ranks(np.array([[0, 0, 2]]))


@pytest.mark.parametrize("length_scale", [0.5, 1.0, 3.0, 10.0, 30.0])
def test_mallows_is_positive_definite_on_all_120_orders(length_scale: float) -> None:
    """Every eigenvalue is above 0, far above what rounding could make of a 0."""
    values = Mallows(length_scale)(RANKS)
    assert np.allclose(values, values.T)
    assert np.linalg.eigvalsh(values).min() > 1e-7
    assert np.allclose(np.diag(values), 1.0)


def test_mallows_is_a_product_over_pairs() -> None:
    """exp(-d / l) = the product over pairs of exp(-(1 - s s') / (2 l)): why it is positive definite."""
    signs = pair_signs(RANKS)
    factors = np.exp(-(1 - signs[:, None] * signs[None]) / (2 * 3.0))
    assert np.allclose(Mallows(3.0)(RANKS), factors.prod(-1), atol=1e-14)


def test_gradient_of_mallows_is_its_slope() -> None:
    """By the logarithm of the length scale, against finite differences."""
    values, gradient = Mallows(2.5)(RANKS[:20], eval_gradient=True)
    step = 1e-6
    above, below = (Mallows(2.5 * np.exp(sign * step))(RANKS[:20]) for sign in (1, -1))
    assert gradient.shape == (*values.shape, 1)
    assert np.allclose(gradient[..., 0], (above - below) / (2 * step), atol=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a noise at its bound is an answer too
@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("kernel_name", ["mallows", "rbf"])
def test_posterior_equals_the_closed_form(fitted: bool, kernel_name: str) -> None:
    """Mean k (K + S)^-1 y and variance k** - k (K + S)^-1 k, to 1e-8, with the hyper-parameters that were fitted."""
    rng = np.random.default_rng(5)
    items = rng.choice(120, 15)  # with repetitions: the same item may be pulled twice
    errors = rng.uniform(0.5, 2.0, 15)
    means = -30 + 8 * np.sin(items) + errors * rng.standard_normal(15)
    kernel = ConstantKernel(1.3, (0.1, 10)) * (Mallows(4.0) if kernel_name == "mallows" else RBF(2.0))
    kernel = kernel + WhiteKernel(0.05, (1e-4, 1.0))
    process = FiniteGP(RANKS, kernel, fit_from=0 if fitted else 99)
    found = process.posterior(items.tolist(), means.tolist(), errors.tolist())

    used = _refit(process, items, means, errors) if fitted else kernel
    centre, scale = means.mean(), means.std()
    noise = (errors / scale) ** 2 + JITTER + white_level(used)
    at = RANKS[items].astype(float)
    everywhere = used.k1(RANKS.astype(float))
    between = everywhere[:, items]
    weights = np.linalg.inv(used.k1(at) + np.diag(noise))
    mean = centre + scale * between @ weights @ ((means - centre) / scale)
    variance = np.diag(everywhere) - np.einsum("ij,jk,ik->i", between, weights, between)
    assert np.abs(found.mean - mean).max() < 1e-8
    assert np.abs(found.std - scale * np.sqrt(variance)).max() < 1e-8
    covariance = scale**2 * (everywhere - between @ weights @ between.T)
    assert np.abs(found.covariance - covariance).max() < 1e-8


def _refit(process: FiniteGP, items: np.ndarray, means: np.ndarray, errors: np.ndarray) -> object:
    """The kernel that scikit-learn fits to the same standardised numbers, without our class around it."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    scale = means.std()
    regressor = GaussianProcessRegressor(process.kernel, alpha=(errors / scale) ** 2 + JITTER)
    return regressor.fit(RANKS[items].astype(float), (means - means.mean()) / scale).kernel_


def test_fitted_hyper_parameters_beat_others_in_likelihood() -> None:
    """The length scale that was fitted is no worse than any of a grid, by the marginal likelihood written out."""
    rng = np.random.default_rng(3)
    truth = np.linalg.cholesky(Mallows(6.0)(RANKS) + 1e-10 * np.eye(120)) @ rng.standard_normal(120)
    items = rng.permutation(120)[:40]
    process = FiniteGP(RANKS, ConstantKernel(1.0, "fixed") * Mallows(3.0), fit_from=1)
    found = process.posterior(items.tolist(), truth[items].tolist(), [0.05] * 40)
    fitted = float(found.kernel.partition("length_scale=")[2].rstrip(")"))

    def log_likelihood(length_scale: float) -> float:
        values, scale = truth[items], truth[items].std()
        target = (values - values.mean()) / scale
        covariance = Mallows(length_scale)(RANKS[items]) + ((0.05 / scale) ** 2 + JITTER) * np.eye(40)
        return float(-0.5 * target @ np.linalg.solve(covariance, target) - 0.5 * np.linalg.slogdet(covariance)[1])

    assert all(log_likelihood(fitted) >= log_likelihood(other) - 1e-3 for other in np.geomspace(0.5, 30, 40))


def test_a_noisier_pull_moves_the_posterior_less() -> None:
    """The measured error of a pull counts: the same value with a larger error pulls the mean less far."""
    process = FiniteGP(RANKS, fit_from=99)
    exact = process.posterior([0, 60, 119], [0.0, 1.0, 5.0], [0.1, 0.1, 0.1])
    noisy = process.posterior([0, 60, 119], [0.0, 1.0, 5.0], [0.1, 0.1, 3.0])
    assert noisy.mean[119] < exact.mean[119] - 0.5
    assert noisy.std[119] > 2 * exact.std[119]


def test_before_the_first_pull_all_items_are_alike() -> None:
    """No data: one mean, one standard deviation."""
    found = FiniteGP(RANKS).posterior([], [], [])
    assert np.ptp(found.mean) == 0
    assert np.ptp(found.std) < 1e-12
    assert found.std[0] > 0


def test_units_do_not_matter() -> None:
    """Targets are standardised: rewards in other units give the same posterior in those units."""
    items, means, errors = [3, 50, 77, 101, 8, 20, 33], [1.0, 3.0, 2.0, 0.5, 1.5, 2.2, 0.1], [0.2] * 7
    one = FiniteGP(RANKS).posterior(items, means, errors)
    other = FiniteGP(RANKS).posterior(items, [100 * m - 7 for m in means], [100 * e for e in errors])
    assert np.allclose(other.mean, 100 * one.mean - 7, atol=1e-3)
    assert np.allclose(other.std, 100 * one.std, atol=1e-3)


def test_equal_pulls_are_measured_by_their_error() -> None:
    """A spread of zero must not divide anything by zero."""
    assert standard(np.array([2.0, 2.0]), np.array([0.5, 0.5])) == (2.0, 0.5)
    assert standard(np.array([2.0]), np.array([0.0])) == (2.0, 1.0)
    assert standard(np.zeros(0), np.zeros(0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("items", "means", "errors", "what"),
    [
        ([0], [1.0, 2.0], [0.1], "one mean and one error per item"),
        ([0], [float("nan")], [0.1], "finite means"),
        ([0], [1.0], [-0.1], "errors of at least 0"),
        ([120], [1.0], [0.1], r"items in 0 \.\. 119"),
    ],
)
def test_nonsense_is_refused(items: list[int], means: list[float], errors: list[float], what: str) -> None:
    """Wrong numbers are named, not fitted."""
    with pytest.raises(ValueError, match=what):
        FiniteGP(RANKS).posterior(items, means, errors)


def test_pulls_under_way_lower_the_deviation_and_leave_the_mean() -> None:
    """As if they had come out at their posterior means: checked against really telling those."""
    items, means, errors = [0, 40, 90], [1.0, 2.0, 0.0], [0.1, 0.1, 0.1]
    process = FiniteGP(RANKS, ConstantKernel(1.0) * Mallows(4.0), fit_from=99)
    before = process.posterior(items, means, errors)
    imagined = process.posterior(items, means, errors, [7])
    assert (imagined.mean == before.mean).all()
    assert imagined.std[7] < 0.01 * before.std[7]
    assert (imagined.std <= before.std + 1e-12).all()
