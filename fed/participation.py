"""Who takes part in a round."""

from data.randomness import generator


def participants_per_round(clients: int, fraction: float) -> int:
    """At least one, at most all."""
    return min(clients, max(1, round(fraction * clients)))


def participants(clients: int, fraction: float, seed: int, round: int) -> list[int]:
    """A uniform draw without replacement, in ascending order; the same for the same seed and round."""
    count = participants_per_round(clients, fraction)
    if count == clients:
        return list(range(clients))
    return sorted(generator(seed, "participants", round).choice(clients, size=count, replace=False).tolist())
