"""The compiled backend: seeds and threads, autoreset, faults, state, compilation and its cache."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import threading
import types

import gymnasium as gym
import numpy as np
import numpy.random as numpy_random
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.compiled import compile as building
from shoal.compiled.compile import build
from shoal.compiled.link import Linker, LinkError
from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv
from shoal.core.errors import EnvRaised, NotFinite, ShapeError
from shoal.core.seeds import Stream
from shoal.environments.cartpole import CartPole
from shoal.environments.gridworld import GridWorld
from shoal.vector.make import make_vec


class Trouble(CompiledEnv):
    """Does what it is told: 0 go on, 1 NaN observed, 2 infinite reward, 3 raise, 4 NaN at the end, 5 end."""

    state = np.dtype([("seen", "f4", (2, 3)), ("steps", "i4"), ("flag", "i1"), ("wide", "f8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
    action_space = gym.spaces.Discrete(6)

    @staticmethod
    def reset(state, rng):
        state.wide = 1.0

    @staticmethod
    def step(state, rng, action):
        state.steps += 1
        state.flag = 1
        if action == 3:
            raise ValueError("a wheel came off")
        if action == 1 or action == 4:
            state.seen[1, 2] = np.nan
        return (np.inf if action == 2 else 1.0), action >= 4

    @staticmethod
    def observe(state, out):
        for row in range(2):
            for column in range(3):
                out[row, column] = state.seen[row, column] + state.steps


class Drift(CompiledEnv):
    """A float in a box moved by two numbers."""

    state = np.dtype([("x", "f8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 2], np.float32))
    max_episode_steps = 4

    @staticmethod
    def reset(state, rng):
        state.x = 0.0

    @staticmethod
    def step(state, rng, action):
        state.x += action[0] + 10 * action[1]
        return -abs(state.x), False

    @staticmethod
    def observe(state, out):
        out[0] = state.x


def play(envs, steps, seed=0, action_seed=0, width=None):
    """All that came out of `steps` steps, as one list of arrays; actions of a row do not depend on N."""
    width = width or envs.num_envs
    actions = np.random.default_rng(action_seed).integers(0, 2, (steps, width))[:, : envs.num_envs]
    out = [envs.reset(seed=seed)[0]] if seed is not None else []
    for row in actions:
        obs, rewards, terminated, truncated, infos = envs.step(row)
        out += [obs, rewards, terminated, truncated, infos.get("final_obs", np.full(envs.num_envs, None))]
    return out


def assert_same(one, other, rows=slice(None)):
    """Equal bits, in the given rows of `other`."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        if a.dtype == object:
            assert [x if x is None else x.tolist() for x in a] == [x if x is None else x.tolist() for x in b[rows]]
        else:
            np.testing.assert_array_equal(a, b[rows])


# -- the same seed, the same bits --------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), n=st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_environments_do_not_depend_on_their_number(seed, n):
    """N environments are the first N of 64."""
    few, many = CompiledVectorEnv(CartPole, n), CompiledVectorEnv(CartPole, 64)
    assert_same(play(few, 60, seed, width=64), play(many, 60, seed), slice(n))


@pytest.mark.parametrize("threads", [2, 3, "auto"])
@pytest.mark.parametrize("n", [2, 67])
def test_environments_do_not_depend_on_threads(threads, n):
    """One thread, several, or as many as pay: the same bits."""
    threaded = CompiledVectorEnv(CartPole, n, threads=min(threads, n) if threads != "auto" else threads)
    assert_same(play(CompiledVectorEnv(CartPole, n), 80), play(threaded, 80))
    threaded.close()


def test_threads_auto_by_cost(monkeypatch):
    """Cheap steps stay on one thread; a step of milliseconds is shared out."""
    envs = CompiledVectorEnv(CartPole, 4, threads="auto")
    play(envs, 20)
    assert envs.threads == 1
    envs = CompiledVectorEnv(CartPole, 4, threads="auto")
    monkeypatch.setattr("shoal.compiled.threads.HAND_OFF_S", 1e-9)
    monkeypatch.setattr("shoal.compiled.threads.usable_cores", lambda: 2)
    play(envs, 20)
    assert envs.threads == 2
    envs.close()


