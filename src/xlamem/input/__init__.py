"""Paths to bytes: which files make up a dump, and what they hold once containers are undone. Nothing here parses."""
