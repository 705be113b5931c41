"""A curriculum: the pole grows from half a metre to one metre, a bit each time that the agent balances it well."""

import tempfile

import shoal


class Longer(shoal.Callback):
    length = 0.25  # half of the pole, metres

    def on_epoch(self, training) -> None:
        if (training.metrics["return/mean_100"] or 0) > 100 and self.length < 0.5:
            self.length = round(self.length + 0.05, 2)
            training.envs.set_attr("length", self.length)  # on any backend, in every worker
        training.metrics["own/length"] = self.length

    def state(self) -> dict[str, float]:  # what --resume needs
        return {"length": self.length}

    def set_state(self, training, state) -> None:
        self.length = state["length"]
        training.envs.set_attr("length", self.length)


longer = Longer()
result = shoal.train("CartPole-v1", steps=60_000, backend="serial", callbacks=[longer], runs_dir=tempfile.mkdtemp())
print(f"half of the pole is {longer.length:.2f} m now, mean return {result.mean_return:.0f}")
