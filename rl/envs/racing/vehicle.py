"""The single-track model: steering rate and acceleration in, motion out.

State: x, y (centre of gravity), δ (steering), v (speed), ψ (yaw), ω (yaw rate), β (side slip); the velocity points to
ψ + β. With brush tyres (Fiala) each axle's force stays within the friction ellipse of its load, so the car never pulls
more than μg in any direction; with linear tyres the model is CommonRoad's small-angle one (vehicleDynamics_ST).
Below 0.5 m/s the car moves kinematically: it goes where its wheels point.
"""

import math

from numba import njit

from rl.envs.racing.cars import CARS, GRAVITY, PARAMETERS, Car, named_car

__all__ = ["CARS", "TYRES", "Car", "drive", "named_car"]

X, Y, STEERING, SPEED, YAW, YAW_RATE, SLIP = range(7)
STATE = 7
(
    MASS, INERTIA, LF, LR, HEIGHT, GRIP, STIFFNESS_FRONT, STIFFNESS_REAR, STEERING_LIMIT, STEERING_RATE, V_SWITCH,
    A_MAX, TRACTION, TOP_SPEED, V_MIN, WIDTH, LENGTH, LIDAR_OFFSET, SCAN_NOISE, SLOWEST_DYNAMIC,
) = range(len(PARAMETERS) + 1)  # fmt: skip
LINEAR, BRUSH = 0, 1
TYRES = {"linear": LINEAR, "brush": BRUSH}
SETTLING = 0.2  # of the grip: a slide that it could end within so much of a step is over
SPEED_GAIN = 20.0  # 1/s: acceleration asked for per m/s of missing speed


@njit(nogil=True, error_model="numpy")
def brush_force(linear, most):
    """Fiala's law: starts with the slope of the linear force and reaches `most` at three times that slip."""
    if abs(linear) >= 3.0 * most:
        return math.copysign(most, linear)
    z = linear / most
    return linear * (1.0 - abs(z) / 3.0 + z * z / 27.0)


@njit(nogil=True, error_model="numpy")
def brush_derivative(out, state, steering_rate, acceleration, p):
    """State derivative with forces in the wheels' own frames; `acceleration` is what the wheels ask for, |a| ≤ μg."""
    lf, lr, mass, grip = p[LF], p[LR], p[MASS], p[GRIP]
    v, yaw_rate = state[SPEED], state[YAW_RATE]
    cos_steer, sin_steer = math.cos(state[STEERING]), math.sin(state[STEERING])
    cos_slip, sin_slip = math.cos(state[SLIP]), math.sin(state[SLIP])
    cos_yaw, sin_yaw = math.cos(state[YAW]), math.sin(state[YAW])
    ahead, aside = v * cos_slip, v * sin_slip
    aside_front = aside + lf * yaw_rate
    rolling = ahead * cos_steer + aside_front * sin_steer
    sliding = aside_front * cos_steer - ahead * sin_steer
    slip_front = -math.atan2(sliding, abs(rolling))
    slip_rear = -math.atan2(aside - lr * yaw_rate, abs(ahead))
    # Loads and forces are per mass, so that μ·load is the acceleration that an axle can give the car.
    load_front = max((GRAVITY * lr - acceleration * p[HEIGHT]) / (lf + lr), 0.0)
    load_rear = max((GRAVITY * lf + acceleration * p[HEIGHT]) / (lf + lr), 0.0)
    share = acceleration / GRAVITY  # of each load that drives or brakes
    left = math.sqrt(max(grip * grip - share * share, 0.0))  # of each load for cornering
    side_front = brush_force(grip * p[STIFFNESS_FRONT] * load_front * slip_front, load_front * left)
    side_rear = brush_force(grip * p[STIFFNESS_REAR] * load_rear * slip_rear, load_rear * left)
    along = load_front * share * cos_steer - side_front * sin_steer + load_rear * share
    across_front = load_front * share * sin_steer + side_front * cos_steer
    across = across_front + side_rear
    out[X] = v * (cos_yaw * cos_slip - sin_yaw * sin_slip)
    out[Y] = v * (sin_yaw * cos_slip + cos_yaw * sin_slip)
    out[STEERING] = steering_rate
    out[SPEED] = along * cos_slip + across * sin_slip
    out[YAW] = yaw_rate
    out[YAW_RATE] = mass / p[INERTIA] * (lf * across_front - lr * side_rear)
    out[SLIP] = (across * cos_slip - along * sin_slip) / v - yaw_rate


