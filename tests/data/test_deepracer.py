"""DeepRacer logs: closed forms on a round track, real logs against their own progress, damage told by line."""

import csv
from pathlib import Path

import gymnasium
import numpy as np
import pandas
import pytest

import rl.envs  # noqa: F401  registers our simulator
from data.deepracer import FRONT, LOOK_AHEAD, PERIOD, Drives, deepracer_jobs, is_deepracer, load_deepracer
from data.deepracer_traces import read_traces, trace_files
from data.errors import InputError

REAL = Path(__file__).parents[3] / "shared" / "data" / "deepracer"
JOBS = ("sample-console-logs", "sample-continuous-action-logs", "sample-drfc-1-logs", "sample-drfc-3-logs")
real_logs = pytest.mark.skipif(not REAL.is_dir(), reason="needs the real logs in ../shared/data/deepracer")

R, HALF_WIDTH = 2.0, 0.4  # a round track, driven anti-clockwise
COLUMNS = "episode steps X Y yaw steer throttle action reward done all_wheels_on_track progress"
HEADER = [*COLUMNS.split(" "), "closest_waypoint", "track_len", "tstamp", "episode_status", "pause_duration"]


def waypoints(radius: float = R, centre: float = 0.0, step: int = 1) -> np.ndarray:
    angle = np.linspace(0, 2 * np.pi, 201)[::step]
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.hstack([centre + width * ring for width in (radius, radius - HALF_WIDTH, radius + HALF_WIDTH)])


LENGTH = float(np.linalg.norm(np.diff(waypoints()[:, :2], axis=0), axis=1).sum())


def drive(
    angle, radius=R, *, way=1, swing=0.0, times=None, episode=0, step=1, end="in_progress", **fields
) -> list[dict]:
    """Rows of one drive: `prepare`, then the car's middle at `angle`. The pose read at a time is stamped a row late."""
    angle = np.concatenate([[angle[0]], angle])
    yaw = angle + way * np.pi / 2 + swing
    radius = np.broadcast_to(radius, len(angle))
    times = np.arange(len(angle)) * PERIOD if times is None else np.concatenate([[times[0] - PERIOD], times])
    stamps = 10 + np.append(times[1:], times[-1] + PERIOD)
    statuses = ["prepare", *["in_progress"] * (len(angle) - 2), end]
    given = {"steer": 0.0, "throttle": 1.0, "action": 3, "track_len": LENGTH, "reward": 0.5} | fields
    return [
        dict.fromkeys(HEADER, 0) | given | {
            "episode": episode, "steps": float(step + i), "tstamp": stamps[i], "episode_status": statuses[i],
            "X": radius[i] * np.cos(angle[i]) + FRONT * np.cos(yaw[i]),
            "Y": radius[i] * np.sin(angle[i]) + FRONT * np.sin(yaw[i]),
            "yaw": np.degrees((yaw[i] + np.pi) % (2 * np.pi) - np.pi),
        }
        for i in range(len(angle))
    ]  # fmt: skip


def following(rows: list[dict], more: list[dict]) -> list[dict]:
    """All rows, the later ones counted and stamped on from the earlier ones."""
    late, steps = rows[-1]["tstamp"] + PERIOD - more[0]["tstamp"], rows[-1]["steps"] + 1
    return [*rows, *({**row, "tstamp": row["tstamp"] + late, "steps": steps + i} for i, row in enumerate(more))]


