"""Exactly once into lakes and databases: the programs of docs/where-the-rows-go.md, killed."""