def test_threads_end_with_their_environment():
    """close() ends them, and so does forgetting the environment."""
    before = threading.active_count()
    envs = CompiledVectorEnv(CartPole, 8, threads=3)
    assert threading.active_count() == before + 2
    envs.close()
    assert threading.active_count() == before
    envs = CompiledVectorEnv(CartPole, 8, threads=3)
    del envs
    assert threading.active_count() == before


@pytest.mark.parametrize("env", [CartPole(), GridWorld(slip=0.3)], ids=["CartPole", "GridWorld"])
def test_compiled_is_interpreted(env):
    """The same functions run by plain Python give the same bytes of state."""
    compiled, interpreted = CompiledVectorEnv(env, 3), CompiledVectorEnv(env, 3)
    interpreted.kernels = build(env, target="python")
    with np.errstate(over="ignore"):
        compiled.reset(seed=3), interpreted.reset(seed=3)
        for actions in np.random.default_rng(0).integers(0, 2, (60, 3)):
            one, other = compiled.step(actions), interpreted.step(actions)
            assert all((a == b).all() for a, b in zip(one[1:4], other[1:4], strict=True))
            np.testing.assert_array_equal(compiled.get_state()["slots"], interpreted.get_state()["slots"])


def test_seeds():
    """Other seeds, streams and episodes differ; None goes on; a list seeds each as environment 0."""
    envs = CompiledVectorEnv(CartPole, 3)
    first = envs.reset(seed=1)[0]
    second = envs.reset()[0]
    assert not np.isin(first, second).any()
    np.testing.assert_array_equal(envs.reset(seed=1)[0], first)
    np.testing.assert_array_equal(envs.reset()[0], second)
    assert not np.isin(envs.reset(seed=2)[0], first).any()
    evaluation = CompiledVectorEnv(CartPole, 3, stream=Stream.EVALUATE)
    assert not np.isin(evaluation.reset(seed=1)[0], first).any()
    listed = envs.reset(seed=[1, 2, 1])[0]
    np.testing.assert_array_equal(listed[0], first[0])
    np.testing.assert_array_equal(listed[2], first[0])
    fresh = CompiledVectorEnv(CartPole, 3), CompiledVectorEnv(CartPole, 3)
    assert not np.isin(fresh[0].reset()[0], fresh[1].reset()[0]).any()
    with pytest.raises(ValueError, match="a list of 3 ints, one an environment, got 2"):
        envs.reset(seed=[1, 2])


# -- ends of episodes --------------------------------------------------------------------------------


def test_the_final_observation_is_the_true_one():
    """It is the plain Python step from the state before; obs is the next episode's first."""
    envs = CompiledVectorEnv(CartPole, 32)
    envs.reset(seed=0)
    ended = 0
    for actions in np.random.default_rng(1).integers(0, 2, (60, 32)):
        before = envs.state.copy().view(np.recarray)
        obs, _, terminated, truncated, infos = envs.step(actions)
        for i in np.flatnonzero(terminated | truncated):
            _, true_end = CartPole.step(before[i], None, actions[i])
            expected = np.array(before[i].tolist(), np.float32)
            assert true_end
            np.testing.assert_array_equal(infos["final_obs"][i], expected)
            np.testing.assert_array_equal(envs.final_obs[i], expected)
            assert np.abs(obs[i]).max() <= 0.05
            assert envs.episode_steps[i] == 0
            ended += 1
    assert ended > 20


def test_terminated_is_never_truncated():
    """A time limit alone truncates; an end in the very last step is only terminated."""
    env = Trouble()
    env.max_episode_steps = 3
    envs = CompiledVectorEnv(env, 2)
    envs.reset(seed=0)
    flags = [envs.step(np.array([0, 5 if t == 2 else 0]))[2:4] for t in range(3)]
    assert [[f.tolist() for f in pair] for pair in flags] == [
        [[False, False], [False, False]],
        [[False, False], [False, False]],
        [[False, True], [True, False]],
    ]
    assert (envs.state["steps"] == 0).all()  # zeroed, although reset does not say so


