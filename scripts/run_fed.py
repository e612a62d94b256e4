"""Train a policy across clients that keep their logs: python scripts/run_fed.py --algo sac"""

from data.command_line import guarded
from fed.cli import main

if __name__ == "__main__":
    guarded(lambda: main("train", "python scripts/run_fed.py", "Federated offline RL on split logs."))
