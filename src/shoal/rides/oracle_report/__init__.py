"""`shoal rides oracle report`: how good and how fast the neural oracle is, beside the other oracles."""
