"""Orders of repair: judging, teaching, training and searching them."""
