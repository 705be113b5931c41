"""The scripted follower: what it concludes, what it fixes, and that it keeps to its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.cage2.simulator.env import make
from shoal.cage2.simulator.machine import specialised
from shoal.cage2.simulator.memory import MEMORY, forget, remember
from shoal.cage2.simulator.network import (
    ANALYSE,
    ENTERPRISE0,
    ENTERPRISE1,
    ENTERPRISE2,
    NUM_BITS,
    OP_SERVER0,
    REMOVE,
    RESTORE,
    SLEEP,
    USER1,
    USER2,
    USER4,
    action_index,
)
from shoal.cage2.workflows.aligned import OrderedVectorEnv
from shoal.cage2.workflows.conduct import Conduct, Share, label_states, play
from shoal.cage2.workflows.follower import EAGER, THRIFTY, follow
from shoal.cage2.workflows.orders import COUNTED, classes, fixed_host, judge, number_of
from shoal.cage2.workflows.suspicion import WATCH, begin_watch, due_set, watch
from shoal.core.seeds import Stream

USERS_FIRST = number_of("user,enterprise,op_server,op_host")
SERVERS_FIRST = number_of("enterprise,op_server,op_host,user")
SCAN, SHELL = 1, 2


class Blue:
    """A memory and its suspicions, fed with (own action, host that showed, activity)."""

    def __init__(self, *stream: tuple[int, int, int]) -> None:
        self.m = np.zeros(1, MEMORY).view(np.recarray)[0]
        self.w = np.zeros(1, WATCH).view(np.recarray)[0]
        self.bits = np.zeros(NUM_BITS, np.uint8)
        forget(self.m)
        begin_watch(self.w)
        for action, host, activity in stream:
            self.see(action, host, activity)

    def see(self, action: int, host: int = -1, activity: int = 0) -> None:
        remember(self.m, action, host, activity)
        watch(self.w, self.m, self.bits)

    @property
    def suspected(self) -> list[int]:
        return [h for h in range(13) if self.w.suspected >> h & 1]

    def acts(self, order: int, temper: int = THRIFTY) -> Any:
        return int(follow(self.m, self.w, order, temper))


def test_a_shown_exploit_is_suspected_until_a_restore() -> None:
    """A Remove clears it only where one can work: not on Enterprise0, whose shells are SSH sessions."""
    blue = Blue((SLEEP, ENTERPRISE0, SCAN), (SLEEP, ENTERPRISE0, SHELL), (SLEEP, ENTERPRISE1, SHELL))
    assert blue.suspected == [ENTERPRISE0, ENTERPRISE1]
    blue.see(action_index(REMOVE, ENTERPRISE0))
    blue.see(action_index(REMOVE, ENTERPRISE1))
    assert blue.suspected == [ENTERPRISE0]
    blue.see(action_index(RESTORE, ENTERPRISE0))
    assert blue.suspected == []


def test_a_second_scan_without_decoys_is_a_shell_that_was_missed() -> None:
    """On a user host for certain; where a decoy stands it is doubtful, and Analyse tells."""
    blue = Blue((SLEEP, USER4, SCAN), (SLEEP, USER4, SCAN))
    assert blue.suspected == [USER4]
    femitter = action_index(3, USER2)
    blue = Blue((femitter, -1, 0), (SLEEP, USER2, SCAN), (SLEEP, USER2, SCAN))
    assert blue.suspected == []
    assert blue.w.doubtful == 1 << USER2
    assert blue.acts(SERVERS_FIRST) == action_index(ANALYSE, USER2)
    blue.bits[4 * USER2 + 2 : 4 * USER2 + 4] = 1  # belief: Privileged
    blue.see(action_index(ANALYSE, USER2))
    assert blue.suspected == [USER2]
    assert blue.w.doubtful == 0


def test_what_the_path_of_bline_tells() -> None:
    """It scans a server only once it holds the host before it."""
    blue = Blue((SLEEP, -1, 0), (SLEEP, USER1, SCAN), (SLEEP, -1, 0), (SLEEP, -1, 0), (SLEEP, ENTERPRISE1, SCAN))
    assert blue.suspected == [USER1]  # never shown, and yet
    for host in (-1, -1, -1):
        blue.see(SLEEP, host)
    blue.see(SLEEP, ENTERPRISE2, SCAN)
    assert blue.suspected == [USER1, ENTERPRISE1] or blue.suspected == [ENTERPRISE1, USER1]
    blue.see(action_index(RESTORE, ENTERPRISE1), -1)
    blue.see(SLEEP, -1)
    blue.see(action_index(RESTORE, ENTERPRISE2), OP_SERVER0, SCAN)  # restored before that scan: clean
    assert ENTERPRISE2 not in blue.suspected


def test_due_is_the_best_rank_among_the_suspected() -> None:
    """Users before servers or servers before users; equals are due together."""
    held = 1 << USER1 | 1 << USER2 | 1 << ENTERPRISE0
    assert due_set(USERS_FIRST, held) == 1 << USER1 | 1 << USER2
    assert due_set(SERVERS_FIRST, held) == 1 << ENTERPRISE0
    assert due_set(SERVERS_FIRST, 0) == 0


def test_both_tempers_by_hand() -> None:
    """B_line holds User1: the eager one restores it, the thrifty one waits until a server is at stake."""
    blue = Blue((SLEEP, -1, 0), (SLEEP, USER1, SCAN), (SLEEP, USER1, SHELL))
    assert blue.acts(USERS_FIRST, EAGER) == action_index(RESTORE, USER1)
    assert fixed_host(blue.acts(USERS_FIRST, THRIFTY)) == -1
    for host, activity in ((-1, 0), (ENTERPRISE1, SCAN), (ENTERPRISE1, SHELL)):
        blue.see(SLEEP, host, activity)
    assert blue.acts(USERS_FIRST, THRIFTY) == action_index(RESTORE, USER1)  # outranks the server
    assert blue.acts(SERVERS_FIRST, THRIFTY) == action_index(RESTORE, ENTERPRISE1)
    blue.see(action_index(RESTORE, USER1))
    assert blue.acts(USERS_FIRST, THRIFTY) == action_index(RESTORE, ENTERPRISE1)


def follower_envs(red: str, temper: int, steps: int = 100, num_envs: int = 200) -> Any:
    """Step environments of drawn orders with the follower's labels; yields (states, actions) before each step."""
    envs = OrderedVectorEnv(make(order="drawn", red=red, horizon=steps), num_envs)
    envs.reset(seed=4)
    actions = np.zeros(num_envs, np.int64)
    label = specialised(label_states, envs.state, temper, actions)
    for _ in range(steps):
        label(envs.state, temper, actions)
        yield envs.state.copy(), actions.copy()
        envs.step(actions)


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_suspicion_is_nearly_the_truth(red: str) -> None:
    """Of the host-steps that red holds at least 97 % are suspected, of the suspected at least 97 % are held."""
    both = held_steps = suspected_steps = 0
    for states, _ in follower_envs(red, THRIFTY):
        game = states["game"]
        held = (game["user_removable"] | game["user_fixed"] | game["privileged"]) & COUNTED
        suspected = states["watch"]["suspected"]
        both += int(np.bitwise_count(held & suspected).sum())
        held_steps += int(np.bitwise_count(held).sum())
        suspected_steps += int(np.bitwise_count(suspected).sum())
    assert both > 0.97 * held_steps
    assert both > 0.97 * suspected_steps