def test_infos_are_gymnasiums_and_lazy():
    """Gymnasium's layout, right when read late, an ordinary dict to everybody."""
    envs = CompiledVectorEnv(Drift, 3)
    envs.reset(seed=0)
    for _ in range(4):
        *_, truncated, infos = envs.step(np.tile(np.float32([1, 1]), (3, 1)))
    assert truncated.all()
    expected = envs.final_obs.copy()
    for _ in range(4):
        envs.step(np.zeros((3, 2), np.float32))
    assert isinstance(infos, dict)
    again = copy.deepcopy(infos)
    assert sorted(infos) == sorted(again) == ["_final_info", "_final_obs", "final_info", "final_obs"]
    assert {**infos}.keys() == infos.keys()
    for i in range(3):
        np.testing.assert_array_equal(infos["final_obs"][i], expected[i])
    assert expected.tolist() == [[44.0]] * 3
    with pytest.raises(KeyError):
        infos["nothing"]


def test_reset_mask():
    """Only the chosen begin anew; the others stay, and are observed as they are."""
    envs = CompiledVectorEnv(CartPole, 4)
    with pytest.raises(gym.error.ResetNeeded):
        envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    envs.reset(seed=0)
    obs = envs.step(np.array([0, 1, 0, 1]))[0]
    chosen = np.array([True, False, False, True])
    after, _ = envs.reset(options={"reset_mask": chosen})
    np.testing.assert_array_equal(after[~chosen], obs[~chosen])
    assert not np.isin(after[chosen], obs).any()
    assert envs.episode_steps.tolist() == [0, 1, 1, 0]
    reseeded, _ = envs.reset(seed=7, options={"reset_mask": chosen})
    np.testing.assert_array_equal(reseeded[~chosen], obs[~chosen])
    np.testing.assert_array_equal(reseeded[chosen], CompiledVectorEnv(CartPole, 4).reset(seed=7)[0][chosen])
    for wrong in ([True] * 4, np.ones(3, bool), np.ones(4, int), np.zeros(4, bool)):
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": wrong})


# -- the caller's arrays -----------------------------------------------------------------------------


def test_observations_go_straight_into_the_callers_row():
    """`out` is written and returned, for a Box and for a Dict."""
    rollout = np.zeros((3, 8, 4), np.float32)
    envs, twin = CompiledVectorEnv(CartPole, 8), CompiledVectorEnv(CartPole, 8)
    envs.reset(seed=0), twin.reset(seed=0)
    for row in rollout:
        obs = envs.step(np.ones(8, int), out=row)[0]
        assert obs is row
        np.testing.assert_array_equal(row, twin.step(np.ones(8, int))[0])
    grids = CompiledVectorEnv(GridWorld, 8)
    grids.reset(seed=0)
    out = {"obs": np.zeros((8, 4), np.float32), "action_mask": np.zeros((8, 4), np.int8)}
    obs = grids.step(np.zeros(8, int), out=out)[0]
    assert obs["action_mask"] is out["action_mask"]
    assert out["action_mask"].any()


@pytest.mark.parametrize(
    "out",
    [np.zeros((7, 4), np.float32), np.zeros((8, 4)), np.zeros((4, 8), np.float32).T, [[0.0] * 4] * 8],
    ids=["shape", "dtype", "layout", "list"],
)
def test_arrays_that_do_not_fit_are_refused(out):
    """Expected and got, and nothing has been stepped."""
    envs = CompiledVectorEnv(CartPole, 8)
    envs.reset(seed=0)
    with pytest.raises(ShapeError, match=r"out: expected a C-contiguous, writable float32\[8, 4\], got"):
        envs.step(np.ones(8, int), out=out)
    assert (envs.episode_steps == 0).all()


