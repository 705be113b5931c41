"""The figures of `shoal bench rides`: routing oracle, environment, epochs with their updates, memory, offers.

python benchmarks/rides_bench.py [--instances DIR]   DIR holds Li and Lim's lc101.txt, lc201.txt, lr101.txt, lr201.txt
"""

import argparse

from shoal.bench import rides, stored

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances")
    given = parser.parse_args()
    stored.measure("rides_bench", lambda say: rides.run(say, instances=given.instances))
