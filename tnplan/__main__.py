"""`python -m tnplan` is the command `tnplan`."""

from tnplan.cli.main import main

if __name__ == "__main__":
    main()
