"""Runs the command line: `python -m kernelwright` is `kernelwright`."""

from kernelwright.cli import main

if __name__ == "__main__":
    main()
