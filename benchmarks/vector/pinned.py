"""`shoal ...` on one core: that of its rank, or the first. Started by rank_speed.py, under torchrun and without."""

import os

if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("LOCAL_RANK", "0")) % len(cores)]})
    from shoal.cli import main

    main()
