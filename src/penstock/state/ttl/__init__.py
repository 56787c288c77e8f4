"""State whose entries expire, by processing time (D1): `config` says when, `states` does it, `cleanup` tidies up."""
