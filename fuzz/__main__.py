"""``python -m fuzz``."""

from fuzz.cli import main

if __name__ == "__main__":
    main()
