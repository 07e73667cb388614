"""The picture of programs: a documented model made from the tables, and the files that show it.

`writing` reads, builds the model (`model`, described by `report.schema.json`) and writes it as a file: an HTML page
(`document`), JSON, SVG (`pictures`) or a pprof profile (`pprof`).
"""
