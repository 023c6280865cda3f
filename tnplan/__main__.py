"""The command `tnplan`, also as `python -m tnplan`."""

import signal

# While modules are imported an interrupt ends the process, without a traceback; `main` lets it be heard.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tnplan.cli.main import main

if __name__ == "__main__":
    main()
