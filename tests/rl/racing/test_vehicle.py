"""The car's dynamics against CommonRoad, closed forms and the limits of grip."""

import itertools
import math

import numpy as np
import pytest

from data.errors import InputError
from rl.envs.racing import vehicle
from rl.envs.racing.cars import CARS, GRAVITY, PARAMETERS, TIME_STEP, Car, named_car
from rl.envs.racing.vehicle import BRUSH, LINEAR, SLIP, SPEED, STATE, STEERING, YAW, YAW_RATE, X

SCRATCH = np.empty((3, STATE))


def driven(car: Car, targets, tyres: int = BRUSH, state=None) -> np.ndarray:
    """[T + 1, 7] states under a sequence of (steering, speed) targets, one for each physics step."""
    states = [np.zeros(STATE) if state is None else np.array(state, dtype=np.float64)]
    for steering, speed in targets:
        states.append(states[-1].copy())
        vehicle.drive(states[-1], steering, speed, car.parameters(), tyres, TIME_STEP, SCRATCH)
    return np.array(states)


def accelerations(states: np.ndarray) -> np.ndarray:
    """[T] mean acceleration over each physics step, from the velocities at its ends alone."""
    direction = states[:, YAW] + states[:, SLIP]
    velocity = states[:, SPEED, None] * np.stack([np.cos(direction), np.sin(direction)], axis=1)
    return np.linalg.norm(np.diff(velocity, axis=0), axis=1) / TIME_STEP


def slalom(speed: float, seconds: float = 6.0) -> list[tuple[float, float]]:
    """Full lock to alternating sides, with full throttle and full brakes in between."""
    times = np.arange(0, seconds, TIME_STEP)
    return [(math.copysign(1.0, math.sin(4 * t)), speed if math.sin(2.3 * t) > -0.6 else 1.0) for t in times]


def test_parameters_are_read_from_the_columns_they_are_written_to():
    for column, name in enumerate(PARAMETERS):
        assert getattr(vehicle, name.upper()) == column


def test_linear_tyres_give_commonroads_regression_vector():
    pound, foot = 4.4482216152605, 0.3048
    car = Car(
        "CommonRoad vehicle 2",
        grip=1.0489,
        stiffness_front=21.92 / 1.0489,
        stiffness_rear=21.92 / 1.0489,
        lf=foot * 3.793293,
        lr=foot * 4.667707,
        height=foot * 2.01355,
        mass=pound / foot * 74.91452,
        inertia=pound * foot * 1321.416,
        steering_limit=1.066,
        steering_rate=0.4,
        v_min=-13.6,
        top_speed=50.8,
        v_switch=7.319,
        a_max=11.5,
    )
    state = np.array([
        2.0233348142065677, 0.0041907137716636, 0.0197545248559617, 15.7216236334290116,
        0.0025857914776859, 0.0529001056654038, 0.0033012170610298,
    ])  # fmt: skip
    published = [
        15.7213512030862397, 0.0925527979719355, 0.15, 5.3536773276413925,
        0.0529001056654038, 0.6435589397748606, 0.0313297971641291,
    ]  # fmt: skip
    p, slope = car.parameters(), np.empty(STATE)
    acceleration = vehicle.limited_acceleration(state[SPEED], 0.63 * 9.81, p)
    vehicle.linear_derivative(slope, state, 0.15, acceleration, p)
    assert slope == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize("grip", [0.3, 0.55, 0.8, 1.0489])
@pytest.mark.parametrize("name", ["nominal", "heavy", "soft", "deepracer"])
def test_no_manoeuvre_exceeds_the_friction_circle(name, grip):
    car = named_car({"base": name, "grip": grip, "traction": 1.0})
    states = driven(car, slalom(8.0))
    pulled = accelerations(states)
    # The one step in which a slow slide ends in rolling wheels is a switch of models, not a force; it may add a fifth.
    rolling = np.array([state[SLIP] == vehicle.kinematic_slip(state[STEERING], car.parameters()) for state in states])
    settled = rolling[1:] & ~rolling[:-1]
    assert pulled[~settled].max() <= grip * GRAVITY * (1 + 1e-9)
    assert pulled.max() <= grip * GRAVITY * 1.25
    assert pulled.max() > 0.9 * min(grip * GRAVITY, car.a_max)  # the limit is reached, or the test says nothing


def test_a_car_at_full_throttle_still_turns_unless_its_wheels_take_all_the_grip():
    turned = {}  # direction of travel
    for traction in (0.45, 1.0):
        car = named_car({"base": "wet", "traction": traction})
        states = driven(car, [(0.0, 8.0)] * 60 + [(0.1, 8.0)] * 40)
        turned[traction] = states[-1, YAW] + states[-1, SLIP]
    assert turned[0.45] > 1.3 * turned[1.0]


def test_linear_tyres_know_no_friction_circle():
    states = driven(CARS["nominal"], [(0.0, 8.0)] * 200 + [(0.4, 8.0)] * 100, tyres=LINEAR)
    assert accelerations(states).max() > 3 * CARS["nominal"].grip * GRAVITY


