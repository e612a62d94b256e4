"""Cars by their parameters: what one federated client's car differs in from another's."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data.errors import InputError, nearest

GRAVITY = 9.81
TIME_STEP = 0.01  # seconds of one physics step
SLOWEST_DYNAMIC = 0.5  # m/s; below, slip angles lose their meaning and the car moves kinematically
STABLE_RATE = 2.7  # RK4 is stable for a decay whose rate times the step is below 2.785
MOST_KINEMATIC = 1.0  # m/s; a car so stiff that it must move kinematically above this is refused


@dataclass(frozen=True)
class Car:
    """Single-track parameters, SI units; the defaults are those of an F1TENTH car (f1tenth_gym, identified at Penn)."""

    name: str = "nominal"
    mass: float = 3.74
    inertia: float = 0.04712
    lf: float = 0.15875  # centre of gravity to front axle
    lr: float = 0.17145  # … to rear axle
    height: float = 0.074  # of the centre of gravity
    grip: float = 1.0489  # μ between tyres and ground
    stiffness_front: float = 4.718  # cornering stiffness per load and grip, 1/rad
    stiffness_rear: float = 5.4562
    steering_limit: float = 0.4189
    steering_rate: float = 3.2  # rad/s
    v_switch: float = 7.319  # above this speed the motor's power, not its torque, limits acceleration
    a_max: float = 9.51
    traction: float = 0.45  # share of the grip left by cornering that the speed controller drives and brakes with
    top_speed: float = 20.0
    v_min: float = -5.0
    width: float = 0.31
    length: float = 0.58
    lidar_offset: float = 0.1  # ahead of the centre of gravity
    scan_noise: float = 0.01  # standard deviation of a range, metres

    def __post_init__(self):
        for name in PARAMETERS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise InputError(f"Car '{self.name}' has {name} = {value!r}; give a finite number.")
            if (value <= 0 and name not in _MAY_BE_ZERO) or (value < 0 and name in ("scan_noise", "height")):
                raise InputError(f"Car '{self.name}' has {name} = {value}; it must be positive.")
        if self.traction > 1:
            raise InputError(f"Car '{self.name}' has traction = {self.traction}; it is a share, at most 1.")
        if self.v_min > 0:
            raise InputError(f"Car '{self.name}' has v_min = {self.v_min}; it must be zero or negative.")
        if not self.steering_limit < math.pi / 2:
            raise InputError(f"Car '{self.name}' has steering_limit = {self.steering_limit}; it must be below π/2.")

    def fastest_decay(self) -> float:
        """The largest eigenvalue (1/s) of side slip and yaw rate at the lowest speed of the dynamic model."""
        front, rear = self.stiffness_front * self.lr, self.stiffness_rear * self.lf  # per m·g/L
        scale, v = self.grip * GRAVITY / (self.lf + self.lr), SLOWEST_DYNAMIC
        moment = self.lf * front - self.lr * rear
        matrix = [
            [-scale * (front + rear) / v, -1 - scale * moment / v**2],
            [
                -scale * self.mass / self.inertia * moment,
                -scale * self.mass / self.inertia * (self.lf**2 * front + self.lr**2 * rear) / v,
            ],
        ]
        return float(np.abs(np.linalg.eigvals(matrix)).max())

    def slowest_dynamic(self) -> float:
        """The speed (m/s) from which on slip counts: usually SLOWEST_DYNAMIC, more for a car too stiff for the steps.

        Side slip and yaw rate settle the faster the slower the car is, in proportion to 1 / speed.
        """
        rate = self.fastest_decay()
        speed = SLOWEST_DYNAMIC * max(rate * TIME_STEP / STABLE_RATE, 1.0)
        if speed > MOST_KINEMATIC:
            raise InputError(
                f"Car '{self.name}' settles at {rate:.0f} 1/s at {SLOWEST_DYNAMIC} m/s, too stiff for steps of "
                f"{TIME_STEP} s; lower its stiffness, its grip or its mass, or raise its inertia."
            )
        return speed

    def parameters(self) -> np.ndarray:
        """[P + 1] in the order that the compiled functions index; the last is the slowest dynamic speed."""
        return np.array([*(getattr(self, name) for name in PARAMETERS), self.slowest_dynamic()], dtype=np.float64)


PARAMETERS = tuple(field.name for field in dataclasses.fields(Car) if field.name != "name")
_MAY_BE_ZERO = ("v_min", "lidar_offset", "scan_noise", "height")

CARS = {
    car.name: car
    for car in (
        Car(),
        Car("wet", grip=0.55),
        Car("worn", grip=0.8, stiffness_front=3.8, stiffness_rear=4.2),
        Car("heavy", mass=5.6, inertia=0.0707, height=0.09, a_max=6.4),
        Car("slow", top_speed=5.0),
        Car("soft", stiffness_front=2.6, stiffness_rear=3.0),
        Car("noisy", scan_noise=0.1),
        Car(
            "deepracer",
            mass=1.3,
            inertia=0.014,
            lf=0.0825,
            lr=0.0825,
            height=0.05,
            grip=0.9,
            steering_limit=math.radians(30),
            a_max=6.0,
            top_speed=4.0,
            v_min=0.0,
            width=0.225,
            length=0.28,
            lidar_offset=0.05,
        ),
    )
}


def named_car(wanted: str | Mapping[str, object] | Car) -> Car:
    """A car by name, or by a mapping of parameters that differ from the car `base` (default nominal)."""
    if isinstance(wanted, Car):
        return wanted
    if isinstance(wanted, str):
        if wanted not in CARS:
            raise InputError(f"There is no car '{wanted}'; {nearest(wanted, CARS)}")
        return CARS[wanted]
    if not isinstance(wanted, Mapping):
        raise InputError(f"Car {wanted!r} is neither a name nor a mapping of parameters; known are {', '.join(CARS)}.")
    changes = dict(wanted)
    base = named_car(changes.pop("base", "nominal"))
    for name in changes:
        if name != "name" and name not in PARAMETERS:
            raise InputError(f"A car has no parameter '{name}'; {nearest(name, PARAMETERS)}")
    changes.setdefault("name", f"{base.name}, changed" if changes else base.name)
    return dataclasses.replace(base, **changes)