def test_results_are_the_callers_to_keep():
    """No step overwrites what an earlier one returned."""
    envs = CompiledVectorEnv(CartPole, 4)
    envs.reset(seed=0)
    first = envs.step(np.ones(4, int))
    kept = [array.copy() for array in first[:4]]
    play(envs, 30, seed=None)
    for array, copied in zip(first[:4], kept, strict=True):
        np.testing.assert_array_equal(array, copied)


# -- faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.zeros(3, int), ShapeError, r"expected shape \(4,\), got \(3,\)"),
        (np.zeros((4, 1), int), ShapeError, r"expected shape \(4,\), got \(4, 1\)"),
        (np.zeros(4), ValueError, "expected actions of dtype int64, got float64; cast them"),
        (np.array([0, 1, 2, 9]), ValueError, r"environment 2: expected Discrete\(2\), got 2"),
        ([0, -1, 0, 0], ValueError, r"environment 1: expected Discrete\(2\), got -1"),
    ],
)
def test_wrong_actions(threads, actions, error, message):
    """Which environment, what was expected, what came; no environment has been stepped."""
    envs = CompiledVectorEnv(CartPole, 4, threads=threads)
    envs.reset(seed=0)
    with pytest.raises(error, match=message):
        envs.step(actions)
    assert (envs.episode_steps == 0).all()
    envs.step([0, 1, 0, 1])
    envs.step(np.array([0, 1, 0, 1], np.uint8))
    assert (envs.episode_steps == 2).all()
    envs.close()


@pytest.mark.parametrize("bad", [(1.5, 0), (0, -0.1), (math.nan, 0), (0, math.inf)])
def test_wrong_box_actions(bad):
    """Every number of an action is checked against its own bounds."""
    envs = CompiledVectorEnv(Drift, 3)
    envs.reset(seed=0)
    actions = np.zeros((3, 2), np.float32)
    actions[1] = bad
    with pytest.raises(ValueError, match="action of environment 1"):
        envs.step(actions)
    actions[1] = (-1, 2)
    assert envs.step(actions.astype(np.float64))[0].tolist() == [[0.0], [19.0], [0.0]]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("action", "message"),
    [(1, "gave an observation"), (2, "gave a reward that is not finite"), (4, "gave an observation")],
)
def test_numbers_that_are_not_finite(threads, action, message):
    """NaN seen, infinite reward, NaN in a final observation: environment, seed and step are named."""
    envs = CompiledVectorEnv(Trouble, 5, threads=threads)
    envs.reset(seed=11)
    envs.step(np.array([0, 0, 5, 5, 0]))
    envs.step(np.zeros(5, int))
    with pytest.raises(NotFinite, match=message) as caught:
        envs.step(np.array([0, 0, 0, action, action]))
    assert (caught.value.env, caught.value.seed, caught.value.step) == (3, 11, 2)
    assert "in episode 1" in str(caught.value)
    envs.close()


def test_the_check_can_be_left_out():
    """check_finite = False lets NaN through, for environments that mean it."""
    env = Trouble()
    env.check_finite = False
    envs = CompiledVectorEnv(env, 1)
    envs.reset(seed=0)
    assert np.isnan(envs.step(np.array([1]))[0][0, 1, 2])


@pytest.mark.parametrize("threads", [1, 3])
def test_an_environment_that_raises(threads):
    """The exception comes through with the environment that raised it."""
    envs = CompiledVectorEnv(Trouble, 5, threads=threads)
    envs.reset(seed=4)
    with pytest.raises(EnvRaised, match="a wheel came off") as caught:
        envs.step(np.array([0, 0, 0, 3, 0]))
    assert (caught.value.env, caught.value.seed, caught.value.kind) == (3, 4, "ValueError")
    envs.close()


def test_reset_comes_first():
    """step and get_state before reset say so."""
    envs = CompiledVectorEnv(CartPole, 2)
    for call in (lambda: envs.step([0, 0]), envs.get_state):
        with pytest.raises(gym.error.ResetNeeded, match="call reset"):
            call()


