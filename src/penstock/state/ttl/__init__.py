"""State whose entries expire by processing time (D1): `expiry` has the rules, `states` applies them."""
