"""How N environments step as one: Gymnasium VectorEnvs, in this process, in workers, or compiled."""
