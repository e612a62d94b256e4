"""The compiled part of the simulator: N cars, each on its own track with its own parameters, in one call.

numba caches machine code by the file of the function that was called, and would go on using it after a change in a
file that function calls into. So only the entries at the end are cached, under a key that covers all sources.
"""

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

import data.centreline
from data.centreline import frenet_features, project
from rl.envs.racing import cars, lidar, vehicle, walls
from rl.envs.racing.cars import TIME_STEP
from rl.envs.racing.lidar import add_noise, scan
from rl.envs.racing.vehicle import (
    LENGTH,
    LIDAR_OFFSET,
    SCAN_NOISE,
    SPEED,
    STATE,
    WIDTH,
    YAW,
    YAW_RATE,
    X,
    Y,
    drive,
)
from rl.envs.racing.walls import hits_wall

ORIGIN_X, ORIGIN_Y, RESOLUTION, STEP = range(4)  # columns of World.frames
FIRST_CELL, ROWS, COLUMNS, FIRST_POINT, POINTS = range(5)  # … of World.shapes
TIME, PLACE, OFFSET, PROGRESS, LAP_TIME, LAP_END = range(6)  # … of Fleet.course
TRACK, VERTEX, LAPS, SCANS = range(4)  # … of Fleet.counts
ASIDE, ASKEW = 0.3, 0.1  # a start's offset, as a share of the free room, and its heading error in radians


class World(NamedTuple):
    """All tracks one after another in flat arrays, and what all cars share."""

    frames: np.ndarray  # [T, 4] float64
    shapes: np.ndarray  # [T, 5] int64
    cells: np.ndarray  # float32 signed distances, in cells
    points: np.ndarray  # [ΣM, 2] centrelines
    heading: np.ndarray  # [ΣM]
    left: np.ndarray  # [ΣM]
    right: np.ndarray  # [ΣM]
    directions: np.ndarray  # [beams, 2]
    look_ahead: np.ndarray  # metres


class Fleet(NamedTuple):
    """A row for each car; no call touches rows that it was not asked for."""

    state: np.ndarray  # [N, 7]
    course: np.ndarray  # [N, 6] float64
    counts: np.ndarray  # [N, 4] int64
    keys: np.ndarray  # [N] uint64, of this episode's scan noise
    crashed: np.ndarray  # [N] bool
    parameters: np.ndarray  # [N, P]
    scan: np.ndarray  # [N, beams] float32
    features: np.ndarray  # [N, F] float32


class Settings(NamedTuple):
    substeps: int
    tyres: int
    scan_range: float  # metres
    slowest: float  # of speed targets
    fastest: float


@njit(nogil=True, error_model="numpy")
def _touches(fleet, world, i):
    """Whether car i's outline is in a wall of its track."""
    track = fleet.counts[i, TRACK]
    frame, shape = world.frames[track], world.shapes[track]
    cells = world.cells[shape[FIRST_CELL] : shape[FIRST_CELL] + shape[ROWS] * shape[COLUMNS]]
    scale = 1.0 / frame[RESOLUTION]
    column = (fleet.state[i, X] - frame[ORIGIN_X]) * scale
    row = (fleet.state[i, Y] - frame[ORIGIN_Y]) * scale
    length, width = fleet.parameters[i, LENGTH] * scale, fleet.parameters[i, WIDTH] * scale
    return hits_wall(cells, shape[ROWS], shape[COLUMNS], column, row, fleet.state[i, YAW], length, width)


@njit(nogil=True, error_model="numpy")
def _locate(fleet, world, i, fresh):
    """Car i's place along its centreline, anywhere if `fresh`, else near the last; gives the move in steps."""
    shape, course = world.shapes[fleet.counts[i, TRACK]], fleet.course[i]
    points = world.points[shape[FIRST_POINT] : shape[FIRST_POINT] + shape[POINTS]]
    near = -1 if fresh else fleet.counts[i, VERTEX]
    place, offset, vertex = project(points, fleet.state[i, X], fleet.state[i, Y], near)
    moved = place - course[PLACE]
    if moved > 0.5 * shape[POINTS]:
        moved -= shape[POINTS]
    elif moved < -0.5 * shape[POINTS]:
        moved += shape[POINTS]
    course[PLACE], course[OFFSET] = place, offset
    fleet.counts[i, VERTEX] = vertex
    return moved


@njit(nogil=True, error_model="numpy")
def _count_laps(fleet, i, advance, elapsed):
    """Adds `advance` laps to the progress; a lap is complete when progress reaches its number for the first time."""
    course = fleet.course[i]
    before = course[PROGRESS]
    course[PROGRESS] += advance
    course[TIME] += elapsed
    while course[PROGRESS] >= fleet.counts[i, LAPS] + 1:
        fleet.counts[i, LAPS] += 1
        share = (fleet.counts[i, LAPS] - before) / (course[PROGRESS] - before)
        end = course[TIME] - elapsed + share * elapsed
        course[LAP_TIME] = end - course[LAP_END]
        course[LAP_END] = end