def write(file: Path, rows: list[dict]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


@pytest.fixture
def job(tmp_path):
    """A folder of jobs with a round track, and `job(rows…)`: the dataset of a job with one file for each argument."""
    (tmp_path / "tracks").mkdir()
    np.save(tmp_path / "tracks" / "round.npy", waypoints())

    def job(*files: list[dict]):
        folder = tmp_path / "job" / "training-simtrace"
        for i, rows in enumerate(files):
            write(folder / f"{i}-iteration.csv", rows)
        return load_deepracer(folder.parent, "job")

    job.root = tmp_path
    return job


STEADY = np.arange(12) * 0.05  # radians: 0.1 m a row, 1.5 m/s


def test_features_on_a_circle_have_their_closed_form(job):
    angle, radius, swing = STEADY, 1.9, 0.2  # 0.1 m to the left of the centreline, nose 0.2 rad further left
    observed = job(drive(angle, radius, swing=swing)).observations.astype(float)
    angle = angle[:-1]
    assert observed[:, 0] == pytest.approx(R - radius, abs=1e-3)
    assert observed[:, 1] == pytest.approx(np.sin(swing), abs=1e-3)
    assert observed[:, 2] == pytest.approx(np.cos(swing), abs=1e-3)
    assert observed[:, 5] == pytest.approx(HALF_WIDTH - 0.1, abs=1e-3)
    assert observed[:, 6] == pytest.approx(HALF_WIDTH + 0.1, abs=1e-3)
    car, yaw = radius * np.exp(1j * angle), angle + np.pi / 2 + swing
    for k, distance in enumerate(LOOK_AHEAD):
        ahead = (R * np.exp(1j * (angle + distance / R)) - car) * np.exp(-1j * yaw)
        assert observed[:, 7 + 2 * k] == pytest.approx(ahead.real, abs=2e-3)
        assert observed[:, 8 + 2 * k] == pytest.approx(ahead.imag, abs=2e-3)


def test_a_drive_starts_standing_and_then_has_the_speed_of_the_last_two_steps(job):
    angle = np.cumsum([0, 0.01, 0.02, 0.03, 0.04, 0.05])
    observed = job(drive(angle)).observations.astype(float)
    turned = np.array([0, 0.01, 0.015, 0.025, 0.035]) / PERIOD  # rad/s
    assert observed[:, 3] == pytest.approx(R * turned, rel=1e-3, abs=1e-6)
    assert observed[:, 4] == pytest.approx(turned, rel=1e-3, abs=1e-6)


def test_poses_belong_to_the_stamp_of_the_row_before(job):
    times = np.cumsum(np.random.default_rng(0).uniform(0.04, 0.1, 30))
    observed = job(drive(0.7 * times, times=times)).observations
    assert observed[2:, 3] == pytest.approx(0.7 * R, rel=1e-3)
    assert observed[2:, 4] == pytest.approx(0.7, rel=1e-3)


def test_poses_with_the_same_stamp_have_a_speed_all_the_same(job):
    times = np.maximum(np.arange(12), 2) * PERIOD  # the first three at once
    observed = job(drive(STEADY, times=times)).observations
    assert observed[1:, 3].min() > 0.9 * 0.05 * R / PERIOD
    assert observed[:, 3].max() < 2.1 * 0.05 * R / PERIOD


def test_observations_do_not_know_the_future(job):
    before = job(drive(STEADY))
    changed = STEADY.copy()
    changed[8:] += 0.05
    after = job(drive(changed))
    assert np.array_equal(before.observations[:8], after.observations[:8])
    assert not np.array_equal(before.observations[8:], after.observations[8:])


def test_the_next_state_is_the_next_row(job):
    dataset = job(drive(STEADY, end="off_track"))
    assert np.array_equal(dataset.next_observations[:-1], dataset.observations[1:])
    assert dataset.trainable.all()


def test_the_reward_is_a_hundred_times_the_lap_fraction_and_a_lap_returns_100_wherever_it_starts(job):
    angle = np.linspace(5.0, 5.0 + 2 * np.pi, 101)
    dataset = job(drive(angle, 2.2, end="lap_complete"), drive(STEADY, 1.8, end="off_track"))
    assert dataset.rewards[:100] == pytest.approx(1.0, abs=1e-2)
    assert dataset.returns == pytest.approx([100, 100 * STEADY[-1] / (2 * np.pi)], abs=0.02)
    assert dataset.observations[2:100, 4] == pytest.approx(0.02 * np.pi / PERIOD, rel=1e-3)  # all the way round


def test_a_lap_the_other_way_round_earns_as_much_and_has_left_on_its_left(job):
    angle = np.linspace(1.0, 1.0 - 2 * np.pi, 101)
    dataset = job(drive(angle, 1.9, way=-1, end="lap_complete"))
    assert dataset.returns == pytest.approx([100], abs=0.02)
    assert dataset.observations[:, 0] == pytest.approx(-0.1, abs=1e-3)  # the middle of the circle is to the right
    assert dataset.observations[:, 2] == pytest.approx(1.0, abs=1e-3)
    assert dataset.environments[0].kwargs["track_options"]["reverse"] is True
    both = job(
        drive(angle, way=-1, end="lap_complete"), [*drive(-angle, end="lap_complete"), *drive(-angle, episode=1)]
    )
    assert both.returns == pytest.approx([100, 100, 100], abs=0.02)  # a job that alternates directions
    assert "reverse" not in both.environments[0].kwargs["track_options"]


def test_failure_is_a_terminal_and_the_end_of_a_lap_or_of_the_log_a_timeout(job):
    ends = ["off_track", "crashed", "immobilized", "reversed", "lap_complete", "time_up", "in_progress"]
    dataset = job(*[drive(STEADY, end=end) for end in ends])
    assert np.array_equal(dataset.terminals[dataset.ends], [True] * 4 + [False] * 3)
    assert np.array_equal(dataset.timeouts, np.isin(np.arange(len(dataset)), dataset.ends) & ~dataset.terminals)
    assert np.array_equal(np.diff(dataset.ends), [len(STEADY) - 1] * 6)


def test_a_pause_is_left_out_and_the_car_starts_anew_behind_it(job):
    held = [row | {"episode_status": "pause"} for row in drive(np.full(5, 0.4))]
    again = drive(0.4 + STEADY, end="lap_complete")[1:]
    dataset = job(following(following(drive(STEADY, end="off_track"), held), again))
    assert np.array_equal(dataset.ends, [10, 21])
    assert np.array_equal(dataset.terminals[dataset.ends], [True, False])
    assert dataset.observations[11, 3] == 0  # standing
    assert dataset.observations[13, 3] == pytest.approx(0.05 * R / PERIOD, rel=1e-3)


def test_a_failure_ends_the_episode_even_if_the_simulator_goes_on_at_once(job):
    dataset = job(following(drive(STEADY, end="off_track"), drive(0.4 + STEADY)[1:]))
    assert np.array_equal(dataset.ends, [10, 21])
    assert np.array_equal(dataset.terminals[dataset.ends], [True, False])
    assert dataset.observations[11, 3] == 0


def test_a_pause_in_mid_drive_is_no_terminal(job):
    rows = drive(STEADY)
    for row in rows[6:9]:
        row["episode_status"] = "pause"
    dataset = job(rows)
    assert not dataset.terminals.any()
    assert dataset.timeouts.sum() == 2


def test_laps_driven_in_one_go_are_episodes_without_a_stop(job):
    second = drive(0.6 + STEADY, episode=1, end="lap_complete")[1:]
    dataset = job(following(drive(STEADY), second))
    assert np.array_equal(dataset.ends, [11, 22])
    assert np.array_equal(dataset.next_observations[:-1], dataset.observations[1:])  # across the line, too
    assert dataset.observations[2:, 3] == pytest.approx(0.05 * R / PERIOD, rel=1e-3)


def test_the_row_before_a_car_is_put_back_to_its_start_is_left_out(job):
    dataset = job(drive(np.concatenate([[0.1], STEADY])))
    assert len(dataset) == len(STEADY) - 1
    assert dataset.observations[0, 3] == 0
    assert (dataset.rewards > 0).all()


def test_the_step_over_which_the_simulation_hung_is_left_out_and_noted(job):
    times = np.arange(12) * PERIOD
    times[6:] += 1.0
    dataset = job(drive(STEADY + 0.5 * (times > 1), times=times))
    assert len(dataset) == len(STEADY) - 2
    assert dataset.timeouts.sum() == 2
    assert dataset.rewards.max() < 1
    assert "1 over which the simulation hung" in dataset.notes[0]


def test_actions_are_radians_to_the_left_and_metres_a_second_for_discrete_and_continuous_runs_alike(job):
    discrete = job(drive(STEADY, steer=30.0, throttle=4.0, action=7))
    continuous = job(drive(STEADY, steer=30.0, throttle=4.0, action="[30.0 4.0]"))
    for dataset in (discrete, continuous):
        assert dataset.actions[0] == pytest.approx([np.pi / 6, 4])
        assert dataset.action_low == pytest.approx([-np.pi / 6, 0])
        assert dataset.action_high == pytest.approx([np.pi / 6, 4])


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("X", "abc", "'abc' for X in line 6"),
        ("Y", "nan", "for Y in line 6"),
        ("yaw", "", "'' for yaw in line 6"),
        ("tstamp", "inf", "for tstamp in line 6"),
        ("episode_status", "of_track", "'of_track' in line 6; did you mean 'off_track'?"),
        ("tstamp", 10.1, "back in time in line 6"),
        ("steer", 31.0, "steer 31° in line 6"),
        ("throttle", 4.5, "throttle 4.5 m/s in line 6"),
        ("throttle", -1.0, "throttle -1 m/s in line 6"),
        ("action", "1,2", "18 fields in line 6 where its first line has 17"),
    ],
)
def test_a_malformed_row_is_refused_by_file_and_line(job, column, value, told):
    rows = drive(STEADY)
    rows[4][column] = value
    file = job.root / "job" / "training-simtrace" / "1-iteration.csv"
    write(file, rows)
    file.write_text(file.read_text().replace('"', ""))
    with pytest.raises(InputError) as raised:
        job(drive(STEADY))
    assert told in str(raised.value)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("rest", ["0,1.0,2.1", ""])
