"""`python -m redrive` is the `redrive` program."""

from redrive.cli import main

if __name__ == "__main__":
    main()
