"""A schedule of your own: the learning rate rises over the first tenth of the run, then falls along a cosine to 0."""

import math
import tempfile

import shoal


class WarmUp(shoal.Callback):
    def on_batch(self, training, batch) -> None:
        done = training.progress  # of the run; what is set here is what --lr-schedule, --clip-schedule, ... go by
        rate = done / 0.1 if done < 0.1 else (1 + math.cos(math.pi * (done - 0.1) / 0.9)) / 2
        training.progress = 1 - rate


result = shoal.train(
    "CartPole-v1", steps=50_000, lr_schedule="linear", lr_final=0.0, callbacks=[WarmUp()], runs_dir=tempfile.mkdtemp()
)
print(f"mean return {result.mean_return:.0f}")