def test_a_line_that_was_cut_short_is_refused(job, rest):
    file = write(job.root / "job" / "training-simtrace" / "1-iteration.csv", drive(STEADY))
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:3], rest, *lines[4:]]))
    with pytest.raises(InputError, match="fields in line 4 where"):
        job(drive(STEADY))


@pytest.mark.parametrize(
    ("text", "told"),
    [(b"", "no column episode"), (b"a,b\n1,2\n", "no column episode"), (b"\xff\xfe", "cannot be read")],
)
def test_a_file_that_is_no_trace_is_refused(job, text, told):
    file = job.root / "job" / "training-simtrace" / "1-iteration.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    with pytest.raises(InputError, match=told):
        job(drive(STEADY))


def test_a_trace_without_rows_is_refused(job):
    file = job.root / "job" / "training-simtrace" / "1-iteration.csv"
    file.parent.mkdir(parents=True)
    file.write_text(",".join(HEADER) + "\n")
    with pytest.raises(InputError, match="no rows"):
        job(drive(STEADY))


def test_workers_and_evaluations_belong_to_their_job(tmp_path):
    rows = drive(STEADY)
    for file in (
        "a/0/training-simtrace/0-iteration.csv",
        "a/1/training-simtrace/10-iteration.csv",
        "a/1/training-simtrace/9-iteration.csv",
        "a/evaluation-20220709201503/evaluation-simtrace/0-iteration.csv",
        "b/sim-trace/training/training-simtrace/0-iteration.csv",
        "b/sim-trace/evaluation/20220612082523-IBZwYd0/evaluation-simtrace/0-iteration.csv",
        "deep/er/c/training-simtrace/0-iteration.csv",
    ):
        write(tmp_path / file, rows)
    (tmp_path / "tracks").mkdir()
    np.save(tmp_path / "tracks" / "round.npy", waypoints())
    assert deepracer_jobs(tmp_path) == {name: tmp_path / name for name in ("a", "b", "deep/er/c")}
    a = load_deepracer(tmp_path / "a", "a")
    assert a.labels["phase"] == ["training", "evaluation"]
    assert np.array_equal(a.columns["phase"][a.ends], [0, 0, 0, 1])
    assert np.array_equal(a.columns["iteration"][a.ends], [0, 9, 10, 0])
    b = load_deepracer(tmp_path / "b", "b")
    assert np.array_equal(b.columns["phase"][b.ends], [0, 1])
    assert deepracer_jobs(tmp_path / "a" / "1") == {"1": tmp_path / "a" / "1"}
    one = tmp_path / "a" / "0" / "training-simtrace" / "0-iteration.csv"
    assert len(load_deepracer(one, "one")) == len(load_deepracer(tmp_path / "a" / "0", "worker")) == len(STEADY) - 1
    with pytest.raises(InputError, match=r"holds 3 DeepRacer jobs \(a, b, deep/er/c\)"):
        load_deepracer(tmp_path, "all")


