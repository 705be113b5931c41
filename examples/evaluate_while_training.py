"""A held-out curve while a run trains, an early end by it, and the best policy at the end."""

import tempfile

import shoal

folder = tempfile.mkdtemp()
result = shoal.train(
    "CartPole-v1", steps=100_000, target_return=None, runs_dir=folder, name="curve",
    evaluate_every=5, evaluate_episodes=10, evaluate_target=450, evaluate_patience=8,
)  # fmt: skip
print(result.reason)
policy = shoal.load_policy("curve", runs_dir=folder)
print(f"epoch {policy.epoch} of {result.epochs} was the best, {result.best['score']:.0f} while it trained")
score = shoal.evaluate("curve", runs_dir=folder, episodes=50)  # other episodes: these have chosen nothing
print(f"{score['mean']:.0f} [{score['low']:.0f}, {score['high']:.0f}] on 50 others")
