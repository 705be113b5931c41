"""Workflow search: a bandit whose pull is a training run. `shoal search TASK`, `shoal.WorkflowSearch`."""

from shoal.extras import require

require("search", "a search")  # here, since its modules import scikit-learn, and its page is drawn after hours of work
