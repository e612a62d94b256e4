"""The pictures of the docs, and that the g-g diagrams show what they say."""

import numpy as np
import pytest

from rl.envs.racing.cars import CARS, GRAVITY
from rl.envs.racing.pictures import _expert_laps, _full_lock, draw_grip, draw_tracks


@pytest.mark.parametrize("points", [_expert_laps, _full_lock])
@pytest.mark.parametrize("car", ["nominal", "wet"])
def test_accelerations_lie_in_the_circle_of_the_grip(points, car):
    along, left = points(CARS[car], "Esses")
    share = np.hypot(along, left) / (CARS[car].grip * GRAVITY)
    assert share.max() < 1.01
    assert share.max() > (0.9 if points is _full_lock else 0.5)  # and they do reach for it


def test_the_pictures_are_drawn(tmp_path):
    draw_tracks(tmp_path / "tracks.png", ["Oval", "Summit"])
    draw_grip(tmp_path / "grip.png")
    for name in ("tracks.png", "grip.png"):
        assert (tmp_path / name).stat().st_size > 20_000
