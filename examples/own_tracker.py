"""A tracker of your own: the mean return after each epoch, as a CSV file in the folder of the run.

From the shell, in this folder: shoal train CartPole-v1 --track own_tracker:ReturnsCsv
"""

import csv
import tempfile

import shoal

COLUMNS = ("steps", "return/mean_100")


class ReturnsCsv(shoal.Tracker):
    def __init__(self, run, config):
        super().__init__(run, config)
        self.path = run.path / "returns.csv"
        with self.path.open("w", newline="") as file:
            csv.writer(file).writerow(COLUMNS)
        for row in run.metrics():  # of a resumed run: the rows before its checkpoint
            self.log(row)

    def log(self, row):
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow([row[name] for name in COLUMNS])


if __name__ == "__main__":  # because shoal imports this file by its name
    result = shoal.train("CartPole-v1", steps=20_000, track="own_tracker:ReturnsCsv", runs_dir=tempfile.mkdtemp())
    print(f"mean return {result.mean_return:.0f}, that of every epoch is in {result.run}/returns.csv")
