"""What was seen of a candidate from inside and outside comes in; labels go out. None of them decides."""

from kernelwright.judge.candidate import Facts
from kernelwright.judge.contestant import Contestant
from kernelwright.judge.verdict import Label
from kernelwright.judge.wire import Fact

__all__ = ["labels_from_process", "labels_from_text"]

FROM_FACTS = {
    Fact.FLAGS_CHANGED: Label.FLAGS_CHANGED,
    Fact.STARTED_THREADS: Label.SPAWNS_THREADS,
    Fact.STRIDED_OUTPUT: Label.STRIDED_OUTPUT,
    Fact.VENDOR_LIBRARY: Label.VENDOR_LIBRARY,
}


def labels_from_text(facts: Facts) -> set[Label]:
    labels = set()
    if facts.imports_reference:
        labels.add(Label.IMPORTS_REFERENCE)
    if facts.vendor:
        labels.add(Label.VENDOR_LIBRARY)
    if facts.streams:
        labels.add(Label.USES_SIDE_STREAMS)
    return labels


def labels_from_process(contestant: Contestant, text: Facts) -> set[Label]:
    facts = contestant.facts()
    labels = {label for fact, label in FROM_FACTS.items() if fact in facts}
    own_kernel = Fact.OWN_KERNEL in facts if Fact.TRACED in facts else text.builds
    if not own_kernel:
        labels.add(Label.NO_CUSTOM_KERNEL)
    if len(contestant.worker.tree()) > 1:
        labels.add(Label.SPAWNS_PROCESSES)
    return labels
