"""One file per screen: plain data in, lines of text out."""
