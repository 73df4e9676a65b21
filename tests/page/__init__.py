"""The live page in a real Chromium: ``make test-page``. Skipped, with a message, without one.

`picture` and `terminal` make the pictures of the docs.
"""