@njit(nogil=True, error_model="numpy")
def _sense(fleet, world, settings, i, scratch, active):
    """Car i's features and scan."""
    track, state, p = fleet.counts[i, TRACK], fleet.state[i], fleet.parameters[i]
    frame, shape = world.frames[track], world.shapes[track]
    first, last = shape[FIRST_POINT], shape[FIRST_POINT] + shape[POINTS]
    frenet_features(
        fleet.features[i], world.points[first:last], world.heading[first:last], world.left[first:last],
        world.right[first:last], frame[STEP], world.look_ahead, state[X], state[Y], state[YAW], state[SPEED],
        state[YAW_RATE], fleet.course[i, PLACE], fleet.course[i, OFFSET],
    )  # fmt: skip
    if world.directions.shape[0] == 0:
        return
    cells = world.cells[shape[FIRST_CELL] : shape[FIRST_CELL] + shape[ROWS] * shape[COLUMNS]]
    scale = 1.0 / frame[RESOLUTION]
    column = (state[X] + p[LIDAR_OFFSET] * math.cos(state[YAW]) - frame[ORIGIN_X]) * scale
    row = (state[Y] + p[LIDAR_OFFSET] * math.sin(state[YAW]) - frame[ORIGIN_Y]) * scale
    scan(
        fleet.scan[i], cells, shape[ROWS], shape[COLUMNS], column, row, state[YAW], world.directions,
        settings.scan_range * scale, frame[RESOLUTION], scratch, active,
    )  # fmt: skip
    if p[SCAN_NOISE] > 0:
        longest, deviation = np.float32(settings.scan_range), np.float32(p[SCAN_NOISE])
        add_noise(fleet.scan[i], deviation, longest, fleet.keys[i], fleet.counts[i, SCANS])
    fleet.counts[i, SCANS] += 1


@njit(nogil=True, error_model="numpy")
def _step(which, actions, fleet, world, settings):
    scratch, active = (
        np.empty((4, world.directions.shape[0]), np.float32),
        np.empty(world.directions.shape[0], np.uint32),
    )
    slopes = np.empty((3, STATE))
    for i in which:
        if fleet.crashed[i]:
            continue  # a wreck stays where it is until it is reset
        steering, speed = actions[i, 0], min(max(actions[i, 1], settings.slowest), settings.fastest)
        elapsed = 0.0
        for _ in range(settings.substeps):
            drive(fleet.state[i], steering, speed, fleet.parameters[i], settings.tyres, TIME_STEP, slopes)
            elapsed += TIME_STEP
            if _touches(fleet, world, i):
                fleet.crashed[i] = True
                break
        moved = _locate(fleet, world, i, False)
        _count_laps(fleet, i, moved / world.shapes[fleet.counts[i, TRACK], POINTS], elapsed)
        _sense(fleet, world, settings, i, scratch, active)


@njit(nogil=True, error_model="numpy")
def _place_on_line(fleet, world, i, along, aside, askew):
    """Car i at rest on its centreline: along in [0, 1) of a lap; aside and askew in [−1, 1] of what is allowed."""
    shape = world.shapes[fleet.counts[i, TRACK]]
    first, count = shape[FIRST_POINT], shape[POINTS]
    k = min(int(along * count), count - 1)
    here, there, t = first + k, first + (k + 1) % count, along * count - k
    turn = (world.heading[there] - world.heading[here] + math.pi) % (2 * math.pi) - math.pi
    heading = world.heading[here] + t * turn
    room = min(world.left[here], world.right[here]) - fleet.parameters[i, WIDTH]
    offset = aside * ASIDE * max(room, 0.0)
    x = world.points[here, 0] + t * (world.points[there, 0] - world.points[here, 0])
    y = world.points[here, 1] + t * (world.points[there, 1] - world.points[here, 1])
    fleet.state[i] = 0.0
    fleet.state[i, X], fleet.state[i, Y] = x - offset * math.sin(heading), y + offset * math.cos(heading)
    fleet.state[i, YAW] = heading + askew * ASKEW


@njit(nogil=True, error_model="numpy")
def _start(which, starts, given, fleet, world, settings):
    """Begins an episode for the cars `which`.

    starts: [n, 4] along, aside, askew and nothing (see _place_on_line), or if `given` x, y, yaw and speed.
    """
    scratch, active = (
        np.empty((4, world.directions.shape[0]), np.float32),
        np.empty(world.directions.shape[0], np.uint32),
    )
    for k in range(which.shape[0]):
        i = which[k]
        if given:
            fleet.state[i] = 0.0
            fleet.state[i, X], fleet.state[i, Y], fleet.state[i, YAW], fleet.state[i, SPEED] = starts[k]
        else:
            _place_on_line(fleet, world, i, starts[k, 0], starts[k, 1], starts[k, 2])
            if _touches(fleet, world, i):
                _place_on_line(fleet, world, i, starts[k, 0], 0.0, 0.0)
        fleet.course[i] = 0.0
        fleet.course[i, LAP_TIME] = np.nan
        fleet.counts[i, LAPS] = fleet.counts[i, SCANS] = 0
        fleet.crashed[i] = _touches(fleet, world, i)
        _locate(fleet, world, i, True)
        _sense(fleet, world, settings, i, scratch, active)


SOURCES = (*(module.__file__ for module in (data.centreline, cars, lidar, vehicle, walls)), __file__)


def _entries(sources: str):
    """The functions to call; a function's enclosed variables, here `sources`, are part of its key in numba's cache."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def step_cars(which, actions, fleet, world, settings):
        """One control step: `substeps` physics steps towards the targets, then place, laps, crash and scan."""
        _step(which, actions, fleet, world, settings)
        return len(sources)

    @njit(cache=True, nogil=True, error_model="numpy")
    def start_cars(which, starts, given, fleet, world, settings):
        _start(which, starts, given, fleet, world, settings)
        return len(sources)

    return step_cars, start_cars


step_cars, start_cars = _entries(hashlib.sha256(b"".join(Path(file).read_bytes() for file in SOURCES)).hexdigest())
