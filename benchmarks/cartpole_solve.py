"""CPU-seconds until CartPole is solved, shoal beside tuned SB3, five seeds.

    python benchmarks/cartpole_solve.py

Stores after every seed. Both sides of a seed are measured one after the other, so a run that was stopped starts anew.
"""

from shoal.bench import solve, stored

if __name__ == "__main__":
    runs = []
    for seed in solve.SEEDS:
        runs.append(solve.pair(seed, stored.print_line))
        stored.write(solve.NAME, "python benchmarks/cartpole_solve.py", solve.summarise(runs), runs=runs)
