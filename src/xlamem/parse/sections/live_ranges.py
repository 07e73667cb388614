"""HloLiveRange: schedule, live ranges, XLA's own peak list and its stack tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import _lines, _liveness
from ..._column import Names
from ..arrays import NULL
from ..batch import LIVE, Batch, Section, Span
from .base import Context, SectionReader, SizeOf, feature_names, next_line, split


class LiveRangesReader(SectionReader):
    kind = LIVE
    tables = ("schedule", "live_ranges", "printed_peak", "printed_stack")
    interners = ("instruction", "shape_index")
    bytes_per_name = 100
    first_state = (_liveness.NONE, 0, 0)
    """(current list, ordinal in the peak list, node of the tree)."""

    def sections(self, context: Context) -> Sequence[Section]:
        return [s for s in context.sections(LIVE) if not s.unavailable]

    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        current_list, ordinal, node = span.state or self.first_state
        tables, faults, bits, heads, peak_time, tree_total, unfinished, state = _liveness.scan(
            span.section.data, span.begin, span.end, current_list, *names, ordinal=ordinal, node=node
        )
        gaps = tables.pop("gaps")["gap"]
        summary = heads, peak_time, tree_total
        features = feature_names(bits, _liveness.FEATURES)
        return Batch(span, tables, faults, features, gaps, _liveness.GAP_TABLES, unfinished, state, summary)

    def next_split(self, section: Section, offset: int) -> int:
        return next_line(section, offset)

    def spans(self, section: Section, size_of: SizeOf) -> Iterator[Span]:
        """Split the schedule and the live ranges into spans; the peak list and the tree are a single span."""
        if size_of(section.end - section.begin) == section.end - section.begin:
            yield Span(section, section.begin, section.end)
            return
        data, end = section.data, section.end
        ranges = _lines.next_line(data, max(section.begin - 1, 0), end, b"  BufferLiveRange:\n")
        peak = _lines.next_line(data, ranges, end, b"  Live ranges at ")
        for begin, stop, kind in (
            (section.begin, ranges, _liveness.SCHEDULE),
            (ranges, peak, _liveness.RANGES),
        ):
            for span in split(section, begin, stop, size_of, b"", (kind, 0, 0)) if begin < stop else ():
                yield span._replace(state=None) if span.begin == begin else span
        if peak < end:
            yield Span(section, peak, end, (_liveness.RANGES, 0, 0))  # what looks like a head may not be one

    def continues(self, before: Batch, batch: Batch) -> bool:
        assumed, actual = (batch.span.state or self.first_state)[0], before.state[0]
        # A span after an unfinished tree cannot tell that it continues the tree.
        return before.unfinished < 0 and actual != _liveness.TREE and assumed in (_liveness.NONE, actual)

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        live = context.live
        for batch in batches:
            heads, peak_time, tree_total = batch.summary
            live.section = batch.span.section
            live.heads |= heads
            live.peak_time = live.peak_time if peak_time == NULL else peak_time
            live.tree_total = live.tree_total if tree_total == NULL else tree_total
        context.matcher.match_ranges(batches)
