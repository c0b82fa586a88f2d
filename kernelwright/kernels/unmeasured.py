"""Templates that no GPU has timed yet."""

from __future__ import annotations

# By the names of their rows in the table of templates. They compile, and are right in the emulator; but their cost is a
# guess, so that nothing chooses them and the tuner does not spend its time on them. `benchmarks/reduce_device.py` times
# them; what wins there leaves this set, with constants of its own in its cost model, and what does not is deleted.
UNMEASURED: frozenset[str] = frozenset({"reduce_woven", "reduce_turns", "reduce_sliding", "reduce_wide", "scan_ahead"})
