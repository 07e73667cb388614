"""Bytes to tables: sections of a dump, scanned natively and assembled as Arrow tables."""
