"""What a backend or an environment of your own can be tested with."""

from shoal.testing.contract import check_vector_env
from shoal.testing.faults import FaultyEnv, TickEnv

__all__ = ["FaultyEnv", "TickEnv", "check_vector_env"]
