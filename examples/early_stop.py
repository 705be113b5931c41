"""End a run early: when its mean return has not risen for so many epochs."""

import tempfile

import shoal


class Patience(shoal.Callback):
    def __init__(self, epochs: int = 10) -> None:
        self.epochs, self.best, self.since = epochs, float("-inf"), 0

    def on_epoch(self, training) -> None:
        now = training.metrics["return/mean_100"]
        self.since = 0 if now is None or now > self.best else self.since + 1
        self.best = max(self.best, self.best if now is None else now)
        if self.since >= self.epochs:
            training.stop(f"no better than {self.best:.0f} for {self.epochs} epochs")


result = shoal.train(
    "CartPole-v1", steps=500_000, target_return=None, callbacks=[Patience()], runs_dir=tempfile.mkdtemp()
)
print(result.reason, f"after {result.steps:,} steps")
