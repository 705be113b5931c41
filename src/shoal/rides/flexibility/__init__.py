"""Who is likely to agree to what, learnt from answers."""