def test_a_job_inside_a_job_is_refused(tmp_path):
    write(tmp_path / "training-simtrace" / "0-iteration.csv", drive(STEADY))
    write(tmp_path / "other" / "training-simtrace" / "0-iteration.csv", drive(STEADY))
    with pytest.raises(InputError, match=r"with other jobs in its folder \(other\)"):
        deepracer_jobs(tmp_path)


def test_traces_are_told_from_other_files(tmp_path):
    write(tmp_path / "job" / "training-simtrace" / "0-iteration.csv", drive(STEADY))
    write(tmp_path / "merged" / "all.csv", drive(STEADY))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "centreline.csv").write_text("# x_m, y_m, w_tr_right_m, w_tr_left_m\n0, 0, 1, 1\n")
    assert is_deepracer(tmp_path)
    assert is_deepracer(tmp_path / "job" / "training-simtrace" / "0-iteration.csv")
    assert is_deepracer(tmp_path / "merged")
    assert not is_deepracer(tmp_path / "other")
    assert not is_deepracer(tmp_path / "other" / "centreline.csv")
    assert not is_deepracer(tmp_path / "absent")


def test_the_track_is_found_by_length_then_by_place_then_by_direction(job):
    tracks = job.root / "tracks"
    np.save(tracks / "a_elsewhere.npy", waypoints(centre=9.0))
    np.save(tracks / "b_larger.npy", waypoints(radius=2.1))
    np.save(tracks / "c_backwards.npy", waypoints(step=-1))
    np.save(tracks / "d_pickled.npy", np.array([{}]), allow_pickle=True)
    (tracks / "e_damaged.npy").write_bytes(b"no array")
    forward, backward = job(drive(STEADY)), job(drive(-STEADY, way=-1))
    assert Path(forward.environments[0].kwargs["track"]).name == "round.npy"
    assert forward.environments[0].name == "round (our simulator)"
    assert Path(backward.environments[0].kwargs["track"]).name == "c_backwards.npy"
    assert "reverse" not in backward.environments[0].kwargs["track_options"]