@njit(nogil=True, error_model="numpy")
def linear_derivative(out, state, steering_rate, acceleration, p):
    """CommonRoad's vehicleDynamics_ST: small angles, lateral forces without a limit."""
    lf, lr, wheelbase, grip = p[LF], p[LR], p[LF] + p[LR], p[GRIP]
    v, yaw_rate, slip = state[SPEED], state[YAW_RATE], state[SLIP]
    front = p[STIFFNESS_FRONT] * (GRAVITY * lr - acceleration * p[HEIGHT])
    rear = p[STIFFNESS_REAR] * (GRAVITY * lf + acceleration * p[HEIGHT])
    out[X] = v * math.cos(slip + state[YAW])
    out[Y] = v * math.sin(slip + state[YAW])
    out[STEERING] = steering_rate
    out[SPEED] = acceleration
    out[YAW] = yaw_rate
    out[YAW_RATE] = (grip * p[MASS] / (p[INERTIA] * wheelbase)) * (
        lf * front * state[STEERING]
        + (lr * rear - lf * front) * slip
        - (lf * lf * front + lr * lr * rear) * yaw_rate / v
    )
    out[SLIP] = (grip / (v * wheelbase)) * (
        front * state[STEERING] - (rear + front) * slip + (rear * lr - front * lf) * yaw_rate / v
    ) - yaw_rate


@njit(nogil=True, error_model="numpy")
def kinematic_derivative(out, state, steering_rate, acceleration, p):
    """Wheels that roll without slip; yaw rate and side slip follow from steering and are set after the step."""
    wheelbase = p[LF] + p[LR]
    slip = kinematic_slip(state[STEERING], p)
    out[X] = state[SPEED] * math.cos(state[YAW] + slip)
    out[Y] = state[SPEED] * math.sin(state[YAW] + slip)
    out[STEERING] = steering_rate
    out[SPEED] = acceleration
    out[YAW] = state[SPEED] * math.cos(slip) * math.tan(state[STEERING]) / wheelbase
    out[YAW_RATE] = 0.0
    out[SLIP] = 0.0


@njit(nogil=True, error_model="numpy")
def kinematic_slip(steering, p):
    return math.atan(math.tan(steering) * p[LR] / (p[LF] + p[LR]))


@njit(nogil=True, error_model="numpy")
def derivative(out, state, steering_rate, acceleration, p, tyres, kinematic):
    if kinematic:
        kinematic_derivative(out, state, steering_rate, acceleration, p)
    elif tyres == LINEAR:
        linear_derivative(out, state, steering_rate, acceleration, p)
    else:
        brush_derivative(out, state, steering_rate, acceleration, p)


@njit(nogil=True, error_model="numpy")
def runge_kutta(state, steering_rate, acceleration, p, tyres, kinematic, step, scratch):
    """One classical fourth-order step, in place; scratch is [3, STATE]."""
    slope, total, middle = scratch[0], scratch[1], scratch[2]
    derivative(slope, state, steering_rate, acceleration, p, tyres, kinematic)
    for k in range(STATE):
        total[k] = slope[k]
        middle[k] = state[k] + 0.5 * step * slope[k]
    derivative(slope, middle, steering_rate, acceleration, p, tyres, kinematic)
    for k in range(STATE):
        total[k] += 2.0 * slope[k]
        middle[k] = state[k] + 0.5 * step * slope[k]
    derivative(slope, middle, steering_rate, acceleration, p, tyres, kinematic)
    for k in range(STATE):
        total[k] += 2.0 * slope[k]
        middle[k] = state[k] + step * slope[k]
    derivative(slope, middle, steering_rate, acceleration, p, tyres, kinematic)
    for k in range(STATE):
        state[k] += step / 6.0 * (total[k] + slope[k])


@njit(nogil=True, error_model="numpy")
def limited_acceleration(v, acceleration, p):
    """What motor and brakes can give: limited by torque, above v_switch by power; nothing beyond the end speeds."""
    if (v >= p[TOP_SPEED] and acceleration > 0.0) or (v <= p[V_MIN] and acceleration < 0.0):
        return 0.0
    most = p[A_MAX] * p[V_SWITCH] / v if v > p[V_SWITCH] else p[A_MAX]
    return min(max(acceleration, -p[A_MAX]), most)


