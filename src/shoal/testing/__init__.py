"""What a backend or an environment of your own can be tested with."""

from shoal.testing.contract import check_vector_env

__all__ = ["check_vector_env"]
