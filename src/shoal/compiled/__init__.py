"""Plain scalar Python as machine code, for CPU threads or CUDA, with the same bits."""
