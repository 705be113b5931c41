"""How the weights that ship are made."""
