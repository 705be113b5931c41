"""Who makes the offers: simple rules, lookahead, sampled futures, the trained agent."""
