"""The `edgedeploy` command, also as `python -m edgedeploy`: prepares the process before slow imports."""

from __future__ import annotations

import signal
import sys

from edgedeploy.base import interruption, supervision


def main() -> None:
    """Run the command line and end the process."""
    interruption.listen()
    try:
        from edgedeploy.base.streams import open_standard_streams

        open_standard_streams()
        ended = None
        try:
            supervision.supervise()
        except supervision.EndedError as error:
            ended = error
        from edgedeploy.cli import main as command

        command(ended)
    except BaseException:
        if not interruption.came():
            raise
    finally:
        # Python's own shutdown follows, which would print KeyboardInterrupt with a traceback.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(interruption.INTERRUPTED if interruption.came() else 0)


if __name__ == "__main__":
    main()