# -- checkpoints -------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [CartPole(), GridWorld(slip=0.5)], ids=["CartPole", "GridWorld"])
def test_going_on_from_a_saved_state(env):
    """A fresh environment that takes up a state continues to the same bits, through resets."""
    one, other = CompiledVectorEnv(env, 6), CompiledVectorEnv(env, 6, threads=2)
    play(one, 25, seed=9)
    saved = {name: array.copy() for name, array in one.get_state().items()}
    assert {array.dtype.kind for array in saved.values()} == {"u"}
    play(one, 3, seed=None)
    one.set_state(saved)
    other.set_state(saved)
    for actions in np.random.default_rng(3).integers(0, 2, (150, 6)):
        one.step(actions), other.step(actions)
        np.testing.assert_array_equal(one.get_state()["slots"], other.get_state()["slots"])
    other.close()


def test_states_that_do_not_fit():
    """Of another number of environments, another class, with a part missing."""
    envs = CompiledVectorEnv(CartPole, 3)
    envs.reset(seed=0)
    state = envs.get_state()
    with pytest.raises(ShapeError, match="saved with another environment or num_envs"):
        CompiledVectorEnv(CartPole, 4).set_state(state)
    with pytest.raises(ShapeError, match="state\\['slots'\\] of Drift"):
        CompiledVectorEnv(Drift, 3).set_state(state)
    with pytest.raises(ValueError, match="expected \\['seeds', 'slots'\\], got \\['slots'\\]"):
        envs.set_state({"slots": state["slots"]})


# -- declarations, linking, compilation ----------------------------------------------------------------


def variant(**changes):
    """A subclass of Drift with something else declared."""
    return type("Variant", (Drift,), changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": np.dtype("f8")}, "state: expected a NumPy structured dtype"),
        ({"step": lambda self, state: None}, "step: expected a function under @staticmethod"),
        ({"observation_space": gym.spaces.Discrete(3)}, "expected a Box of observations"),
        ({"observation_space": gym.spaces.Dict(x=gym.spaces.Discrete(2))}, "expected a Box, or Dict"),
        ({"action_space": gym.spaces.Text(3)}, "action_space: expected Discrete"),
    ],
)
def test_wrong_declarations(changes, message):
    """What was expected of the class, before anything is compiled."""
    with pytest.raises(TypeError, match=message):
        CompiledVectorEnv(variant(**changes), 2)


@pytest.mark.parametrize("arguments", [{"num_envs": 0}, {"num_envs": 2, "threads": 0}, {"num_envs": 2, "threads": "x"}])
def test_wrong_numbers(arguments):
    """Environments and threads are counted from one."""
    with pytest.raises(ValueError, match="expected"):
        CompiledVectorEnv(CartPole, **arguments)


_FACTOR, _TABLE, _PAIR, _LIST = 2.0, np.arange(3), (1, (2, 3)), [1]


def _helper(x):
    return x * _FACTOR


def _root(x):
    return _helper(x) + _TABLE[0] + _PAIR[1][0]


def fingerprint(function):
    linker = Linker(lambda rebuilt, original: rebuilt)
    linker.link(function)
    return linker.fingerprint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_FACTOR", 3.0),
        ("_FACTOR", 2),
        ("_TABLE", np.array([0, 1, 5])),
        ("_TABLE", np.arange(3, dtype=np.int32)),
        ("_PAIR", (1, (2, 4))),
        ("_helper", lambda x: x + _FACTOR),
    ],
)
def test_everything_reached_counts(monkeypatch, name, value):
    """A changed constant, table, nested tuple or callee is another program; running it changes nothing."""
    before = fingerprint(_root)
    for _ in range(100):
        _root(1.0)  # the interpreter rewrites the bytecode of hot functions
    assert fingerprint(_root) == before
    monkeypatch.setitem(_root.__globals__, name, value)
    assert fingerprint(_root) != before


def test_what_cannot_be_compiled_says_so():
    """A list, and a function reached through a module."""
    with pytest.raises(LinkError, match="uses _LIST, a list, which cannot be compiled; expected a function"):
        fingerprint(lambda x: x + _LIST[0])
    with pytest.raises(LinkError, match=r"reaches through the module 'shoal\.compiled\.compile'"):
        fingerprint(lambda x: building.layout(x))


