"""What keeps an application from running, found by asking: `sparkinesis doctor`."""
