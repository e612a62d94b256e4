"""The simulator: laps, crashes, and cars that do not know of each other."""

import math

import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from data.errors import InputError
from rl.envs.racing import cars, kernel
from rl.envs.racing.cars import CARS, TIME_STEP, named_car
from rl.envs.racing.named import track
from rl.envs.racing.simulator import Simulator
from rl.envs.racing.vehicle import SPEED, YAW, X, Y
from tests.rl.racing.rooms import lane_keeping, ring

RING = ring()
RADIUS = 6.0


def on_ring(count: int = 1, angle: float = 0.0, backwards: bool = False, **options) -> Simulator:
    """Cars at rest on the ring's centreline, at an angle from its start."""
    simulator = Simulator([RING] * count, [CARS["nominal"]] * count, **{"beams": 0, "speeds": (-5.0, 8.0)} | options)
    yaw = angle + (-0.5 if backwards else 0.5) * math.pi
    pose = RADIUS * math.cos(angle), RADIUS * math.sin(angle), yaw
    simulator.reset(seeds=range(count), poses=np.array([pose] * count))
    return simulator


def run(simulator: Simulator, speed: float, steps: int) -> np.ndarray:
    """[steps] the angle turned around the ring's middle since now, of car 0."""
    angles = [math.atan2(simulator.state[0, Y], simulator.state[0, X])]
    for _ in range(steps):
        simulator.step(lane_keeping(simulator, speed))
        angles.append(math.atan2(simulator.state[0, Y], simulator.state[0, X]))
    assert not simulator.crashed.any()
    unwrapped = np.unwrap(angles)
    return unwrapped[1:] - unwrapped[0]


@pytest.mark.parametrize("angle", [0.0, 1.0, 3.1, 6.2])
def test_progress_is_the_share_of_the_circle_wherever_one_starts(angle):
    simulator = on_ring(angle=angle)
    for _ in range(4):
        before = simulator.progress[0]
        turned = run(simulator, 3.0, 100)[-1]
        assert simulator.progress[0] - before == pytest.approx(turned / (2 * math.pi), abs=1e-4)


@pytest.mark.parametrize("angle", [0.0, 2.0])
def test_each_lap_has_its_own_time_and_they_add_up(angle):
    simulator = on_ring(angle=angle)
    turned = np.concatenate([[0.0], run(simulator, 3.0, 500)])
    assert simulator.laps[0] == 1
    first = simulator.lap_time[0]
    later = run(simulator, 5.0, 190)
    assert simulator.laps[0] == 2
    second = simulator.lap_time[0]
    clock = np.arange(691) * 0.04
    turned = np.concatenate([turned, turned[-1] + later])
    crossings = np.interp([2 * math.pi, 4 * math.pi], turned, clock)
    assert [first, first + second] == pytest.approx(crossings, abs=0.01)
    assert second < first  # it was the faster one, and from a flying start
    assert simulator.lap_end[0] == pytest.approx(first + second, abs=1e-9)
    assert simulator.time[0] == pytest.approx(clock[-1])


def test_a_lap_time_is_not_rounded_to_control_steps():
    simulator = on_ring()
    turned = np.concatenate([[0.0], run(simulator, 3.0, 400)])
    crossed = np.interp(2 * math.pi, turned, np.arange(401) * 0.04)
    assert simulator.lap_time[0] == pytest.approx(crossed, abs=1e-3)


@pytest.mark.parametrize(("backwards", "speed"), [(True, 3.0), (False, -2.0)])
def test_the_wrong_way_round_is_negative_progress_and_no_lap(backwards, speed):
    simulator = on_ring(backwards=backwards)
    for _ in range(600):
        offset, sin_error = simulator.features[0, :2]
        steering = 0.4 * offset + sin_error if backwards else -0.4 * offset + sin_error
        simulator.step(np.array([[steering, speed]]))
    assert not simulator.crashed[0]
    assert simulator.progress[0] < -1
    assert simulator.laps[0] == 0
    assert np.isnan(simulator.lap_time[0])


def test_back_and_forth_across_the_line_earns_nothing():
    simulator = on_ring(angle=-0.2)
    for _ in range(6):
        run(simulator, 2.0, 40)
        run(simulator, -2.0, 40)
    assert simulator.laps[0] == 0
    assert abs(simulator.progress[0]) < 0.1


