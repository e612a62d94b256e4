"""Closed lines made of straights and arcs: what named and generated tracks are drawn with."""

import numpy as np

SMOOTHING = 0.35  # metres over which a straight turns into a corner


def turns(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(angle turned at each corner of a closed polygon, left positive; length of the edge that leads to it)."""
    edge = places - np.roll(places, 1, axis=0)
    direction = np.arctan2(edge[:, 1], edge[:, 0])
    return (np.roll(direction, -1) - direction + np.pi) % (2 * np.pi) - np.pi, np.hypot(edge[:, 0], edge[:, 1])


def rounded_polygon(corners: np.ndarray, spacing: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Points every `spacing` metres along a polygon with rounded corners, and the half-widths of the road there.

    `corners` are rows of x, y, radius and half-width. The first point is half-way along the straight that leads to
    the first corner; corners are entered gradually, over about SMOOTHING metres.
    """
    from scipy.ndimage import gaussian_filter1d

    angle, _ = turns(corners[:, :2])
    arcs = [_arc(corners, i, angle[i], spacing) for i in range(len(corners))]
    widths = np.repeat(corners[:, 3], [len(arc) for arc in arcs])
    points, widths = np.concatenate([arcs[-1][-1:], *arcs]), np.concatenate([widths[-1:], widths])
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    even = 0.5 * along[1] + np.linspace(0, along[-1], round(along[-1] / spacing), endpoint=False)
    x, y, width = (np.interp(even, along, values, period=along[-1]) for values in (*points.T, widths))
    sigma = SMOOTHING / spacing
    points = gaussian_filter1d(np.stack([x, y], axis=1), sigma, axis=0, mode="wrap")
    return points, gaussian_filter1d(width, 3 * sigma, mode="wrap")


def _arc(corners: np.ndarray, i: int, angle: float, spacing: float) -> np.ndarray:
    """[n, 2] the rounding of corner i, which touches the straights before and after it."""
    before, here, radius = corners[i - 1, :2], corners[i, :2], corners[i, 2]
    along = (here - before) / np.linalg.norm(here - before)
    to_centre = np.sign(angle) * radius * np.array([-along[1], along[0]])
    centre = here - radius * np.tan(abs(angle) / 2) * along + to_centre
    turned = np.linspace(0, angle, max(2, int(abs(angle) * radius / spacing)))
    x, y = -to_centre
    return centre + np.stack([np.cos(turned) * x - np.sin(turned) * y, np.sin(turned) * x + np.cos(turned) * y], axis=1)
