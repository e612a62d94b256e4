"""Random closed tracks, the same for the same seed and parameters.

A star-shaped polygon with as many corners as asked for is scaled to the length asked for, and its corners are rounded.
A draw whose corners are too blunt to count, too close to round, or whose walls would meet is thrown away for the next.
"""

import numpy as np

from data.centreline import Centreline
from data.errors import InputError
from data.randomness import generator
from rl.envs.racing.polygon import rounded_polygon, turns
from rl.envs.racing.track import wall_polylines

ATTEMPTS = 1_000
BLUNTEST = np.deg2rad(20)  # a corner turns by at least this much, or half of what those of a regular polygon do
SHARPEST = np.deg2rad(150)
STRAIGHT = 0.8  # metres at least between two corners, which are gradual and would run into each other
INSIDE = 0.25  # metres by which a corner's radius exceeds the half-width: walls need not fold
GAP = 0.2  # metres at least between the walls of different stretches
LOWEST_RADIUS = 1.2  # what an F1TENTH car can still drive with some speed


def generate(
    seed: int,
    *,
    length: float = 80.0,
    width: float = 2.2,
    corners: int = 10,
    sharpness: float = 0.5,
    width_spread: float = 0.1,
) -> Centreline:
    """A track of `length` metres around with so many `corners`; neither it nor its walls cross themselves.

    `sharpness` in [0, 1] goes from wide bends on a nearly round course to tight corners on one that doubles back.
    The road is `width` metres wide, give or take a share of `width_spread` at each corner.
    """
    _check(seed, length, width, corners, sharpness, width_spread)
    for attempt in range(ATTEMPTS):
        # Ever tamer, down to a regular polygon: what is possible at all is found.
        random, wildness = generator(seed, "track", attempt), 1 - attempt / (ATTEMPTS - 1)
        draw = _draw(random, wildness, length, width, corners, sharpness, width_spread)
        centreline = None if draw is None else _centreline(draw, length)
        if centreline is not None:
            return centreline
    raise InputError(
        f"No track of {length:g} m with {corners} corners and a width of {width:g} m was found for seed {seed}; "
        "make it longer or narrower, or ask for fewer corners or less sharpness."
    )


def _check(seed: int, length: float, width: float, corners: int, sharpness: float, width_spread: float) -> None:
    if seed < 0:
        raise InputError(f"Seed {seed} is negative; choose 0 or more.")
    if not (0 < length < 5_000 and 0 < width < length):
        raise InputError(
            f"A track of {length} m, {width} m wide, cannot be; choose at most 5000 m, and less wide than long."
        )
    if not 4 <= corners <= 100:
        raise InputError(f"A track cannot have {corners} corners; choose 4 to 100.")
    if not 0 <= sharpness <= 1:
        raise InputError(f"A sharpness of {sharpness} is not between 0 and 1.")
    if not 0 <= width_spread < 1:
        raise InputError(f"A width spread of {width_spread} is not at least 0 and below 1.")


def _draw(
    random: np.random.Generator,
    wildness: float,
    length: float,
    width: float,
    corners: int,
    sharpness: float,
    width_spread: float,
) -> np.ndarray | None:
    """[corners, 4] x, y, radius and half-width of each corner, or None if they cannot be rounded."""
    angle = 2 * np.pi * (np.arange(corners) + wildness * random.uniform(-0.35, 0.35, corners)) / corners
    depth = wildness * (0.4 + 0.35 * sharpness)
    distance = 1 - depth * random.beta(0.5, 0.5, corners)  # mostly far out or far in: a course that doubles back
    stretch = 1 + wildness * random.uniform(0, 0.8)
    places = distance[:, None] * np.stack([stretch * np.cos(angle), np.sin(angle)], axis=1)
    if random.uniform() < 0.5:
        places = places[::-1]
    widths = 0.5 * width * random.uniform(1 - width_spread, 1 + width_spread, corners)
    wish = (1 - sharpness) * random.uniform(0.5, 1, corners)
    turn, _ = turns(places)
    sharp = np.abs(turn)
    if sharp.min() < min(BLUNTEST, np.pi / corners) or sharp.max() > SHARPEST:
        return None
    tightest = np.maximum(widths.max() + INSIDE, LOWEST_RADIUS)
    radius = np.full(corners, tightest)
    for _ in range(8):  # rounding shortens the way around: scale, round, and scale again
        _, edges = turns(places)
        cut = radius * (2 * np.tan(sharp / 2) - sharp)
        places = places * ((length + cut.sum()) / edges.sum())
        _, edges = turns(places)
        room = 0.5 * (np.minimum(edges, np.roll(edges, -1)) - STRAIGHT)
        widest = room / np.tan(sharp / 2)
        radius = tightest + wish * np.maximum(widest - tightest, 0)
    if (widest < tightest).any():
        return None
    return np.column_stack([places, radius, widths])


def _centreline(corners: np.ndarray, length: float) -> Centreline | None:
    points, widths = rounded_polygon(corners)
    size = np.linalg.norm(points - np.roll(points, 1, axis=0), axis=1).sum()
    try:
        centreline = Centreline.through(points * (length / size), widths, widths)
        broad = centreline.left + 0.5 * GAP
        wall_polylines("generated", Centreline(centreline.points, broad, broad, centreline.length))
    except InputError:  # it crosses itself: not a fault of anyone's, but a draw to throw away
        return None
    return centreline