@pytest.mark.parametrize("temper", [EAGER, THRIFTY])
def test_every_fix_keeps_to_the_order_by_what_blue_suspects(temper: int) -> None:
    """A fix is always of a suspected host that no suspected one outranks."""
    fixes = 0
    for states, actions in follower_envs("meander", temper):
        for state, action in zip(states, actions, strict=True):
            if (host := fixed_host(int(action))) >= 0:
                assert judge(int(state["order"]), int(state["watch"]["suspected"]), host) == 1
                fixes += 1
    assert fixes > 200


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_the_kernel_of_whole_episodes_is_the_environment(red: str) -> None:
    """`play` and an evaluation environment stepped with the follower's labels: equal returns and counts."""
    returns, tallies = play(USERS_FIRST, red, 30, seed=11)
    envs = OrderedVectorEnv(make(order=USERS_FIRST, red=red), 30, stream=Stream.EVALUATE)
    envs.reset(seed=11)
    actions = np.zeros(30, np.int64)
    label = specialised(label_states, envs.state, THRIFTY, actions)
    for _ in range(100):
        label(envs.state, THRIFTY, actions)
        envs.step(actions)
    episodes = envs.take_episodes()
    np.testing.assert_array_equal(episodes["cost"] / -10.0, returns)
    np.testing.assert_array_equal(episodes["tally"], tallies)


@pytest.mark.parametrize("red", ["bline", "meander"])
@pytest.mark.parametrize("temper", ["eager", "thrifty"])
def test_the_follower_keeps_to_its_order(red: str, temper: str) -> None:
    """The lower end of its compliance lies above 95 % for four far-apart classes, at a decent reward."""
    for group in [*classes()[::8], classes()[-1]]:
        returns, tallies = play(group[0], red, 200, temper=temper)
        low = Conduct.of(tallies).compliance.low
        assert low is not None
        assert low > 0.95
        assert returns.mean() > (-50 if temper == "eager" else -22)


def test_belief_bits_alone_do_not_suffice() -> None:
    """Taken at their word they are always obeyed, and yet Meander's missed shells on user hosts break the order."""
    _, tallies = play(USERS_FIRST, "meander", 500, temper="literal")
    conduct = Conduct.of(tallies)
    assert conduct.believed_compliance.mean == 1.0
    assert conduct.compliance.mean is not None
    assert conduct.compliance.mean < 0.97
    better = Conduct.of(play(USERS_FIRST, "meander", 500, temper="eager")[1])
    assert better.compliance.mean is not None
    assert better.compliance.mean > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_the_follower_keeps_to_every_order(red: str) -> None:
    """All 24 classes, 1,000 episodes each."""
    for group in classes():
        low = Conduct.of(play(group[0], red, 1000)[1]).compliance.low
        assert low is not None
        assert low > 0.95


def test_shares_by_hand() -> None:
    """Mean and normal interval of four values; one value has no interval, none has no mean."""
    share = Share.of(np.array([1.0, 0.0, 1.0, 1.0]))
    assert share.mean == 0.75
    assert share.bounds()[1] == pytest.approx(0.75 - 1.96 * 0.25)
    assert Share.of(np.array([1.0])).low is None
    assert Share.of(np.zeros(0)).mean is None
    with pytest.raises(ValueError, match="two episodes at least"):
        Share.of(np.array([1.0])).bounds()


def test_wrong_arguments_are_refused_by_name() -> None:
    """Red, temper and the number of episodes."""
    with pytest.raises(ValueError, match="red: expected one of"):
        play(0, "mixed", 1)
    with pytest.raises(ValueError, match="temper: expected one of"):
        play(0, "bline", 1, temper="lazy")
    with pytest.raises(ValueError, match="at least 1 episode"):
        play(0, "bline", 0)
