"""A metric of your own: how often the cart is pushed to the right. It reaches console, metrics.jsonl and trackers."""

import tempfile

import shoal


class PushesRight(shoal.Callback):
    console_rows = (("pushes right", "own/right", ".3f"),)  # label, name, format

    def on_rollout(self, training, rollout) -> None:
        self.right = float((rollout.actions == 1).float().mean())

    def on_epoch(self, training) -> None:
        training.metrics["own/right"] = self.right


result = shoal.train("CartPole-v1", steps=20_000, callbacks=[PushesRight()], runs_dir=tempfile.mkdtemp())
print(f"mean return {result.mean_return:.0f}, own/right of every epoch is in {result.run}/metrics.jsonl")
