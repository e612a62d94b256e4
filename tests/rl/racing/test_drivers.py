"""Drivers: the geometry they steer by, what their skill makes of it, and that nobody disturbs anybody."""

import math
from dataclasses import replace

import numpy as np
import pytest

from data.errors import InputError
from rl.envs.racing.cars import CARS
from rl.envs.racing.drivers import BY_SIGHT, DRIVERS, KINDS, Driver, Drivers
from rl.envs.racing.levels import LEVELS
from rl.envs.racing.line_drivers import STANLEY_GAIN, STANLEY_SOFTENING, pure_pursuit, stanley, unit_slip
from rl.envs.racing.named import TRACKS, track
from rl.envs.racing.scan_drivers import disparity_extender, follow_the_gap
from rl.envs.racing.simulator import Simulator
from rl.envs.racing.vehicle import brush_force

F1TENTH = [name for name in CARS if name != "deepracer"]
STEPS = 1000


class Drive:
    """Cars driven until their time is over: a row for each (track, car, driver)."""

    def __init__(self, rows, beams=54, steps=STEPS, seeds=None, record=False):
        seeds = range(len(rows)) if seeds is None else seeds
        tracks, cars, drivers = zip(*rows, strict=True)
        self.simulator = Simulator([track(name) for name in tracks], [CARS[name] for name in cars], beams=beams)
        self.simulator.reset(seeds=seeds)
        drivers = [DRIVERS[driver] if isinstance(driver, str) else driver for driver in drivers]
        self.drivers = Drivers(self.simulator, drivers, seeds)
        self.actions, self.states = [], []
        for _ in range(steps):
            self.simulator.step(self.drivers.act())
            if record:
                self.actions.append(self.drivers.actions.copy())
                self.states.append(self.simulator.state.copy())
        self.laps, self.crashed = self.simulator.laps, self.simulator.crashed
        self.progress = self.simulator.progress


def circle(radius: float, points: int = 2000) -> np.ndarray:
    """A line of which only x, y and heading matter, anticlockwise."""
    angle = 2 * np.pi * np.arange(points) / points
    zero = np.zeros(points)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), angle + np.pi / 2, zero, zero])


def test_pure_pursuit_on_a_circle_steers_that_circle():
    wheelbase, rear = 0.33, 0.17
    for radius in (1.5, 4.0):
        # The rear axle is on the circle, at its first point, and looks along it.
        steering = pure_pursuit(circle(radius), 0.0, radius, rear, math.pi / 2, wheelbase, rear, 0.9)
        assert steering == pytest.approx(math.atan(wheelbase / radius), abs=2e-3)


def test_pure_pursuit_turns_towards_the_line_and_less_so_from_further_ahead():
    line = circle(1000.0, 100_000)
    steer = [pure_pursuit(line, 0.0, 1000.3, 0.17, math.pi / 2, 0.33, 0.17, ahead) for ahead in (0.8, 1.6)]
    assert steer[0] > steer[1] > 0  # the car is to the right of the line, so it steers left


def test_stanley_adds_the_heading_error_to_the_angle_of_the_cross_track_error():
    offset, askew, speed = 0.2, 0.1, 3.0
    line = np.zeros((200, 5))
    line[:, 0] = 0.1 * np.arange(200)  # along the x axis
    steering = stanley(line, 50.0, 5.0, offset, askew, speed, front=0.0)
    wanted = -askew - math.atan(STANLEY_GAIN * offset / (speed + STANLEY_SOFTENING))
    assert steering == pytest.approx(wanted, abs=1e-12)


def test_the_slip_that_a_driver_allows_for_is_what_the_tyres_need():
    for use in (0.1, 0.5, 0.9):
        slip = unit_slip(math.sqrt(use * 9.0), 1.0, 9.0)  # v² κ is this share of a grip of 9 m/s²
        assert brush_force(slip, 1.0) == pytest.approx(use)
        assert unit_slip(math.sqrt(use * 9.0), -1.0, 9.0) == -slip