def test_a_job_without_its_track_says_what_was_tried(job):
    (job.root / "tracks" / "round.npy").rename(job.root / "tracks" / "kept.txt")
    with pytest.raises(InputError, match="no waypoints"):
        job(drive(STEADY))
    np.save(job.root / "tracks" / "larger.npy", waypoints(radius=2.1))
    with pytest.raises(InputError, match=r"track of 12.566 m, which is none of the 1 .* larger.npy, 13.194 m"):
        job(drive(STEADY))
    np.save(job.root / "tracks" / "elsewhere.npy", waypoints(centre=9.0))
    with pytest.raises(InputError, match=r"did not drive where .* elsewhere.npy"):
        job(drive(STEADY))


def test_tracks_may_lie_elsewhere(job, tmp_path_factory):
    file, empty = write(tmp_path_factory.mktemp("far") / "all.csv", drive(STEADY)), tmp_path_factory.mktemp("empty")
    assert len(load_deepracer(file, "all", job.root / "tracks")) == len(STEADY) - 1
    with pytest.raises(InputError, match="none of the 0 in"):
        load_deepracer(file, "all", empty)


def test_a_job_on_two_tracks_is_refused(job):
    with pytest.raises(InputError, match=r"tracks of 12.566 and 15.000 m .*1-iteration.csv"):
        job(drive(STEADY), drive(STEADY, track_len=15.0))


def test_a_job_in_which_the_car_never_drives_is_refused(job):
    with pytest.raises(InputError, match="no two rows"):
        job(drive(STEADY[:1]))
    with pytest.raises(InputError, match="no two rows"):
        job(drive(STEADY)[:1])


@real_logs
def test_real_jobs_are_four_on_two_tracks():
    jobs = deepracer_jobs(REAL)
    assert tuple(jobs) == JOBS
    for name, path in jobs.items():
        dataset = load_deepracer(path, name)
        track = Path(dataset.environments[0].kwargs["track"]).stem
        assert track == ("reInvent2019_wide_cw" if "continuous" in name else "reinvent_base")
        assert set(dataset.columns) == {"phase", "iteration"}
        assert 0 < dataset.returns.min() < dataset.returns.max() < 101
        assert np.abs(dataset.observations[:, 0]).max() < 0.7  # the wide track's half-width, and half a car


