"""What `shoal train cage2` scores from scratch: three seeds, 4,000 episodes a cell, with score against CPU time.

python benchmarks/cage2_score.py                 the seeds that are still wanting, one after another
python benchmarks/cage2_score.py --seed 101 --out one.json   one seed, to a file of its own (for another machine)
python benchmarks/cage2_score.py --merge one.json ...        take such files into benchmarks/results
"""

import argparse
import json
from pathlib import Path

from shoal.bench import cage2_score, stored


def keep(runs: list[dict[str, object]]) -> None:
    """Store what there is."""
    stored.write(cage2_score.NAME, "python benchmarks/cage2_score.py", cage2_score.summarise(runs), runs=runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--merge", type=Path, nargs="*")
    given = parser.parse_args()
    before = (stored.read(cage2_score.NAME) or {"runs": []})["runs"]
    if given.merge:
        here = stored.stamp()
        new = [json.loads(path.read_text()) for path in given.merge]
        for run in new:  # a copy of the tree without git does not know its commit: it was made from this one
            run["commit"], run["dirty"] = run["commit"] or here["commit"], run["dirty"] or False
        keep([run for run in before if run["seed"] not in {one["seed"] for one in new}] + new)
    elif given.seed is not None:
        given.out.write_text(json.dumps(cage2_score.learn(given.seed), allow_nan=False))
    else:
        cage2_score.missing(before, stored.print_line, keep)
