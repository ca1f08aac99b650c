"""How many examples tests of properties try: the same ones on every run, fewer where slow tests are left out."""

from hypothesis import HealthCheck, settings

# What the counts are divided by.
share = 1


def examples(count: int) -> settings:
    """So many examples, or their share. A failure that comes and goes helps nobody: they are not random."""
    return settings(
        max_examples=max(1, count // share), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
