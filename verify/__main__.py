"""`python -m verify`, the same command as `verify`."""

from verify.cli import main

if __name__ == "__main__":
    main()
