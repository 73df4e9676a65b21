"""The command line of the demo: `make demo`, or `python -m examples.flights`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from examples.flights.demo import FULL, QUICK, Demo, DemoFailedError

PAGE = Path(__file__).parents[2] / "build" / "demo.html"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights",
        description="Replays the flights that left New York City in 2013 into a local Kinesis, "
        "reads them with Spark through resharding and a kill -9, and checks every event.",
    )
    parser.add_argument("--quick", action="store_true", help="20,000 flights instead of 336,776")
    scale = QUICK if parser.parse_args().quick else FULL
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM cleans up as Ctrl-C does
    folder = Path(tempfile.mkdtemp(prefix="flights-demo-"))
    demo = Demo(scale, folder)
    try:
        demo.run()
    except (DemoFailedError, RuntimeError) as error:
        reason = str(error)
    except KeyboardInterrupt:
        reason = "The demo was interrupted."
    else:
        reason = ""
    finally:
        demo.close()
    if reason:
        print(f"{reason}\nCheckpoints, results and logs are kept in {folder}\ndemo: FAILED")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(demo.page(), "utf-8")
    print(f"The run as a page: {PAGE}")
    print("demo: OK")
    return 0


if __name__ == "__main__":
    sys.exit(main())
