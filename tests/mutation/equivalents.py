"""Faults that change nothing that anybody could see, each with the reason."""

EQUIVALENTS: dict[tuple[str, str, str, str], str] = {}