@pytest.mark.parametrize(
    ("car", "deceleration"),
    [
        ({"traction": 1.0}, 9.51),  # the brakes' own limit
        ({"base": "wet", "traction": 1.0}, 0.55 * 9.81),  # the ground's
        ("nominal", 0.45 * 1.0489 * 9.81),  # the speed controller's share of the grip
        ("wet", 0.45 * 0.55 * 9.81),
        ({"base": "heavy", "traction": 0.9}, 6.4),
    ],
)
def test_braking_distance_is_v_squared_over_2a(car, deceleration):
    start = np.zeros(STATE)
    start[SPEED] = 8.0
    states = driven(named_car(car), [(0.0, 0.0)] * 400, state=start)
    full = states[:, SPEED] > deceleration / vehicle.SPEED_GAIN + 0.2  # below, the controller eases off
    covered = (8.0**2 - states[full, SPEED] ** 2) / (2 * deceleration)
    assert full.sum() > 50
    assert states[full, X] == pytest.approx(covered, abs=1e-9)
    # Then speed falls by SPEED_GAIN · v a second, over a length of v / SPEED_GAIN.
    eased = deceleration / vehicle.SPEED_GAIN
    stopping = (8.0**2 - eased**2) / (2 * deceleration) + eased / vehicle.SPEED_GAIN
    assert states[-1, X] == pytest.approx(stopping, rel=0.01)
    assert abs(states[-1, SPEED]) < 1e-3


def test_gentle_cornering_is_kinematic():
    car = CARS["nominal"]
    for steering in (-0.2, 0.05, 0.2):
        state = driven(car, [(steering, 0.8)] * 600)[-1]
        expected = state[SPEED] * math.cos(state[SLIP]) * math.tan(steering) / (car.lf + car.lr)
        assert abs(state[SPEED] * state[YAW_RATE]) < 0.05 * car.grip * GRAVITY
        assert state[YAW_RATE] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("speed", [1.0, 3.0])
def test_steady_cornering_has_the_understeer_of_the_linear_bicycle(speed):
    # δ = Lω/v + ωv (1/Cf − 1/Cr)/(μg): slip angles in proportion to lateral acceleration on both axles.
    car = CARS["nominal"]
    gradient = (1 / car.stiffness_front - 1 / car.stiffness_rear) / (car.grip * GRAVITY)
    for tyres, tolerance in ((LINEAR, 1e-6), (BRUSH, 0.03)):
        state = driven(car, [(0.03, speed)] * 800, tyres=tyres)[-1]
        v, yaw_rate = state[SPEED], state[YAW_RATE]
        needed = (car.lf + car.lr) * yaw_rate / v + yaw_rate * v * gradient
        assert needed == pytest.approx(0.03, rel=tolerance)


def test_rk4_converges_at_fourth_order():
    p = CARS["nominal"].parameters()
    start = np.array([0.0, 0.0, 0.05, 4.0, 0.0, 0.4, -0.02])

    def after(step: float) -> np.ndarray:
        state = start.copy()
        for _ in range(round(0.16 / step)):
            vehicle.runge_kutta(state, 0.3, 2.0, p, BRUSH, False, step, SCRATCH)
        return state

    exact = after(0.16 / 4096)
    errors = [np.abs(after(0.16 / n) - exact).max() for n in (16, 32, 64)]
    orders = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert orders == pytest.approx([4, 4], abs=0.3)


def test_sliding_tyres_only_take_energy():
    random = np.random.default_rng(0)
    slope = np.empty(STATE)
    for car in CARS.values():
        p = car.parameters()
        for _ in range(300):
            speed = random.choice([-1, 1]) * random.uniform(0.5, 12)
            state = np.array([0, 0, random.uniform(-0.4, 0.4), speed, 1.0, *random.normal(size=2) * (8, 2)])
            vehicle.brush_derivative(slope, state, 0.0, 0.0, p)
            power = car.mass * state[SPEED] * slope[SPEED] + car.inertia * state[YAW_RATE] * slope[YAW_RATE]
            assert power <= 1e-9


def test_cornering_slows_a_coasting_car():
    slope = np.empty(STATE)
    vehicle.brush_derivative(slope, np.array([0, 0, 0.4, 6.0, 0, 0, 0]), 0.0, 0.0, CARS["nominal"].parameters())
    assert slope[SPEED] < -1.0


def test_left_and_right_are_mirror_images():
    targets = slalom(7.0, seconds=3.0)
    one = driven(CARS["wet"], targets)
    other = driven(CARS["wet"], [(-steering, speed) for steering, speed in targets])
    mirror = np.array([1, -1, -1, 1, -1, -1, -1])
    assert np.array_equal(one, other * mirror)


def test_a_spin_that_comes_to_rest_leaves_no_yaw_rate():
    spinning = [0, 0, 0.0, 6.0, 0, 9.0, 0.3]
    states = driven(CARS["wet"], [(0.0, 0.0)] * 500, state=spinning)
    assert np.isfinite(states).all()
    assert np.abs(states[:, SLIP]).max() > math.pi / 2  # it did turn round
    assert states[-1, [SPEED, YAW_RATE]] == pytest.approx([0, 0], abs=1e-3)
    assert np.ptp(states[-100:, YAW]) < 0.01