def seen(distance) -> tuple[np.ndarray, np.ndarray, float]:
    """A scan by angle, scratch space and the field of view."""
    view = 4.7
    angles = np.linspace(-view / 2, view / 2, 201)
    return np.array([distance(angle) for angle in angles], np.float32), np.empty(201), view


@pytest.mark.parametrize("opening", [-0.5, 0.0, 0.6])
def test_scan_drivers_aim_at_the_opening(opening):
    scan, room, view = seen(lambda angle: 6.0 if abs(angle - opening) < 0.3 else 0.8)
    assert follow_the_gap(scan, room, view, 0.4) == pytest.approx(opening, abs=0.05)
    assert disparity_extender(scan, room, view, 0.1) == pytest.approx(opening, abs=0.05)


def test_the_gap_is_not_sought_next_to_the_nearest_obstacle():
    scan, room, view = seen(lambda angle: 0.5 if abs(angle - 0.2) < 0.05 else 4.0)
    assert abs(follow_the_gap(scan, room, view, 0.4) - 0.2) > math.atan2(0.4, 0.5)


def test_the_disparity_extender_leaves_half_a_car_beside_an_edge():
    near, half_width = 2.0, 0.4
    scan, room, view = seen(lambda angle: near if angle < 0 else (8.0 if angle < 0.5 else 3.0))
    angle = disparity_extender(scan, room, view, half_width)
    assert math.atan2(half_width, near) <= angle < 0.5


