"""What only training asks of the task: credit for offers, a look at held-out days now and then, and when to worry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.arrays import Array
from shoal.core.protocols import Acting, Credit
from shoal.rides.credit import Rates, RebuiltDays
from shoal.rides.examination import DAYS, Examination, is_due
from shoal.rides.negotiated import NegotiatedDays

if TYPE_CHECKING:
    from shoal.rides.bookings import Bookings
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.oracle import RoutingOracle

_SMOOTH = 5  # epochs that a figure is averaged over: one epoch's days differ by more than what is looked for
TIMID, TIMID_ANYWAY = 0.8, 0.4  # shares of the minutes agreed before
LOST_MIN = 0.5  # net gain a day
GAP_MIN = 5.0  # a day


class Coach:
    """Of one environment that is trained on. Nothing here changes a day; `credit` decides what is learned from it."""

    def __init__(self, options: RidesOptions, oracle: RoutingOracle) -> None:
        self._rebuilt: RebuiltDays | None = None
        if options.credited:
            rates = Rates(*options.burden_rates)
            kind = NegotiatedDays if options.credit == "negotiated" else RebuiltDays
            chosen = options.credit_requests, options.credit_generous
            self._rebuilt = kind(oracle, options.offer_effect, rates, *chosen)
        days = options.held_out_days
        days = (0 if options.futures else DAYS) if days is None else days
        self._examination = Examination(options, days, oracle.threads) if days else None
        self._noting = False  # only a learner asks for credit, and only it says where a rollout begins
        self._history: list[tuple[float, float, float | None]] = []  # net gain, minutes agreed, claimed - real
        self._claimed: float | None = None
        self.alarms: dict[str, str] = {}
        self.messages: list[str] = list(oracle.notices)

    def begin(self, num_envs: int) -> None:
        """A rollout begins: credit is for what happens from now on."""
        if self._rebuilt is not None:
            self._noting = True
            self._rebuilt.begin(num_envs)

    def note(self, bookings: Bookings, p_accept: Array, offers: Array) -> None:
        """Before the current requests are answered and planned."""
        if self._rebuilt is not None and self._noting:
            self._rebuilt.note(bookings, p_accept, offers)

    def end(self, rows: Array, bookings: Bookings, net_min: Array) -> None:
        """Days that ended, before new ones begin."""
        if self._rebuilt is not None and self._noting:
            self._rebuilt.end(rows, bookings, net_min)

    def credit(self, steps: int, env: RidesVectorEnv, policy: Acting) -> Credit | None:
        """What each offer was worth by the end of its day, for the requests drawn."""
        if self._rebuilt is None:
            return None
        credit = self._rebuilt.of(env, policy).credit(steps)
        claimed, real = (credit.metrics.get(f"credit/{name}") for name in ("claimed", "real"))
        self._claimed = None if claimed is None or real is None else claimed - real
        return credit

    def watch(self, net_min: float, agreed_min: float) -> None:
        """The figures of an epoch's days: an agent that learns to ask ever less, or credit that drifts from the truth,
        is how this way of training fails (docs/rides.md)."""
        self._history.append((net_min, agreed_min, self._claimed))
        count = len(self._history) - _SMOOTH + 1
        if count < 2:
            return
        net, agreed = (
            np.array([np.mean([one[part] for one in self._history[at : at + _SMOOTH]]) for at in range(count)])
            for part in (0, 1)
        )
        best = int(net.argmax())
        fell = agreed[-1] < TIMID * agreed[best] and net[-1] < net[best] - LOST_MIN
        if fell or agreed[-1] < TIMID_ANYWAY * agreed.max():
            before = agreed[best] if fell else agreed.max()
            self.alarms["timid"] = (
                f"riders agree to {agreed[-1]:.0f} minutes a day, {before:.0f} before, at a net gain of {net[-1]:.1f} "
                f"against {net[best]:.1f}: the agent asks less and less. Stop earlier, or lower --learning-rate"
            )
        gaps = [one[2] for one in self._history]
        recent = [gap for gap in gaps[-_SMOOTH:] if gap is not None]
        earlier = [gap for gap in gaps[:-_SMOOTH] if gap is not None]
        if len(recent) == _SMOOTH and len(earlier) >= _SMOOTH:
            now, before = float(np.mean(recent)), float(np.median(earlier))
            if now > before + GAP_MIN:
                self.alarms["credit"] = (
                    f"the credits of a day add up to {now:.1f} minutes more than it gained, {before:.1f} before: they "
                    "no longer say what offers are worth. Stop earlier, or lower --learning-rate"
                )

    def watched(self) -> Array:
        """The figures so far, float64[epochs, 3]: a resumed run goes on watching."""
        return np.array(self._history, np.float64).reshape(-1, 3)  # None becomes NaN

    def go_on(self, watched: Array) -> None:
        """The inverse of `watched`."""
        self._history = [(net, agreed, None if gap != gap else gap) for net, agreed, gap in watched.tolist()]

    def examine(self, policy: Acting, epoch: int, flexibility: Any) -> dict[str, float]:
        """Figures of held-out days, where it is time for that, and a line for the person who watches."""
        if self._examination is None or not is_due(epoch):
            return {}
        exam = self._examination
        found = exam.hold(policy, flexibility())
        others = ", ".join(f"{name} {value:.1f}" for name, value in exam.levels.items())
        self.messages.append(
            f"epoch {epoch}: net gain on {exam.days} held-out days {found['held_out/net_min']:.1f} min a day (when it "
            f"explores {found['held_out/sampled_min']:.1f}); {others}"
        )
        return found | {f"held_out/{name}_min": value for name, value in exam.levels.items()}

    def close(self) -> None:
        if self._examination is not None:
            self._examination.close()
        if self._rebuilt is not None:
            self._rebuilt.close()


def figures_of(days: list[dict[str, Array]], customers: int) -> dict[str, float]:
    """Means over the days that ended; nothing is left out of them."""
    if not days:
        return {}
    day = {name: np.concatenate([part[name] for part in days]) for name in days[0]}
    offers = max(1, int(day["offers"].sum()))
    return {
        "rides/cost_min": float(day["cost_s"].mean() / 60),
        "rides/base_cost_min": float(day["base_cost_s"].mean() / 60),
        "rides/improvement": float(100 * (1 - day["cost_s"].sum() / day["base_cost_s"].sum())),
        "rides/net_min": float(day["net_min"].mean()),
        "rides/agreed_min": float(day["agreed_min"].mean()),
        "rides/acceptance": float(100 * (1 - day["refused"].sum() / offers)),
        "rides/offers": float(day["offers"].mean()),
        "rides/failure_rate": float(100 * day["turned_away"].mean() / customers),
    }
