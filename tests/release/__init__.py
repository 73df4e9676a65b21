"""Tests of a release: of the package that is built, and of formats that outlive a program.

``formats`` writes and reads what sparkinesis leaves in checkpoints, tables and files. ``golden``
holds what each version has written, by the version's first two numbers. ``checks`` are those of
`make release-check`. The rules are in docs/releases.md.
"""
