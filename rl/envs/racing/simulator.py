"""N cars side by side, each on its own track with its own parameters, stepped in one compiled call.

Cars do not meet: each has its track to itself. Whatever a car does is the same, bit for bit, alone or among others,
on one thread or two.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from data.centreline import FEATURES, LOOK_AHEAD
from data.errors import InputError, nearest
from rl.envs.racing import kernel
from rl.envs.racing.cars import TIME_STEP, Car
from rl.envs.racing.kernel import Fleet, Settings, World
from rl.envs.racing.lidar import FIELD_OF_VIEW, RANGE, beam_directions
from rl.envs.racing.track import Track
from rl.envs.racing.vehicle import STATE, TYRES, X, Y
from rl.envs.racing.walls import in_cells

STARTS = ("anywhere", "line")
MOST_SUBSTEPS = 10  # a car must not outrun the stretch of centreline in which it is looked for
WORTH_A_THREAD = 32  # cars; a thread's call costs what about ten cars' steps do


class Simulator:
    """Call `reset`, then `step` as often as you like; a crashed car stays where it is until it is reset."""

    def __init__(
        self,
        tracks: Sequence[Track],
        cars: Sequence[Car],
        *,
        beams: int = 54,
        field_of_view: float = FIELD_OF_VIEW,
        scan_range: float = RANGE,
        look_ahead: Sequence[float] = LOOK_AHEAD,
        tyres: str = "brush",
        substeps: int = 4,
        speeds: tuple[float, float] = (0.0, 8.0),
        threads: int | None = None,
    ):
        self.tracks, self.cars, self.N = list(tracks), list(cars), len(tracks)
        _check(self.tracks, self.cars, beams, field_of_view, scan_range, tyres, substeps, speeds)
        self.substeps, self.speeds, self.beams = substeps, tuple(speeds), beams
        self.step_seconds = substeps * TIME_STEP
        self.world, placed_on = _world(self.tracks, beam_directions(beams, field_of_view), look_ahead)
        self.settings = Settings(substeps, TYRES[tyres], float(scan_range), float(speeds[0]), float(speeds[1]))
        self.fleet = _fleet(self.cars, placed_on, beams, FEATURES + 2 * len(self.world.look_ahead))
        self.generators = [np.random.default_rng() for _ in range(self.N)]
        self.threads = max(1, min(threads or cores(), self.N // WORTH_A_THREAD))
        self._pool: ThreadPoolExecutor | None = None
        self._everyone = np.arange(self.N)
        self._name_columns(self.fleet)

    def _name_columns(self, fleet: Fleet) -> None:
        """What all see: views that follow the cars."""
        self.state = fleet.state  # [N, 7] x, y, steering, speed, yaw, yaw rate, side slip
        self.scan = fleet.scan  # [N, beams] metres
        self.features = fleet.features  # [N, F] see data.centreline.frenet_features
        self.crashed = fleet.crashed  # [N]
        self.time = fleet.course[:, kernel.TIME]  # [N] seconds since the start
        self.s = fleet.course[:, kernel.PLACE]  # [N] place along the centreline, in its steps
        self.offset = fleet.course[:, kernel.OFFSET]  # [N] metres left of the centreline
        self.progress = fleet.course[:, kernel.PROGRESS]  # [N] laps since the start, negative when going backwards
        self.laps = fleet.counts[:, kernel.LAPS]  # [N] completed
        self.lap_time = fleet.course[:, kernel.LAP_TIME]  # [N] of the last completed lap, NaN before
        self.lap_end = fleet.course[:, kernel.LAP_END]  # [N] when that lap was completed

    def reset(
        self,
        which: np.ndarray | None = None,
        seeds: Sequence[int | np.random.Generator] | None = None,
        *,
        start: str = "anywhere",
        poses: np.ndarray | None = None,
        speeds: np.ndarray | None = None,
    ) -> None:
        """New episodes for the cars `which` (default all).

        seeds: one for each of them, or None to go on with each car's own generator.
        start: "anywhere" along the track or at its "line", at rest and slightly aside and askew;
        poses [n, 3] (x, y, yaw) with optional speeds [n] place cars exactly instead.
        """
        which = self._chosen(which)
        if seeds is not None:
            for i, seed in zip(which, seeds, strict=True):
                self.generators[i] = np.random.default_rng(seed)
        if start not in STARTS:
            raise InputError(f"There is no start '{start}'; {nearest(start, STARTS)}")
        starts = np.zeros((len(which), 4))
        for k, i in enumerate(which):
            # Drawn alike for every kind of start: the noise of an episode does not depend on where it begins.
            along, aside, askew = self.generators[i].random(3)
            self.fleet.keys[i] = self.generators[i].integers(2**63)
            starts[k, :3] = (along if start == "anywhere" else 0.0), 2 * aside - 1, 2 * askew - 1
        if poses is not None:
            starts[:, :3] = poses
            starts[:, 3] = 0.0 if speeds is None else speeds
            if not np.isfinite(starts).all():
                raise InputError("A start pose or speed is not finite; give x, y, yaw in metres and radians.")
        kernel.start_cars(which, starts, poses is not None, self.fleet, self.world, self.settings)
        self._refuse_walls(which)

    def _chosen(self, which: np.ndarray | None) -> np.ndarray:
        if which is None:
            return self._everyone
        which = np.atleast_1d(np.asarray(which, dtype=np.int64))
        # Compiled code does not look: a number too high would write into memory that is not ours.
        if len(which) and not 0 <= which.min() <= which.max() < self.N:
            raise InputError(f"Cars {which.min()} to {which.max()} are asked for; there are 0 to {self.N - 1}.")
        return which

    def _refuse_walls(self, which: np.ndarray) -> None:
        for i in which[self.crashed[which]]:
            x, y = self.state[i, [X, Y]]
            raise InputError(
                f"Car '{self.cars[i].name}' would start in a wall of track '{self.tracks[i].name}' at x = {x:.2f}, "
                f"y = {y:.2f}; start elsewhere, or use a wider track."
            )

    def step(self, actions: np.ndarray, which: np.ndarray | None = None) -> None:
        """One control step of the cars `which` (default all); actions [N, 2]: steering angle (rad) and speed (m/s)."""
        actions = np.ascontiguousarray(actions, dtype=np.float64)
        if actions.shape != (self.N, 2):
            raise InputError(f"Actions have shape {actions.shape}; {self.N} cars need ({self.N}, 2).")
        if not np.isfinite(actions).all():
            i = int(np.argmin(np.isfinite(actions).all(axis=1)))
            raise InputError(f"The action of car {i} is {actions[i]}; give finite targets.")
        which = self._chosen(which)
        if self.threads == 1 or len(which) < 2 * WORTH_A_THREAD:
            kernel.step_cars(which, actions, self.fleet, self.world, self.settings)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="racing")
        # Track by track: a map that one car has just looked at is still in the processor's cache for the next.
        which = which[np.argsort(self.fleet.counts[which, kernel.TRACK], kind="stable")]
        blocks = iter(np.array_split(which, max(self.threads, min(4 * self.threads, len(which) // WORTH_A_THREAD))))
        helpers = [self._pool.submit(self._step_blocks, blocks, actions) for _ in range(self.threads - 1)]
        self._step_blocks(blocks, actions)
        for helper in helpers:
            helper.result()

    def _step_blocks(self, blocks: Iterator[np.ndarray], actions: np.ndarray) -> None:
        """Takes blocks as long as there are any: a thread whose core is busy elsewhere leaves more to the others."""
        for block in blocks:
            kernel.step_cars(block, actions, self.fleet, self.world, self.settings)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def cores() -> int:
    """Cores that this process may use, two at most: more were never tried."""
    return min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _check(tracks, cars, beams, field_of_view, scan_range, tyres, substeps, speeds) -> None:
    if len(tracks) != len(cars) or not tracks:
        raise InputError(f"{len(tracks)} tracks for {len(cars)} cars; give each car its track, and at least one.")
    if beams < 0:
        raise InputError(f"{beams} beams are impossible; choose 0 or more.")
    if not 0 < field_of_view <= 2 * np.pi:
        raise InputError(f"A field of view of {field_of_view} rad is impossible; choose more than 0, at most 2π.")
    if not 0 < scan_range < np.inf:
        raise InputError(f"A scan range of {scan_range} m is impossible; choose a positive one.")
    if tyres not in TYRES:
        raise InputError(f"There are no tyres '{tyres}'; {nearest(tyres, TYRES)}")
    if not 1 <= substeps <= MOST_SUBSTEPS:
        raise InputError(f"{substeps} physics steps a control step are not supported; choose 1 to {MOST_SUBSTEPS}.")
    if not (len(speeds) == 2 and np.isfinite(speeds).all() and speeds[0] < speeds[1]):
        raise InputError(f"Speeds {speeds} are no range; give the lowest and the highest, in m/s.")


def _world(tracks: Sequence[Track], directions: np.ndarray, look_ahead: Sequence[float]) -> tuple[World, list[int]]:
    """Each distinct track once, and the number of each car's."""
    distinct = list({id(track): track for track in tracks}.values())
    number = {id(track): k for k, track in enumerate(distinct)}
    lines, shapes, cell, point = [track.centreline for track in distinct], [], 0, 0
    for track in distinct:
        shapes.append((cell, *track.distance.shape, point, len(track.centreline.points)))
        cell, point = cell + track.distance.size, point + len(track.centreline.points)
    world = World(
        frames=np.array([(*t.origin, t.resolution, t.centreline.step) for t in distinct], dtype=np.float64),
        shapes=np.array(shapes, dtype=np.int64),
        cells=np.concatenate([in_cells(t.distance, t.resolution) for t in distinct]),
        points=np.concatenate([line.points for line in lines]),
        heading=np.concatenate([line.heading for line in lines]),
        left=np.concatenate([line.left for line in lines]),
        right=np.concatenate([line.right for line in lines]),
        directions=directions,
        look_ahead=np.asarray(look_ahead, dtype=np.float64).reshape(-1),
    )
    return world, [number[id(track)] for track in tracks]


def _fleet(cars: Sequence[Car], tracks: Sequence[int], beams: int, features: int) -> Fleet:
    n, known = len(cars), {car: car.parameters() for car in set(cars)}
    counts = np.zeros((n, 4), np.int64)
    counts[:, kernel.TRACK] = tracks
    return Fleet(
        state=np.zeros((n, STATE)),
        course=np.zeros((n, 6)),
        counts=counts,
        keys=np.zeros(n, np.uint64),
        crashed=np.zeros(n, bool),
        parameters=np.stack([known[car] for car in cars]),
        scan=np.zeros((n, beams), np.float32),
        features=np.zeros((n, features), np.float32),
    )
