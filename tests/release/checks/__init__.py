"""The checks of `make release-check`: pure rules, and what builds, installs and runs."""
