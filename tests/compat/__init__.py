"""The core of the tests on old and new versions: ``make compat``. See docs/compatibility.md."""
