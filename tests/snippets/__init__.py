"""The programs and commands of README.md and docs/, run page by page: see `collecting`."""
