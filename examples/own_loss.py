"""A term of your own in the loss: large logits cost something, so that the policy stays soft."""

import tempfile

import shoal


class SmallLogits(shoal.Callback):
    def loss(self, training, network, minibatch):
        logits = network.policy(minibatch.features)
        return 1e-3 * logits.square().mean()  # autograd finds its gradient; PPO's own loss is added by shoal


result = shoal.train("CartPole-v1", steps=50_000, callbacks=[SmallLogits()], runs_dir=tempfile.mkdtemp())
print(f"mean return {result.mean_return:.0f}")
