"""Several workers of one application, and who leads them: a fleet's driver, or a supervisor."""
