"""PPO: acting, estimating, updating, and what is saved of it."""