def test_the_expert_drives_clean_laps_on_every_track_with_every_car():
    rows = [(name, car, "expert") for name in TRACKS for car in F1TENTH for _ in range(2)]
    drive = Drive(rows, beams=0)
    assert not drive.crashed.any(), [rows[i] for i in np.flatnonzero(drive.crashed)]
    assert (drive.laps >= 1).all()
    by_car = drive.progress.reshape(len(TRACKS), len(F1TENTH), 2).mean(axis=(0, 2))
    pace = dict(zip(F1TENTH, by_car, strict=True))
    assert pace["nominal"] > pace["worn"] > pace["wet"]
    assert pace["nominal"] > pace["slow"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_good_driver_of_each_kind_finishes(kind):
    name = next(name for name, d in DRIVERS.items() if d.kind == kind and name.startswith(("medium", "expert")))
    drive = Drive([(course, "nominal", name) for course in ("Oval", "Kidney", "Chicane", "Forest") for _ in range(2)])
    assert not drive.crashed.any()
    assert (drive.laps >= 1).all()


def test_a_random_a_weak_and_a_reckless_driver_end_in_the_wall():
    for driver, least in (("random", 1.0), ("weave", 0.6), ("novice_reckless", 0.9)):
        drive = Drive([(course, "nominal", driver) for course in ("Kidney", "Hairpins", "Harbour") for _ in range(6)])
        assert drive.crashed.mean() >= least
        assert drive.progress.mean() < 0.5


def test_skill_orders_how_far_drivers_get():
    courses = ("Oval", "Esses", "Quarry")
    levels = ("random", "novice", "medium", "expert")
    rows = [
        (course, car, driver)
        for level in levels
        for driver in list(LEVELS[level][0]) * (12 // len(LEVELS[level][0]))
        for course in courses
        for car in ("nominal", "wet")
    ]
    drive = Drive(rows)
    of = {driver: level for level in levels for driver in LEVELS[level][0]}
    far = {
        level: np.mean([p for p, row in zip(drive.progress, rows, strict=True) if of[row[2]] == level])
        for level in levels
    }
    assert 3 * far["random"] < far["novice"]
    assert 1.5 * far["novice"] < far["medium"]
    assert 1.2 * far["medium"] < far["expert"]


@pytest.mark.parametrize("fault", [{"delay": 4}, {"steering_noise": 0.2}, {"steering_noise": 0.08, "wander": 0.4}])
def test_delay_and_noise_hurt(fault):
    rows = [(course, "nominal", DRIVERS["expert"]) for course in ("Hairpins", "Esses", "Summit") for _ in range(3)]
    with_fault = [(course, car, replace(driver, **fault)) for course, car, driver in rows]
    good, bad = Drive(rows, beams=0), Drive(with_fault, beams=0)
    assert bad.crashed.sum() > good.crashed.sum()
    assert bad.progress.mean() < 0.8 * good.progress.mean()


def test_a_driver_is_the_same_alone_and_among_others():
    rows = [("Esses", "wet", name) for name in DRIVERS] + [("Oval", "noisy", "medium_gap")] * 60
    seeds = list(range(100, 100 + len(rows)))
    together = Drive(rows, seeds=seeds, steps=200, record=True)
    for i, row in enumerate(rows[: len(DRIVERS) + 1]):
        alone = Drive([row], seeds=seeds[i : i + 1], steps=200, record=True)
        assert np.array_equal(np.array(together.actions)[:, i], np.array(alone.actions)[:, 0])
        assert np.array_equal(np.array(together.states)[:, i], np.array(alone.states)[:, 0])


def test_a_driver_who_takes_over_a_car_remembers_nothing():
    """`assign` in the midst of a drive equals a fresh start."""
    drive = Drive([("Oval", "nominal", "novice_gap")], steps=150)
    drive.simulator.reset(seeds=[7])
    drive.drivers.assign(0, DRIVERS["medium_disparity"], 7)
    fresh = Drive([("Oval", "nominal", "medium_disparity")], seeds=[7], steps=0)
    for _ in range(100):
        assert np.array_equal(drive.drivers.act(), fresh.drivers.act())
        drive.simulator.step(drive.drivers.actions)
        fresh.simulator.step(fresh.drivers.actions)


def test_a_delayed_driver_does_what_he_wanted_before():
    delay = 5
    simulator = Simulator([track("Oval")], [CARS["nominal"]], beams=0)
    simulator.reset(seeds=[0])
    prompt, slow = (Drivers(simulator, [replace(DRIVERS["expert"], delay=d)], [0]) for d in (0, delay))
    wanted = []
    for step in range(60):
        wanted.append(prompt.act()[0].copy())
        done = slow.act()[0]
        assert np.array_equal(done, wanted[step - delay] if step >= delay else [0, 0])
        simulator.step(slow.actions)


@pytest.mark.parametrize("wander", [0.0, 0.4])
def test_steering_noise_has_its_size_and_its_memory(wander):
    cars, steps, size = 20, 400, 0.01
    simulator = Simulator([track("Oval")] * cars, [CARS["nominal"]] * cars, beams=0)
    simulator.reset(seeds=range(cars))
    quiet, noisy = (
        Drivers(simulator, [replace(DRIVERS["expert"], steering_noise=s, wander=wander)] * cars, range(cars))
        for s in (0, size)
    )
    # The cars stand still, so that the two differ in nothing but noise.
    noise = np.array([noisy.act()[:, 0] - quiet.act()[:, 0] for _ in range(steps)])[50:]
    free = np.abs(quiet.actions[:, 0]) < CARS["nominal"].steering_limit - 5 * size  # not clipped at full lock
    noise = noise[:, free]
    assert free.sum() > 5
    assert noise.std() == pytest.approx(size, rel=0.2)
    lag_one = (noise[1:] * noise[:-1]).mean() / noise.var()
    assert lag_one == pytest.approx(math.exp(-0.04 / wander) if wander else 0.0, abs=0.05)


def test_drivers_that_cannot_be_are_sentences():
    with pytest.raises(InputError, match="no driver of kind 'stanly'; did you mean 'stanley'"):
        Driver("stanly")
    with pytest.raises(InputError, match="racing or centre, not 'outer'"):
        Driver(line="outer")
    with pytest.raises(InputError, match="0 to 12 control steps, not 99"):
        Driver(delay=99)
    for kind in BY_SIGHT:
        with pytest.raises(InputError, match="needs a scan"):
            Drive([("Oval", "nominal", Driver(kind))], beams=0, steps=1)