@real_logs
@pytest.mark.parametrize("name", JOBS)
def test_returns_of_real_logs_are_the_progress_that_they_say(name):
    ours, theirs = [], []
    for file in sorted((REAL / name).rglob("training-simtrace/1?-iteration.csv")):
        table = pandas.read_csv(file)
        returns = load_deepracer(file, name).returns
        driven = table[table["episode_status"] != "prepare"].groupby("episode")["progress"]
        if len(returns) == len(driven):  # else the simulation hung once
            ours.extend(returns)
            theirs.extend(driven.last() - driven.first())
    assert len(ours) >= 100
    assert np.corrcoef(ours, theirs)[0, 1] > 0.999
    assert np.median(np.abs(np.subtract(ours, theirs))) < 0.5  # per cent of a lap; theirs is that of the bumper


@real_logs
def test_real_cars_start_with_their_middle_on_the_grid_and_their_bumper_ahead_of_it():
    for file in (REAL / "sample-console-logs").rglob("*.csv"):
        table = pandas.read_csv(file)
        grid = table[table["steps"] == 1]
        assert grid["progress"].median() / 100 * grid["track_len"].median() == pytest.approx(FRONT, abs=1e-3)


@real_logs
@pytest.mark.parametrize("name", JOBS)
def test_in_real_logs_steering_to_the_left_turns_the_car_left_afterwards(name):
    dataset = load_deepracer(REAL / name, name)
    rows = np.flatnonzero(~np.isin(np.arange(len(dataset)), np.concatenate([dataset.ends, dataset.ends - 1])))
    yaw_rate, steering = dataset.observations[:, 4], dataset.actions[:, 0]
    assert np.corrcoef(steering[rows], yaw_rate[rows + 2] - yaw_rate[rows])[0, 1] > 0.2


def test_our_simulator_sees_a_pose_as_the_loader_does(job):
    angle, radius, swing = STEADY, 1.9, 0.2
    dataset = job(drive(angle, radius, swing=swing))
    made = dataset.environments[0]
    env = gymnasium.make(made.id, **made.kwargs)
    assert env.observation_space.shape == dataset.observations.shape[1:]
    assert env.action_space.low == pytest.approx(dataset.action_low)
    assert env.action_space.high == pytest.approx(dataset.action_high)
    simulator = env.unwrapped.simulator
    for i in range(2, len(dataset)):
        pose = [radius * np.cos(angle[i]), radius * np.sin(angle[i]), angle[i] + np.pi / 2 + swing]
        simulator.reset(poses=np.array([pose]), speeds=dataset.observations[[i], 3])
        seen = np.delete(simulator.features[0], 4)  # a car that is put down does not turn yet
        assert seen == pytest.approx(np.delete(dataset.observations[i], 4), abs=1e-5)


@real_logs
@pytest.mark.parametrize("name", JOBS)
def test_our_simulator_foresees_the_next_row_of_real_logs(name):
    dataset = load_deepracer(REAL / name, name)
    drives = Drives.of(read_traces(trace_files(REAL / name)[REAL / name]))
    here = np.flatnonzero(drives.linked)
    now, after = drives.motion[here], drives.motion[here + 1]  # x, y, yaw, speed, yaw rate
    room = np.minimum(dataset.observations[:, 5], dataset.observations[:, 6])
    rows = np.flatnonzero((room > 0.25) & (now[:, 3] > 0.5))  # away from walls, not just starting
    rows = np.random.default_rng(0).choice(rows, 500, replace=False)
    now, after, made = now[rows], after[rows], dataset.environments[0]
    simulator = gymnasium.make_vec(made.id, num_envs=len(rows), **made.kwargs).simulator
    simulator.reset(poses=now[:, :3], speeds=now[:, 3])
    simulator.state[:, 2], simulator.state[:, 5] = dataset.actions[rows - 1, 0], now[:, 4]  # wheels and yaw rate
    simulator.step(dataset.actions[rows].astype(float))
    missed = np.linalg.norm(simulator.state[:, :2] - after[:, :2], axis=1)
    assert np.median(missed) < 0.25 * np.median(np.linalg.norm(now[:, :2] - after[:, :2], axis=1))
    turns = np.abs(np.sin(np.stack([simulator.state[:, 4], now[:, 2]]) - after[:, 2]))
    assert np.median(turns[0]) < 0.75 * np.median(turns[1])  # than by going straight on
