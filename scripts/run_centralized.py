"""The oracle: the same learner on everybody's rows in one place. python scripts/run_centralized.py --algo sac"""

from data.command_line import guarded
from fed.cli import main

if __name__ == "__main__":
    guarded(lambda: main("centralized", "python scripts/run_centralized.py", "Offline RL on the pooled logs."))
