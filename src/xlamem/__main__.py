"""`python -m xlamem`: the command where its script is not on the path."""

from .cli import run

if __name__ == "__main__":
    run()
