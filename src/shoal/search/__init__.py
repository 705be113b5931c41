"""Workflow search: a bandit whose pull is a training run. `shoal search cage2`, `shoal.WorkflowSearch`."""
