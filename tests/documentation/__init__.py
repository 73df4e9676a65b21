"""The documentation site: ``make docs`` builds and checks it.

Tests: what it checks, and that the reference has each public name.
"""
