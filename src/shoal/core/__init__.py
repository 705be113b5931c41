"""What everybody may import: arrays, spaces, seeds, statistics, machine, errors, the contract of a batch."""
