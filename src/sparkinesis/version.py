"""The version of this package; a text, because a package in a zip has no metadata."""

__version__ = "0.1.0"
