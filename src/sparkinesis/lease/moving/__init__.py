"""Moves an application: to another position, or to the other kind of lease table."""
