"""A UUT whose truth is known: the tester's answer must be exact to the frame."""

import random
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.config.document import yaml_text
from netbench.uut.reference import DropRule
from tests.commands import PATIENT, netbench, rows, settings, verdict_of
from tests.unit.inputs import topology

SEED = 20111
STREAMS = 3
DROPS = [
    (0, 7),
    (11, 11),
    *[(random.Random(SEED + i).randint(1, n), n) for i, n in enumerate((101, 4096))],
]


@given(st.integers(1, 50).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.integers(0, 500))
def test_the_formula_counts_what_a_counter_would(drop, frames):
    k, n = drop
    assert DropRule(k=k, n=n).of(frames) == sum(1 for i in range(frames) if i % n < k)


@pytest.mark.root
def test_loss_is_exact_to_the_frame(tmp_path):
    """Bridges and routers take turns."""
    uuts = [
        {"name": f"drops-{k}-of-{n}", "kind": "reference", "forward": forward, "drop": {"k": k, "n": n}}
        for (k, n), forward in zip(DROPS, cycle(("bridge", "route")), strict=False)
    ]
    wanted = topology(STREAMS, uuts, name="truth").model_dump(mode="json", exclude_none=True)
    (tmp_path / "truth.yaml").write_text(yaml_text(wanted))
    sizes = random.Random(SEED + STREAMS).sample(range(65, 1518), 1)
    chosen = settings(frame_sizes=f"64,{sizes[0]},1518", loads="9973fps", repetitions=1, duration="211ms")
    limits = [*PATIENT, *settings(drain_limit="1s")]
    done = netbench("run", tmp_path / "truth.yaml", "quick", "-o", tmp_path / "results", *chosen, *limits)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "results")
    assert len(found) == len(DROPS) * 3 * STREAMS
    for row in found:
        k, n = map(int, row["uut"].removeprefix("drops-").split("-of-"))
        sent = int(row["sent_frames"])
        assert sent == round(9973 * 0.211)
        assert int(row["lost_frames"]) == DropRule(k=k, n=n).of(sent), row
        assert int(row["received_frames"]) == sent - DropRule(k=k, n=n).of(sent)
        assert (verdict_of(row), row["unexplained_frames"], row["capture_dropped_frames"]) == ("valid", "0", "0"), row
