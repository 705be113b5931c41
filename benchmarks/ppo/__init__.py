"""How fast PPO trains and what it learns."""