def test_numpys_own_generator_is_refused():
    """Numba would compile it: seeds would mean nothing, and a resumed run would go another way."""
    for draws in (lambda x: x + np.random.random(), lambda x: numpy_random.uniform(0.0, x)):  # noqa: NPY002
        with pytest.raises(LinkError, match=r"draws from np\.random.*uniform\(rng\)"):
            fingerprint(draws)
    fingerprint(lambda state: np.floor(state.random))  # a field of that name


def make_shift(shift):
    """An environment that closes over a value and calls a helper."""

    def moved(x):
        return x + shift

    def step(state, rng, action):
        state.x = moved(state.x) + 10 * action[1]
        return 0.0, False

    return variant(step=staticmethod(step), action_space=gym.spaces.MultiDiscrete([1, 2]))


def test_the_cache_follows_every_change(tmp_path, monkeypatch):
    """Compiled once, then read from disk; another closed-over value is compiled anew, and takes effect."""
    monkeypatch.setenv("SHOAL_CACHE_DIR", str(tmp_path))
    said = []

    def start(shift):
        monkeypatch.setattr(building, "_built", {})
        envs = CompiledVectorEnv(make_shift(shift), 1, on_compile=said.append)
        envs.reset(seed=0)
        return envs.step([[0, 0]])[0][0, 0], envs.kernels.cached

    assert [start(1.0), start(1.0), start(2.0), start(1.0)] == [(1, False), (1, True), (2, False), (1, True)]
    assert said == ["compiling Variant: a few seconds, once"] * 2
    kept = tmp_path / "kernels" / "__pycache__"
    for file in kept.iterdir():
        file.write_bytes(b"damaged")
    assert start(1.0) == (1, False)