def test_a_lap_driven_back_must_be_driven_again():
    simulator = on_ring()
    run(simulator, 4.0, 260)
    assert simulator.laps[0] == 1
    run(simulator, -2.0, 150)
    assert simulator.progress[0] < 1  # back over the line
    run(simulator, 4.0, 100)
    assert simulator.progress[0] > 1  # and over it a second time
    assert simulator.laps[0] == 1


def test_a_car_crashes_when_its_outline_reaches_the_wall_and_stays_there():
    simulator = on_ring()
    for _ in range(200):
        simulator.step(np.array([[0.0, 3.0]]))  # straight on: off the ring
        if simulator.crashed[0]:
            break
    x, y, yaw = simulator.state[0, [X, Y, YAW]]
    car = CARS["nominal"]
    corners = [
        (x + a * math.cos(yaw) - b * math.sin(yaw), y + a * math.sin(yaw) + b * math.cos(yaw))
        for a in (-car.length / 2, car.length / 2)
        for b in (-car.width / 2, car.width / 2)
    ]
    outermost = max(math.hypot(*corner) for corner in corners)
    assert RADIUS + 1.1 <= outermost <= RADIUS + 1.1 + 3.0 * TIME_STEP + 0.002  # within one physics step
    before = simulator.state.copy(), simulator.time.copy()
    simulator.step(np.array([[0.0, -3.0]]))
    assert np.array_equal(simulator.state, before[0])
    assert np.array_equal(simulator.time, before[1])
    simulator.reset(seeds=[1])
    assert not simulator.crashed[0]


def record(simulator: Simulator, seeds, steps: int = 60) -> list[np.ndarray]:
    """Everything about all cars after each step; crashed cars begin again on the way."""
    simulator.reset(seeds=seeds)
    rows = []
    for t in range(steps):
        speed = 5.0 + np.array([seed % 5 for seed in seeds]) - (t > 40)
        simulator.step(lane_keeping(simulator, speed))
        fleet = simulator.fleet
        counts = fleet.counts[:, 1:]  # column 0 is the track's number among this simulator's
        parts = (fleet.state, fleet.course, counts, fleet.crashed[:, None], fleet.scan, fleet.features)
        rows.append(np.concatenate([part.astype(np.float64) for part in parts], axis=1))
        crashed = np.flatnonzero(simulator.crashed)
        if len(crashed):
            simulator.reset(crashed)
    simulator.close()
    return rows


def test_a_car_among_others_is_the_car_alone_bit_for_bit_on_any_number_of_threads():
    tracks = [track(("Oval", "Hairpins", "Esses")[i % 3]) for i in range(70)]
    fleet = [list(CARS.values())[i % 7] for i in range(70)]
    seeds = list(range(100, 170))
    batched = record(Simulator(tracks, fleet, threads=1), seeds)
    assert any((rows[:, 16] > 0).any() for rows in batched)  # some crashed, and were reset
    for threads in (2, 3):
        simulator = Simulator(tracks, fleet, threads=threads)
        assert simulator.threads > 1
        assert np.array_equal(record(simulator, seeds), batched, equal_nan=True)
    for i in (0, 1, 2, 13, 69):
        alone = record(Simulator([tracks[i]], [fleet[i]]), [seeds[i]])
        assert np.array_equal(np.array(alone)[:, 0], np.array(batched)[:, i], equal_nan=True)


def test_simulators_with_different_maps_do_not_disturb_each_other():
    oval = record(Simulator([track("Oval")], [CARS["nominal"]]), [1])
    one, other = Simulator([track("Oval")], [CARS["nominal"]]), Simulator([RING], [CARS["wet"]], beams=20)
    one.reset(seeds=[1])
    other.reset(seeds=[1])
    for t in range(60):
        one.step(lane_keeping(one, 6.0 - (t > 40)))
        other.step(lane_keeping(other, 3.0))
        assert np.array_equal(one.state[0], oval[t][0, :7])
        if one.crashed[0]:
            one.reset()


def test_a_step_of_some_leaves_the_others_alone():
    simulator = on_ring(count=3, beams=54)
    before = simulator.state.copy(), simulator.scan.copy(), simulator.time.copy()
    simulator.step(np.full((3, 2), 2.0), which=np.array([1]))
    for now, then in zip((simulator.state, simulator.scan, simulator.time), before, strict=True):
        assert np.array_equal(now[[0, 2]], then[[0, 2]])
        assert not np.array_equal(now[1], then[1])


