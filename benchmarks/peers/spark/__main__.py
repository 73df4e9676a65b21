"""Run the comparison: python -m benchmarks.peers.spark."""

import sys

from benchmarks.peers.spark.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
