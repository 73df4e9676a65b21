"""Results and positions in one transaction of a database: each record counts once."""
