"""Turns text into tables.

- `outline` finds the sections of each file; `batch` defines the spans and batches that section readers work on.
- `sections/` has one file per section: its tables, where its text may be split, and how a span becomes a batch.
- Three drivers use them: `whole` (all spans, on `threads`, whose codes `recode` merges), `pieces` (span by span, in
  bounded memory) and `join` (many small dumps). They share `reader`.
- `matcher` connects rows of different spans: `by_code` in a whole dump, `by_offset` piece by piece; `repeats` drops
  repeated instructions, `stores` keeps the columns.
- `arrays`, `arrow`, `interners` and `tables` turn native columns into Arrow.
- `checks` and `report_checks` cross-check a dump, `diagnostics` and `summary` report on it.
- `oom` reads out-of-memory reports from logs.
"""
