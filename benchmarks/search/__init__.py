"""The search over workflows, its bandit, and the workflows themselves."""
