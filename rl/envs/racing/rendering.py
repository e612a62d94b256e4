"""A track seen from above with car, trail and scan, painted into an array: no window, no plotting library."""

import numpy as np

from rl.envs.racing.simulator import Simulator
from rl.envs.racing.track import Track
from rl.envs.racing.vehicle import LENGTH, LIDAR_OFFSET, SPEED, WIDTH, YAW, X, Y

LARGEST = 800  # pixels of the longer side
GROUND, ROAD, WALL = (250, 250, 248), (226, 226, 224), (70, 70, 70)
CAR, WRECK, BEAM, ECHO = (30, 90, 200), (208, 0, 0), (250, 222, 190), (235, 110, 20)
BLOCK = 16  # video codecs want sides that are multiples of this
SLOW, QUICK = np.array([90, 40, 160]), np.array([250, 180, 40])  # of the trail, at 0 and QUICKEST
QUICKEST = 8.0  # m/s


class Picture:
    """The frames of one car's episode."""

    def __init__(self, track: Track):
        rows, columns = track.distance.shape
        height, width = track.resolution * rows, track.resolution * columns
        self.scale = LARGEST / max(height, width)  # pixels a metre
        self.size = tuple(BLOCK * int(np.ceil(side * self.scale / BLOCK)) for side in (height, width))
        self.left, self.top = track.origin[0], track.origin[1] + height
        self.empty = self._road(track)
        self.trail = self.empty.copy()

    def _road(self, track: Track) -> np.ndarray:
        rows, columns = track.distance.shape
        across = (np.arange(self.size[1]) + 0.5) / self.scale / track.resolution
        down = rows - 1 - (np.arange(self.size[0]) + 0.5) / self.scale / track.resolution
        row, column = np.round(down).astype(np.int64), np.round(across).astype(np.int64)
        distance = track.distance[np.ix_(np.clip(row, 0, rows - 1), np.clip(column, 0, columns - 1))]
        picture = np.empty((*self.size, 3), np.uint8)
        picture[:] = GROUND
        picture[distance > 0] = ROAD
        picture[np.abs(distance) < 0.75 * max(1 / self.scale, track.resolution)] = WALL
        return picture

    def clear(self) -> None:
        """Forget the trail of the last episode."""
        self.trail = self.empty.copy()

    def draw(self, simulator: Simulator, i: int) -> np.ndarray:
        """[height, width, 3] uint8 of car i as it is now."""
        state, p = simulator.fleet.state[i], simulator.fleet.parameters[i]
        share = np.clip(state[SPEED] / QUICKEST, 0, 1)
        self._dots(self.trail, state[None, [X, Y]], SLOW + share * (QUICK - SLOW))
        frame = self.trail.copy()
        cos, sin = np.cos(state[YAW]), np.sin(state[YAW])
        rotation = np.array([[cos, sin], [-sin, cos]])
        if simulator.beams:
            self._beams(frame, simulator, i, rotation)
        self._rectangle(frame, state[[X, Y]], rotation, p[LENGTH], p[WIDTH], WRECK if simulator.crashed[i] else CAR)
        return frame

    def _beams(self, frame: np.ndarray, simulator: Simulator, i: int, rotation: np.ndarray) -> None:
        ranges, directions = simulator.scan[i], simulator.world.directions
        lidar = simulator.state[i, [X, Y]] + simulator.fleet.parameters[i, LIDAR_OFFSET] * rotation[0]
        lengths = np.arange(0, ranges.max(), 1.5 / self.scale)
        beam, step = np.nonzero(lengths[None, :] < ranges[:, None])
        self._dots(frame, lidar + lengths[step, None] * directions[beam] @ rotation, BEAM, thick=1)
        echoed = ranges < simulator.settings.scan_range
        self._dots(frame, lidar + (ranges[:, None] * directions)[echoed] @ rotation, ECHO)

    def _pixels(self, places: np.ndarray) -> np.ndarray:
        """[n, 2] row and column of places [n, 2]; rows count from the top."""
        return np.stack([(self.top - places[:, 1]) * self.scale, (places[:, 0] - self.left) * self.scale], axis=1)

    def _dots(self, frame: np.ndarray, places: np.ndarray, colour, thick: int = 2) -> None:
        row, column = np.floor(self._pixels(places)).astype(np.int64).T
        for down in range(thick):
            for across in range(thick):
                r, c = np.clip(row + down, 0, self.size[0] - 1), np.clip(column + across, 0, self.size[1] - 1)
                frame[r, c] = colour

    def _rectangle(self, frame: np.ndarray, place: np.ndarray, rotation: np.ndarray, length, width, colour) -> None:
        reach = int(np.ceil(0.5 * np.hypot(length, width) * self.scale)) + 2
        row, column = self._pixels(place[None])[0].astype(np.int64)
        rows = np.arange(max(row - reach, 0), min(row + reach, self.size[0]))
        columns = np.arange(max(column - reach, 0), min(column + reach, self.size[1]))
        if not (len(rows) and len(columns)):
            return
        y = self.top - (rows + 0.5)[:, None] / self.scale - place[1]
        x = self.left + (columns + 0.5)[None, :] / self.scale - place[0]
        along, aside = x * rotation[0, 0] + y * rotation[0, 1], x * rotation[1, 0] + y * rotation[1, 1]
        # At least three pixels across, or a small car on a large map could not be seen.
        half_length, half_width = max(length / 2, 1.5 / self.scale), max(width / 2, 1.5 / self.scale)
        inside = (np.abs(along) <= half_length) & (np.abs(aside) <= half_width)
        frame[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1][inside] = colour
