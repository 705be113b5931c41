"""Keep a room warm: a small task for shoal, with a verb, a network, an evaluation and a section of the report."""
