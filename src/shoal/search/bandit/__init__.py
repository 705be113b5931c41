"""Search over a finite set by noisy pulls: a Gaussian process, and strategies that ask and are told."""
