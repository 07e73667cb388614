"""What a type checker must reject: each line marked E with an error that contains the text, and no other line."""

from __future__ import annotations

import xlamem

dump = xlamem.read("dumps/")
print(dump.valuess)  # E: "Dump" has no attribute "valuess"; maybe "values"?
dump.source = dump.source  # E: Property "source" defined in "Dump" is read-only
print(dump.values.num_row)  # E: "Table" has no attribute "num_row"
xlamem.peakk("dumps/")  # E: Module has no attribute "peakk"
xlamem.peak(42)  # E: Argument 1 to "peak" has incompatible type "int"
xlamem.peak("dumps/", n=3)  # E: Unexpected keyword argument "n" for "peak"
xlamem.attribution(dump, by="colour")  # E: Argument "by" to "attribution" has incompatible type
xlamem.occupancy(dump, interval="open")  # E: Argument "interval" to "occupancy" has incompatible type