@njit(nogil=True, error_model="numpy")
def drive(state, steering_target, speed_target, p, tyres, step, scratch):
    """One physics step of `step` seconds towards the targets, in place."""
    steering_target = min(max(steering_target, -p[STEERING_LIMIT]), p[STEERING_LIMIT])
    speed_target = min(max(speed_target, p[V_MIN]), p[TOP_SPEED])
    steering_rate = (steering_target - state[STEERING]) / step
    steering_rate = min(max(steering_rate, -p[STEERING_RATE]), p[STEERING_RATE])
    ahead = state[SPEED] * math.cos(state[SLIP])  # what the wheels' encoders see
    acceleration = limited_acceleration(ahead, SPEED_GAIN * (speed_target - ahead), p)
    kinematic = abs(state[SPEED]) < p[SLOWEST_DYNAMIC]
    if tyres == BRUSH:
        most = p[GRIP] * GRAVITY
        if kinematic and sideways(state, p) > SETTLING * most * step:
            slide(state, steering_rate, most, step)
            return
        if kinematic:
            most = rolling_limit(state, steering_rate, most, p, step)
        most = min(most, p[TRACTION] * cornering_leaves(state, p))
        acceleration = min(max(acceleration, -most), most)
    runge_kutta(state, steering_rate, acceleration, p, tyres, kinematic, step, scratch)
    if kinematic or abs(state[SPEED]) < p[SLOWEST_DYNAMIC]:
        if kinematic or tyres == LINEAR or sideways(state, p) <= SETTLING * p[GRIP] * GRAVITY * step:
            settle(state, p, kinematic)
    elif abs(state[SLIP]) > math.pi:
        state[SLIP] -= math.copysign(2.0 * math.pi, state[SLIP])


@njit(nogil=True, error_model="numpy")
def cornering_leaves(state, p):
    """Of the grip, for driving and braking, by the friction circle and a yaw-rate sensor; never less than a fifth."""
    grip, across = p[GRIP] * GRAVITY, state[SPEED] * state[YAW_RATE]
    return math.sqrt(max(grip * grip - across * across, 0.04 * grip * grip))


@njit(nogil=True, error_model="numpy")
def rolling_limit(state, steering_rate, most, p, step):
    """What turning, and turning in, leave of the acceleration `most` for driving and braking on rolling wheels."""
    wheelbase, fastest = p[LF] + p[LR], abs(state[SPEED]) + most * step
    tangent = math.tan(max(abs(state[STEERING]), abs(state[STEERING] + steering_rate * step)))
    slip_rate = abs(steering_rate) * (1.0 + tangent * tangent) * p[LR] / wheelbase
    across = fastest * (fastest * tangent / wheelbase + slip_rate)
    return math.sqrt(max(most * most - across * across, 0.0))


@njit(nogil=True, error_model="numpy")
def sideways(state, p):
    """m/s that a slow car moves otherwise than its wheels would roll."""
    return abs(state[SPEED] * math.sin(state[SLIP] - kinematic_slip(state[STEERING], p)))


@njit(nogil=True, error_model="numpy")
def slide(state, steering_rate, most, step):
    """A slow car that slides: all its grip goes against its motion, and its spin dies with its speed."""
    v, course, turn = state[SPEED], state[YAW] + state[SLIP], state[YAW_RATE] * step
    state[SPEED] -= math.copysign(min(most * step, abs(v)), v)
    middle = 0.5 * (v + state[SPEED])
    state[X] += middle * math.cos(course) * step
    state[Y] += middle * math.sin(course) * step
    state[STEERING] += steering_rate * step
    state[YAW] += turn
    state[SLIP] -= turn  # it goes on in the same direction while it turns
    state[YAW_RATE] *= state[SPEED] / v


@njit(nogil=True, error_model="numpy")
def settle(state, p, was_kinematic):
    """Yaw rate and side slip as rolling wheels have them.

    A car that slid until now keeps its speed along its own axis, whichever way it rolls, and loses the little rest.
    """
    slip = kinematic_slip(state[STEERING], p)
    if not was_kinematic:
        state[SPEED] *= math.cos(state[SLIP]) / math.cos(slip)
    state[SLIP] = slip
    state[YAW_RATE] = state[SPEED] * math.cos(slip) * math.tan(state[STEERING]) / (p[LF] + p[LR])
