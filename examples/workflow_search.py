"""Search for the best order of visits in the grid world, then look at what was found.

    python examples/workflow_search.py

Each pull trains a small policy that keeps to one of 24 orders; a Gaussian process over orders says which to try next.
"""

import tempfile

import shoal

if __name__ == "__main__":
    search = shoal.WorkflowSearch(
        domain="gridworld",
        n_workflows=5,
        train_episodes_per_env=50,
        compliance_threshold=0.95,
        seed=1,
        runs_dir=tempfile.mkdtemp(),
    )
    found = search.run(say=print)
    best = found.summary.best
    if best is not None:
        print(f"best so far: {best['name']}, {best['mean']:.2f} [{best['low']:.2f}, {best['high']:.2f}]")
    print(found.summary.verdict)
    print(f"next to try: {found.summary.next_pick}")
    print(f"report: {found.report}")