def test_scan_noise_differs_between_episodes_and_comes_back_with_the_seed():
    simulator = Simulator([RING], [CARS["noisy"]])

    def scanned(seed: int | None) -> np.ndarray:
        simulator.reset(seeds=None if seed is None else [seed], poses=np.array([[RADIUS, 0.0, 1.5]]))
        first = simulator.scan.copy()
        simulator.step(np.zeros((1, 2)))  # the car stands still: only the noise changes
        return np.concatenate([first, simulator.scan])

    one, second, again, other = scanned(3), scanned(None), scanned(3), scanned(4)
    assert np.array_equal(one, again)
    for a, b in ((one, second), (one, other), (one[:1], one[1:])):
        assert np.std(a - b) == pytest.approx(CARS["noisy"].scan_noise * math.sqrt(2), rel=0.3)


def test_starts_are_anywhere_or_at_the_line_at_rest_and_free_of_walls():
    hairpins = track("Hairpins")
    simulator = Simulator([hairpins] * 300, [CARS["nominal"]] * 300, beams=0)
    simulator.reset(seeds=range(300))
    count = len(hairpins.centreline.points)
    assert np.histogram(simulator.s / count, bins=10, range=(0, 1))[0].min() > 10
    assert not simulator.state[:, SPEED].any()
    assert np.abs(simulator.offset).max() > 0.05
    simulator.reset(start="line")
    from_line = np.minimum(simulator.s, count - simulator.s) * hairpins.centreline.step
    assert from_line.max() < 0.05
    assert not simulator.progress.any()


def test_each_car_has_its_own_parameters():
    simulator = Simulator([RING] * 2, [CARS["nominal"], CARS["slow"]], beams=0)
    simulator.reset(seeds=[0, 1], poses=np.array([[RADIUS, 0, math.pi / 2]] * 2))
    fastest = np.zeros(2)
    for _ in range(150):
        simulator.step(lane_keeping(simulator, 7.0))
        fastest = np.maximum(fastest, simulator.state[:, SPEED])
    assert fastest[0] > 6
    assert fastest[1] <= 5 + 1e-9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tyres": "lineer"}, "did you mean 'linear'"),
        ({"substeps": 0}, "choose 1 to 10"),
        ({"beams": -1}, "beams are impossible"),
        ({"speeds": (8.0, 0.0)}, "are no range"),
        ({"scan_range": -1.0}, "scan range"),
        ({"field_of_view": 7.0}, "field of view"),
    ],
)
def test_impossible_settings_are_sentences(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Simulator([RING], [CARS["nominal"]], **options)


def test_machine_code_is_cached_under_all_the_files_it_is_compiled_from():
    waiting, seen = [kernel.step_cars, kernel.start_cars], set()
    while waiting:
        dispatcher = waiting.pop()
        seen.add(dispatcher)
        function = dispatcher.py_func
        called = [function.__globals__.get(name) for name in function.__code__.co_names]
        called = [value for value in called if isinstance(value, Dispatcher)]
        # One cached by itself, under its own file alone, would be used unchanged after a change in another.
        if dispatcher not in (kernel.step_cars, kernel.start_cars) and not isinstance(dispatcher._cache, NullCache):
            assert {value.py_func.__code__.co_filename for value in called} <= {function.__code__.co_filename}
        waiting += [value for value in called if value not in seen]
    assert len(seen) > 15
    assert {dispatcher.py_func.__code__.co_filename for dispatcher in seen} == set(kernel.SOURCES) - {cars.__file__}


def test_impossible_calls_are_sentences():
    simulator = on_ring(count=2)
    with pytest.raises(InputError, match="car 1 is"):
        simulator.step(np.array([[0.0, 1.0], [np.nan, 1.0]]))
    with pytest.raises(InputError, match="need \\(2, 2\\)"):
        simulator.step(np.zeros((1, 2)))
    with pytest.raises(InputError, match="there are 0 to 1"):
        simulator.step(np.zeros((2, 2)), which=np.array([2]))
    with pytest.raises(InputError, match="would start in a wall"):
        simulator.reset(poses=np.zeros((2, 3)))
    with pytest.raises(InputError, match="did you mean 'line'"):
        simulator.reset(start="lines")
    with pytest.raises(InputError, match="too stiff"):
        Simulator([RING], [named_car({"stiffness_rear": 20.0})])
    with pytest.raises(InputError, match="would start in a wall"):
        Simulator([RING], [named_car({"width": 4.0})]).reset()
