"""What is known of a shard: the density of a sample."""

from __future__ import annotations

from sparkinesis.source.planning.probing.survey import density_window


def test_a_sample_without_records_has_no_density() -> None:
    """As one whose records are all in hand already."""
    assert density_window(5.0, [], []) is None


def test_the_last_burst_of_a_sample_may_be_a_part_and_does_not_count() -> None:
    arrivals = [at for burst in range(0, 50, 10) for at in [burst] * 3] + [50]
    window = density_window(0.0, arrivals, [1.0] * len(arrivals))
    assert window is not None
    assert window.density == 15 / 50
