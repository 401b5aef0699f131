"""`python -m taskyard` is the program `taskyard`."""

from taskyard.main import main

if __name__ == "__main__":
    main()
