"""Which oracle plans the days of an environment."""

from __future__ import annotations

from shoal.rides.options import RidesOptions
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.problem import Problem


def make_oracle(options: RidesOptions, problem: Problem, threads: int, *, training: bool) -> RoutingOracle:
    """What the options ask for; outside training always the compiled search, so that runs can be compared."""
    if options.oracle == "neural" and training:
        from shoal.rides.routing.neural.decoding import Decoding
        from shoal.rides.routing.neural.oracle import NeuralOracle
        from shoal.rides.routing.neural.standing import standing
        from shoal.rides.routing.neural.weights import load_network

        oracle = NeuralOracle(
            problem,
            load_network(options.oracle_weights),
            threads=threads,
            batch=options.oracle_batch,
            device=options.oracle_device,
            decoding=Decoding.of(options.oracle_decode),
        )
        oracle.notices = (standing(options.oracle_weights),)
        return oracle
    return RoutingOracle(problem, threads=threads)
