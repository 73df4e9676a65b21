"""`sparkinesis run`: runs the application that a module of the user's holds."""
