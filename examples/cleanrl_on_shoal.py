"""A loop as CleanRL's scripts have it, on shoal's batches: what changes is the line that makes the environments."""

import gymnasium as gym
import torch
from torch import nn

import shoal

envs = shoal.make_vec("CartPole-v1", 16)  # in place of gym.vector.SyncVectorEnv([make_env(...) for ...])
envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
optimiser = torch.optim.Adam(policy.parameters(), lr=1e-2)
torch.manual_seed(1)

observations, _ = envs.reset(seed=1)
returns = []
for _ in range(60):  # REINFORCE, for brevity: PPO's update takes the same data
    log_probs, rewards, ended = [], [], []
    for _ in range(64):
        chances = torch.distributions.Categorical(logits=policy(torch.as_tensor(observations)))
        actions = chances.sample()
        observations, reward, terminated, truncated, infos = envs.step(actions.numpy())
        log_probs.append(chances.log_prob(actions))
        rewards.append(torch.as_tensor(reward, dtype=torch.float32))
        ended.append(torch.as_tensor(terminated | truncated, dtype=torch.float32))
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
    later, targets = torch.zeros(16), []
    for reward, over in zip(reversed(rewards), reversed(ended), strict=True):
        later = reward + 0.98 * later * (1 - over)
        targets.insert(0, later)
    target = torch.stack(targets)
    loss = -(torch.stack(log_probs) * (target - target.mean()) / target.std()).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"mean return of the last 50 episodes: {sum(returns[-50:]) / 50:.0f}")
