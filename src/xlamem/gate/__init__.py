"""Hold the line: programs captured where they are compiled."""