def test_a_car_that_rolls_backwards_reverses_as_it_steers():
    car = CARS["nominal"]
    states = driven(car, [(0.2, -0.8)] * 400)
    assert states[-1, SPEED] == pytest.approx(-0.8, rel=0.01)
    assert states[-1, YAW_RATE] == pytest.approx(-0.8 * math.tan(0.2) / (car.lf + car.lr), rel=0.05)


def test_steering_moves_at_its_rate_and_stops_at_its_limit():
    states = driven(CARS["nominal"], [(1.0, 2.0)] * 40)
    assert np.diff(states[:14, STEERING]) / TIME_STEP == pytest.approx(3.2)
    assert states[-1, STEERING] == pytest.approx(0.4189)


def test_the_motor_is_limited_by_power_above_v_switch_and_by_top_speed():
    states = driven(named_car({"traction": 1.0}), [(0.0, 30.0)] * 700)
    v, gained = states[:-1, SPEED], np.diff(states[:, SPEED]) / TIME_STEP
    fast = (v > 7.4) & (v < 19)
    assert gained[fast] == pytest.approx(9.51 * 7.319 / v[fast], rel=1e-6)
    assert states[:, SPEED].max() <= 20 + 1e-9
    assert driven(CARS["slow"], [(0.0, 30.0)] * 500)[-1, SPEED] == pytest.approx(5.0, rel=1e-3)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ("wett", "did you mean 'wet'"),
        ({"gripp": 1.0}, "did you mean 'grip'"),
        ({"base": "heavi"}, "did you mean 'heavy'"),
        ({"grip": -1.0}, "must be positive"),
        ({"traction": 1.2}, "at most 1"),
        ({"mass": "heavy"}, "finite number"),
        (3, "neither a name nor a mapping"),
    ],
)
def test_a_car_that_cannot_be_is_a_sentence(wanted, sentence):
    with pytest.raises(InputError, match=sentence):
        named_car(wanted)


@pytest.mark.parametrize("mass", [3.74, 5.0, 6.5])
def test_the_dynamic_model_begins_where_the_step_can_follow_it(mass):
    car = named_car({"mass": mass})
    p = car.parameters()
    for speed, settles in ((car.slowest_dynamic(), True), (0.36 * car.fastest_decay() * TIME_STEP / 2.7, False)):
        state = np.array([0.0, 0.0, 0.0, speed, 0.0, 1e-4, 1e-4])
        for _ in range(100):
            vehicle.runge_kutta(state, 0.0, 0.0, p, LINEAR, False, TIME_STEP, SCRATCH)
        assert (abs(state[YAW_RATE]) < 1e-4) == settles
    states = driven(car, slalom(2.0))
    assert np.abs(states[:, YAW_RATE]).max() < 2.5 * math.tan(0.4189) / (car.lf + car.lr)


def test_a_car_far_too_stiff_is_refused():
    with pytest.raises(InputError, match="too stiff"):
        named_car({"stiffness_front": 20.0, "stiffness_rear": 20.0}).parameters()


def test_a_mapping_changes_the_base_car():
    car = named_car({"base": "wet", "mass": 5.0})
    assert (car.grip, car.mass, car.lf) == (CARS["wet"].grip, 5.0, CARS["nominal"].lf)
    assert car.parameters()[PARAMETERS.index("mass")] == 5.0


def test_a_slow_slide_spends_all_its_grip_against_its_motion():
    car = CARS["nominal"]
    states = driven(car, [(0.0, 8.0)] * 3, state=[0, 0, 0.0, 0.45, 0.3, 2.0, 1.5])
    assert np.diff(states[:, SPEED]) == pytest.approx(-car.grip * GRAVITY * 0.01)
    assert states[:, YAW] + states[:, SLIP] == pytest.approx(1.8)  # it goes on in its direction while it turns
    assert states[:, YAW_RATE] / states[:, SPEED] == pytest.approx(2.0 / 0.45)


def test_a_slide_that_ends_keeps_the_speed_along_the_car():
    state = np.array([0, 0, 0.2, 0.4, 0, 1.0, 0.15])
    along = state[SPEED] * math.cos(state[SLIP])
    vehicle.settle(state, CARS["nominal"].parameters(), False)
    assert state[SPEED] * math.cos(state[SLIP]) == pytest.approx(along)


@pytest.mark.parametrize(("across", "left"), [(0.0, 1.0), (0.6, 0.8), (1.0, 0.2), (3.0, 0.2)])
def test_the_speed_controller_has_what_cornering_leaves_and_at_least_a_fifth(across, left):
    car = CARS["wet"]
    grip, state = car.grip * GRAVITY, np.zeros(STATE)
    state[SPEED], state[YAW_RATE] = 4.0, across * grip / 4.0
    assert vehicle.cornering_leaves(state, car.parameters()) == pytest.approx(left * grip)