def test_machine_code_of_another_version_is_compiled_anew(tmp_path, monkeypatch):
    """It names modules that an update may have moved: that must cost seconds, not the run."""
    monkeypatch.setenv("SHOAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(building, "_built", {})
    assert not CompiledVectorEnv(CartPole, 1).kernels.cached
    script = (
        "import shoal; e = shoal.make_vec('shoal/CartPole-v1', 1); e.reset(seed=0); "
        "print(float(e.step([0])[1][0]), e.kernels.cached)"
    )

    def start() -> str:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert start() == "1.0 True"
    named = b"shoal.compiled.link"
    changed = 0
    for file in (tmp_path / "kernels" / "__pycache__").glob("*.nbc"):
        data = file.read_bytes()
        changed += named in data
        file.write_bytes(data.replace(named, b"shoal.compiled.gone"))
    assert changed  # else this test shows nothing
    assert start() == "1.0 False"


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    """Costs the compilation, nothing else."""
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SHOAL_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(building, "_built", {})
    envs = CompiledVectorEnv(make_shift(3.0), 1)
    envs.reset(seed=0)
    assert envs.step([[0, 1]])[0][0, 0] == 13
    with pytest.raises(ValueError, match=r"environment 0: expected MultiDiscrete\(\[1 2\]\), got \[0, 2\]"):
        envs.step([[0, 2]])
    assert not envs.kernels.cached


def test_no_index_out_of_bounds():
    """The environment with tables under Numba's bounds checks, in a process of its own."""
    script = """
import numpy as np
from shoal.environments.gridworld import GridWorld
from shoal.compiled.vector import CompiledVectorEnv
envs = CompiledVectorEnv(GridWorld(slip=0.3), 33, threads=2)
envs.reset(seed=0)
for row in np.random.default_rng(0).integers(0, 4, (300, 33)):
    envs.step(row)
envs.close()
print("inside")
"""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "inside\n", done.stderr


def test_importing_is_light():
    """Numba is imported when something is compiled, not before."""
    script = """
import sys
import shoal.environments.cartpole
import shoal.tasks.registration
shoal.tasks.registration.register()
assert "numba" not in sys.modules
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_functions_stay_plain():
    """The class's own functions are untouched: Python calls them as they were written."""
    assert type(CartPole.step) is types.FunctionType
    state = np.zeros(1, CartPole.state).view(np.recarray)[0]
    assert CartPole.step(state, None, 1) == (1.0, False)


# -- like the other backends -----------------------------------------------------------------------------


def test_after_a_fault_it_does_not_go_on_half_stepped():
    """A step repeats what happened, and a reset of all begins anew, since every slot is filled anew (m16)."""
    envs = CompiledVectorEnv(Trouble, 5)
    envs.reset(seed=4)
    with pytest.raises(EnvRaised, match="a wheel came off"):
        envs.step(np.array([0, 0, 0, 3, 0]))
    some = {"reset_mask": np.array([True, False, False, False, False])}
    for use in (lambda: envs.step(np.zeros(5, int)), lambda: envs.reset(options=some)):
        with pytest.raises(EnvRaised, match=r"has stopped, reset all its environments\. .*wheel") as caught:
            use()
        assert caught.value.env == 3
    fresh = CompiledVectorEnv(Trouble, 5)
    for one, other in zip(envs.reset(seed=1), fresh.reset(seed=1), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(envs.step(np.zeros(5, int))[0], fresh.step(np.zeros(5, int))[0])


def test_nothing_works_after_close():
    """As with every backend (m17)."""
    envs = CompiledVectorEnv(CartPole, 2)
    envs.reset(seed=0)
    envs.close()
    for use in (lambda: envs.step([0, 0]), lambda: envs.reset(seed=0), lambda: envs.call("name")):
        with pytest.raises(gym.error.ClosedEnvironmentError):
            use()


def test_none_in_a_list_of_seeds():
    """An environment without a seed goes on to its next episode, or gets a first one from the system (m17)."""
    envs = CompiledVectorEnv(CartPole, 3)
    first, _ = envs.reset(seed=[1, None, None])
    assert not np.array_equal(first[1], first[2])
    again, _ = envs.reset(seed=[1, None, None])
    assert np.array_equal(again[0], first[0])
    assert not np.array_equal(again[1], first[1])
    twin = CompiledVectorEnv(CartPole, 3)
    twin.reset(seed=[1, 2, 3])
    twin.reset(seed=[9, None, 8])
    assert twin.np_random_seed == (9, 2, 8)


@pytest.mark.parametrize("options", [{"on_fault": "restart"}, {"slices": "ready"}, {"slices": "double"}], ids=str)
def test_options_that_mean_nothing_are_refused(options):
    """Not ignored: a run would be labelled inexact, or believed to survive (m16)."""
    with pytest.raises(ValueError, match="is compiled"):
        make_vec("shoal/CartPole-v1", 4, **options)


@pytest.mark.parametrize("threads", [2, 3])
def test_next_step_does_not_depend_on_threads(threads):
    """Nor on what was stepped at once; the steps that only reset are each environment's own."""
    one = CompiledVectorEnv(CartPole, 7, autoreset_mode="next_step")
    other = CompiledVectorEnv(CartPole, 7, threads=threads, autoreset_mode="next_step")
    assert_same(play(one, 120), play(other, 120))
    other.close()


def test_next_step_is_interpreted_alike():
    """The kernels as plain Python give what machine code gives, in NEXT_STEP too."""
    compiled, plain = (CompiledVectorEnv(CartPole, 3, autoreset_mode="next_step") for _ in range(2))
    plain.kernels = build(plain.env, target="python")
    with np.errstate(over="ignore"):
        assert_same(play(compiled, 60), play(plain, 60))


def test_the_small_functions_of_a_step_become_part_of_it():
    """CartPole steps at half the speed otherwise; once they did not, when their module had moved."""
    from shoal.compiled import compile as compiler
    from shoal.compiled import kernels, random

    for function in (kernels.step_one, kernels.reset_one, kernels.not_finite, random.uniform):
        assert function.__module__.startswith(compiler._INLINED)
