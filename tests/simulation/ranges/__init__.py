"""Tasks of a query that read their ranges by enhanced fan-out, as a subject."""
